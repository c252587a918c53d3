//! Request patterns under which a faulty server stalls, although it works with a browser.

use std::fmt;

use super::server::{Connection, Running};
use crate::error::Result;

/// A request pattern and its outcome.
pub type Check = fn(&mut Running) -> Result<Outcome>;

/// The outcome of a request pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every request was answered.
    Good,
    /// No request was answered.
    Hangs,
    /// The server did not send `100 Continue`. It responded only after the
    /// client sent the body without it.
    NoContinue,
    /// The server answered only this number of requests.
    Some(usize),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Good => f.write_str("ok"),
            Outcome::Hangs => f.write_str("HANGS"),
            Outcome::NoContinue => f.write_str("no 100"),
            Outcome::Some(count) => write!(f, "{count} answered"),
        }
    }
}

/// All patterns. Each needs a separate server.
pub const COLUMNS: [(&str, Check); 7] = [
    ("one write", one_write),
    ("head, then body", head_then_body),
    ("20 KB body", large_write),
    ("3 pipelined", three_together),
    ("Expect", expect),
    ("3 MB, slow reader", slow_reader),
    ("64 connects at once", many_connects),
];

const CONNECTS: usize = 64;

fn head(bytes: usize, fields: &str) -> Vec<u8> {
    format!(
        "POST /bench/echo HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {bytes}\r\n\r\n"
    )
    .into_bytes()
}

fn body(bytes: usize) -> Vec<u8> {
    (b'a'..=b'z').cycle().take(bytes).collect()
}

fn request(bytes: usize) -> Vec<u8> {
    [head(bytes, ""), body(bytes)].concat()
}

/// Awaits the echo of `bytes` bytes.
fn echo(server: &mut Running, connection: &mut Connection, bytes: usize) -> Result<Outcome> {
    match server.answer(connection)? {
        None => Ok(Outcome::Hangs),
        Some(answer) if answer.status == 200 && answer.body == body(bytes) => Ok(Outcome::Good),
        Some(answer) => Err(server.failure(format!("answered {}", answer.status))),
    }
}

fn one_write(server: &mut Running) -> Result<Outcome> {
    let mut connection = server.connect()?;
    server.send(&mut connection, &request(50))?;
    echo(server, &mut connection, 50)
}

/// Sends head and body separately, as clients in Python do.
fn head_then_body(server: &mut Running) -> Result<Outcome> {
    let mut connection = server.connect()?;
    server.send(&mut connection, &head(50, ""))?;
    server.settle()?;
    server.send(&mut connection, &body(50))?;
    echo(server, &mut connection, 50)
}

/// Sends more in one write than the server reads at once.
fn large_write(server: &mut Running) -> Result<Outcome> {
    let mut connection = server.connect()?;
    server.suspend()?;
    let sent = connection.push(&request(20_000));
    server.resume()?;
    server.send(
        &mut connection,
        request(20_000).get(sent..).unwrap_or_default(),
    )?;
    echo(server, &mut connection, 20_000)
}

fn three_together(server: &mut Running) -> Result<Outcome> {
    let mut connection = server.connect()?;
    server.send(&mut connection, &request(50).repeat(3))?;
    for answered in 0..3 {
        match echo(server, &mut connection, 50)? {
            Outcome::Good => {}
            _ => return Ok(Outcome::Some(answered)),
        }
    }
    Ok(Outcome::Good)
}

/// Waits for `100 Continue`, as curl does for an upload.
fn expect(server: &mut Running) -> Result<Outcome> {
    let mut connection = server.connect()?;
    server.send(&mut connection, &head(20_000, "Expect: 100-continue\r\n"))?;
    let is_continued = server
        .next(&mut connection)?
        .is_some_and(|answer| answer.status == 100);
    server.send(&mut connection, &body(20_000))?;
    match echo(server, &mut connection, 20_000)? {
        Outcome::Good if !is_continued => Ok(Outcome::NoContinue),
        other => Ok(other),
    }
}

/// Requests a response that is larger than the buffers of the sockets, and reads
/// late. Until the client reads, its window keeps its small initial size.
fn slow_reader(server: &mut Running) -> Result<Outcome> {
    const BYTES: usize = 3 << 20;
    let mut connection = server.connect()?;
    if !server.send(&mut connection, &request(BYTES))? {
        return Ok(Outcome::Hangs);
    }
    server.settle()?;
    echo(server, &mut connection, BYTES)
}

fn many_connects(server: &mut Running) -> Result<Outcome> {
    server.suspend()?;
    let mut connections = Vec::new();
    for _ in 0..CONNECTS {
        let mut connection = server.connect_only()?;
        connection.push(&request(50));
        connections.push(connection);
    }
    server.resume()?;
    let mut answered = 0;
    for connection in &mut connections {
        answered += usize::from(echo(server, connection, 50)? == Outcome::Good);
    }
    Ok(match answered {
        CONNECTS => Outcome::Good,
        some => Outcome::Some(some),
    })
}

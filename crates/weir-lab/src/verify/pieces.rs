//! Sends every vector in every split, and expects equal answers.

use super::server::{Connection, Running};
use super::vector::Vector;
use crate::error::Result;

/// Number of requests that are sent at once.
const TOGETHER: [usize; 4] = [2, 3, 16, 64];
/// Bytes of the large body.
const LARGE_BYTES: usize = 1 << 20;
/// A declared length that every contender refuses.
const REFUSED_BYTES: usize = (4 << 20) + 1;

/// Sends all vectors in all forms. Returns the number of compared answers.
pub fn check(server: &mut Running, vectors: &[Vector]) -> Result<u64> {
    let mut count = 0;
    for vector in vectors {
        let mut connection = server.connect()?;
        let bytes = &vector.request;
        exchange(server, &mut connection, vector, &[bytes], 1, "whole")?;
        for cut in 1..bytes.len() {
            let (first, second) = bytes.split_at(cut);
            let form = format!("cut at {cut}");
            exchange(server, &mut connection, vector, &[first, second], 1, &form)?;
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        exchange(server, &mut connection, vector, &single, 1, "byte by byte")?;
        count += 1 + bytes.len() as u64;
        for many in TOGETHER {
            let bytes = bytes.repeat(many);
            let form = format!("{many} at once");
            exchange(server, &mut connection, vector, &[&bytes], many, &form)?;
            count += many as u64;
        }
    }
    Ok(count + large(server)? + refused(server)?)
}

/// A large body, cut at many positions.
fn large(server: &mut Running) -> Result<u64> {
    let body: Vec<u8> = (0..=250).cycle().step_by(7).take(LARGE_BYTES).collect();
    let head = format!(
        "POST /bench/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LARGE_BYTES}\r\n\r\n"
    );
    let request = [head.as_bytes(), &body].concat();
    let vector = Vector {
        name: format!("POST /bench/echo of {LARGE_BYTES} bytes"),
        request: request.clone(),
        status: 200,
        media_type: "application/octet-stream".to_owned(),
        body,
        allow: None,
        deflated: false,
    };
    let mut connection = server.connect()?;
    let (from, end) = (head.len(), request.len());
    let cuts = [1, from - 1, from, from + 1, 4096, 1 << 16, end - 1];
    for cut in cuts {
        let (first, second) = request.split_at(cut);
        let form = format!("cut at {cut}");
        exchange(server, &mut connection, &vector, &[first, second], 1, &form)?;
    }
    Ok(cuts.len() as u64)
}

/// A length over the limit is refused before the body arrives.
fn refused(server: &mut Running) -> Result<u64> {
    let request = format!(
        "POST /bench/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: {REFUSED_BYTES}\r\n\r\n"
    );
    let vector = Vector {
        name: format!("POST /bench/echo of {REFUSED_BYTES} bytes"),
        request: request.clone().into_bytes(),
        status: 413,
        media_type: "application/json".to_owned(),
        body: br#"{"error":"too large"}"#.to_vec(),
        allow: None,
        deflated: false,
    };
    let mut connection = server.connect()?;
    exchange(
        server,
        &mut connection,
        &vector,
        &[request.as_bytes()],
        1,
        "its head alone",
    )?;
    Ok(1)
}

/// Sends pieces, each after the server has received the previous one, and compares the answers.
/// After these, the server must send nothing.
fn exchange(
    server: &mut Running,
    connection: &mut Connection,
    vector: &Vector,
    pieces: &[&[u8]],
    answers: usize,
    form: &str,
) -> Result<()> {
    for (at, piece) in pieces.iter().enumerate() {
        if at > 0 {
            server.settle()?;
        }
        if !server.send(connection, piece)? {
            let what = format!(
                "{}, {form}: the server does not accept the request",
                vector.name
            );
            return Err(server.failure(what));
        }
    }
    for number in 1..=answers {
        let difference = match server.answer(connection)? {
            None => Some("no answer".to_owned()),
            Some(answer) => vector.difference(&answer),
        };
        if let Some(difference) = difference {
            let what = format!("{}, {form}, answer {number}: {difference}", vector.name);
            return Err(server.failure(what));
        }
    }
    if connection.has_more() {
        let what = format!("{}, {form}: bytes after the answer", vector.name);
        return Err(server.failure(what));
    }
    Ok(())
}

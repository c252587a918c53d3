//! Slow transfers of one principal leave memory to other principals.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use weir_server::Size;
use weir_server::security::Token;

use crate::world::{Files, TEST_TIMEOUT, World, loopback};

const BODY_BYTES: usize = 1 << 20;
const BUDGET_BYTES: usize = 4 * BODY_BYTES;

/// Sends the head of a write, and this many bytes of its body.
fn begin_write(world: &World, token: &Token, bytes: usize) -> TcpStream {
    let address = world.http.unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let head = format!(
        "POST /v1/topics/t/events HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n\
         Connection: close\r\nContent-Length: {BODY_BYTES}\r\n\r\n",
        token.expose()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b'x'; bytes]).unwrap();
    stream
}

fn response(mut stream: TcpStream) -> String {
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn incomplete_bodies_of_one_principal_leave_memory_to_others() {
    let files = Files::new();
    let [a, b] = ["a", "b"].map(|name| files.token(name, &["all **"]));
    let world = files.start(|config| {
        config.http = Some(loopback());
        config.bodies_budget = Some(Size(BUDGET_BYTES));
        config.payload_max = Size(BODY_BYTES);
    });
    world.create("t");
    // More than the budget. The last byte of each body is missing.
    let count = BUDGET_BYTES / BODY_BYTES + 1;
    let slow: Vec<_> = (0..count)
        .map(|_| begin_write(&world, &a, BODY_BYTES - 1))
        .collect();
    for stream in &slow {
        stream.set_nonblocking(true).unwrap();
    }
    let end = Instant::now() + TEST_TIMEOUT;
    let refused = loop {
        let mut streams = slow.iter();
        if let Some(refused) = streams.position(|stream| stream.peek(&mut [0]).is_ok()) {
            break refused;
        }
        assert!(Instant::now() < end, "no request was refused");
        std::thread::yield_now();
    };
    let written = response(begin_write(&world, &b, BODY_BYTES));
    assert!(written.starts_with("HTTP/1.1 201 "), "{written}");
    let refused = slow.into_iter().nth(refused).unwrap();
    refused.set_nonblocking(false).unwrap();
    let mut text = [0; 1000];
    let length = (&refused).read(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text[..length]);
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    assert!(text.contains("of the principal use half"), "{text}");
    let limit = format!(r#""limit":{}"#, BUDGET_BYTES / 2);
    assert!(text.contains(&limit), "{text}");
}

//! HTTP/2 clients that flood the server with control frames.

use std::io::{Read, Write};

use crate::world::world;

/// Many more frames than any client needs.
const FRAMES: usize = 20_000;
const ENHANCE_YOUR_CALM: u32 = 11;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Returns the highest stream and the error of the last GOAWAY in these bytes.
fn goaway(mut bytes: &[u8]) -> Option<(u32, u32)> {
    let mut error = None;
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let payload = rest.get(..length)?;
        if head[3] == 7 {
            let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
            error = Some((number(0), number(4)));
        }
        bytes = &rest[length..];
    }
    error
}

#[test]
fn a_flood_of_control_frames_ends_the_connection() {
    let world = world();
    for (name, flood) in [
        ("SETTINGS", frame(4, 0, 0, b"")),
        ("PING", frame(6, 0, 0, b"12345678")),
        ("PRIORITY", frame(2, 0, 1, &[0, 0, 0, 3, 1])),
        ("WINDOW_UPDATE", frame(8, 0, 0, &1_u32.to_be_bytes())),
        ("unknown", frame(0x20, 0, 0, b"?")),
    ] {
        let mut client = world.client();
        let mut own = client.stream.try_clone().unwrap();
        let answers = std::thread::spawn(move || {
            let mut answers = Vec::new();
            // The connection may end with a reset, after the GOAWAY.
            let _ = own.read_to_end(&mut answers);
            answers
        });
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(4, 0, 0, b""));
        bytes.extend(flood.repeat(FRAMES));
        // The server may close the connection while the client sends.
        let _ = client.stream.write_all(&bytes);
        let answers = answers.join().unwrap();
        // Any stream may have been processed, so a client must not retry it.
        let (streams, error) = goaway(&answers).unwrap();
        assert_eq!((streams, error), (0x7FFF_FFFF, ENHANCE_YOUR_CALM), "{name}");
    }
    assert_eq!(world.ask("GET /healthz", "", b"").status, 200);
}

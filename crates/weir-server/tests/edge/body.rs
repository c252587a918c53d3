//! Request bodies: split at every byte, with and without `Expect`, in chunks,
//! with content codings, and too large.

use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::world::{request, with, world};

#[test]
fn a_request_split_at_any_byte_is_accepted() {
    let world = world();
    for fields in [
        "Content-Length: 12",
        "Content-Length: 12\r\nExpect: 100-continue",
        "Transfer-Encoding: chunked",
    ] {
        let mut bytes =
            format!("POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n")
                .into_bytes();
        let chunks: &[u8] = b"5\r\n{\"a\":\r\n7;x=y\r\n\"bcde\"}\r\n0\r\nx: y\r\n\r\n";
        bytes.extend_from_slice(if fields.contains("chunked") {
            chunks
        } else {
            b"{\"a\":\"bcde\"}"
        });
        for cut in 1..bytes.len() {
            let mut client = world.client();
            client.send_cut(&bytes, std::iter::once(cut));
            let mut reply = client.reply(false);
            if reply.status == 100 {
                reply = client.reply(false);
            }
            assert_eq!(reply.status, 201, "{fields} cut at {cut}: {reply:?}");
            let location = reply.get("location").unwrap().to_owned();
            let back = world.ask(&format!("GET {location}"), "", b"");
            assert_eq!(back.body, b"{\"a\":\"bcde\"}", "{fields} cut at {cut}");
        }
        let mut client = world.client();
        client.send_cut(&bytes, 1..bytes.len());
        let mut reply = client.reply(false);
        if reply.status == 100 {
            reply = client.reply(false);
        }
        assert_eq!(reply.status, 201, "{fields} byte by byte");
    }
}

#[test]
fn a_client_that_expects_100_is_asked_for_the_body_or_refused() {
    let world = with(&[("payload_max", "1000"), ("body_max", "1000")]);
    assert_eq!(world.ask("PUT /v1/topics/t", "", b"").status, 201);
    let head = |length: usize| {
        format!(
            "POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    let mut client = world.client();
    client.send(head(1000).as_bytes());
    assert_eq!(client.reply(false).status, 100);
    client.send(&[b'x'; 1000]);
    assert_eq!(client.reply(false).status, 201);
    let mut client = world.client();
    client.send(head(1001).as_bytes());
    let reply = client.reply(false);
    assert_eq!((reply.status, reply.problem().as_str()), (413, "too-large"));
    assert_eq!(reply.get("connection"), Some("close"));
    assert!(client.is_closed());
}

#[test]
fn a_body_over_its_limit_is_refused_and_the_answer_arrives() {
    let world = with(&[("payload_max", "1MiB")]);
    assert_eq!(world.ask("PUT /v1/topics/t", "", b"").status, 201);
    // With a declared length, and without.
    let large = vec![b'x'; 3 << 20];
    let reply = world.ask("POST /v1/topics/t/events", "", &large[..(1 << 20) + 1]);
    assert_eq!(reply.status, 413);
    let mut client = world.client();
    client.send(b"POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    for piece in large.chunks(64 << 10) {
        let chunk = format!("{:x}\r\n", piece.len());
        // The server responds before it has read the whole body.
        let sent = client
            .stream
            .write_all(chunk.as_bytes())
            .and_then(|()| client.stream.write_all(piece))
            .and_then(|()| client.stream.write_all(b"\r\n"));
        if sent.is_err() {
            break;
        }
    }
    let reply = client.reply(false);
    assert_eq!((reply.status, reply.problem().as_str()), (413, "too-large"));
    assert_eq!(
        world.store.topic("t").unwrap().last.0,
        1,
        "nothing is stored"
    );
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_bodies_are_decoded_and_decompression_bombs_are_refused() {
    let world = world();
    let plain = br#"{"a":[1,2,3,4,5,6,7,8,9,10]}"#;
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::new(6));
    zlib.write_all(plain).unwrap();
    let zlib = zlib.finish().unwrap();
    let zstd = zstd::encode_all(&plain[..], 3).unwrap();
    let twice = gzip(&zlib);
    for (coding, body) in [
        ("gzip", gzip(plain)),
        ("deflate", zlib),
        ("zstd", zstd),
        ("deflate, gzip", twice),
    ] {
        let fields = format!("Content-Encoding: {coding}\nContent-Type: application/json");
        let reply = world.ask("POST /v1/topics/t/events", &fields, &body);
        assert_eq!(reply.status, 201, "{coding}: {reply:?}");
        let back = world.ask(&format!("GET {}", reply.get("location").unwrap()), "", b"");
        assert_eq!(back.body, plain, "{coding}");
        let truncated = world.ask("POST /v1/topics/t/events", &fields, &body[..body.len() - 1]);
        assert_eq!(truncated.problem(), "bad-coding", "{coding}");
    }
    let last = world.store.topic("t").unwrap().last;
    let bomb = gzip(&vec![0; 32 << 20]);
    let reply = world.ask("POST /v1/topics/t/events", "Content-Encoding: gzip", &bomb);
    assert!(
        matches!(reply.problem().as_str(), "ratio" | "too-large"),
        "{reply:?}"
    );
    let reply = world.ask("POST /v1/topics/t/events", "Content-Encoding: br", b"x");
    assert_eq!(
        (reply.status, reply.get("accept-encoding")),
        (415, Some("zstd, gzip, deflate"))
    );
    let reply = world.ask(
        "POST /v1/topics/t/events",
        "Content-Encoding: gzip, gzip, gzip",
        b"x",
    );
    assert_eq!(reply.status, 415);
    assert_eq!(
        world.store.topic("t").unwrap().last,
        last,
        "nothing is stored"
    );
}

#[test]
fn responses_are_compressed_on_request() {
    let world = world();
    let plain = format!("\"{}\"", "abc".repeat(3000));
    assert_eq!(
        world
            .ask(
                "PUT /v1/topics/t/keys/k",
                "Content-Type: application/json",
                plain.as_bytes()
            )
            .status,
        201
    );
    for coding in ["gzip", "deflate", "zstd"] {
        let reply = world.ask(
            "GET /v1/topics/t/keys/k",
            &format!("Accept-Encoding: {coding}"),
            b"",
        );
        assert_eq!(reply.get("content-encoding"), Some(coding));
        assert_eq!(reply.get("etag"), Some(format!("\"k2-{coding}\"").as_str()));
        let mut text = String::new();
        let mut bytes = reply.body.as_slice();
        match coding {
            "gzip" => {
                std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(bytes), &mut text)
                    .unwrap()
            }
            "deflate" => {
                std::io::Read::read_to_string(&mut flate2::read::ZlibDecoder::new(bytes), &mut text)
                    .unwrap()
            }
            _ => std::io::Read::read_to_string(
                &mut zstd::Decoder::new(&mut bytes).unwrap(),
                &mut text,
            )
            .unwrap(),
        };
        assert_eq!(text, plain);
        // A condition may use the tag of the compressed form.
        let fields = format!(
            "If-Match: {}\nContent-Type: application/json",
            reply.get("etag").unwrap()
        );
        let unchanged = world.ask(
            "GET /v1/topics/t/keys/k",
            &format!("If-None-Match: {}", reply.get("etag").unwrap()),
            b"",
        );
        assert_eq!(unchanged.status, 304);
        if coding == "zstd" {
            assert_eq!(
                world.ask("PUT /v1/topics/t/keys/k", &fields, b"1").status,
                204
            );
        }
    }
    let reply = world.ask(
        "GET /v1/topics/t/keys/k",
        "Accept-Encoding: identity;q=0",
        b"",
    );
    assert_eq!(reply.status, 406);
}

#[test]
fn a_write_without_an_acceptable_coding_is_refused_before_it_is_executed() {
    let world = world();
    let transaction = br#"{"operations":[{"op":"put","key":"a","value":1}]}"#;
    for (line, fields, body) in [
        ("POST /v1/topics/t/transactions", "", &transaction[..]),
        (
            "POST /v1/topics/t/events",
            "Content-Type: application/x-ndjson",
            b"1\n2\n",
        ),
        ("POST /v1/topics/t/events", "", b"1"),
        ("PUT /v1/topics/other", "", b""),
    ] {
        let fields = format!("Accept-Encoding: identity;q=0\n{fields}");
        let reply = world.ask(line, &fields, body);
        assert_eq!(
            (reply.status, &*reply.problem()),
            (406, "not-acceptable"),
            "{line}"
        );
    }
    assert_eq!(world.store.topic("t").unwrap().last.0, 1);
    assert!(world.store.topic("other").is_none());
}

#[test]
fn large_payloads_are_returned_unchanged() {
    let world = world();
    let bytes: Vec<u8> = (0..900_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let reply = world.ask(
        "POST /v1/topics/t/events",
        "Content-Type: application/octet-stream",
        &bytes,
    );
    assert_eq!(reply.status, 201);
    let back = world.ask("GET /v1/topics/t/events/2", "", b"");
    assert_eq!(back.get("content-type"), Some("application/octet-stream"));
    assert!(back.body == bytes);
    let part = world.ask("GET /v1/topics/t/events/2", "Range: bytes=10-19", b"");
    assert_eq!((part.status, part.body.as_slice()), (206, &bytes[10..20]));
    assert_eq!(part.get("content-range"), Some("bytes 10-19/900000"));
    for range in ["bytes=10-19", "bytes=900000-"] {
        let head = world.ask(
            "HEAD /v1/topics/t/events/2",
            &format!("Range: {range}"),
            b"",
        );
        let length = head.get("content-length");
        assert_eq!((head.status, length), (200, Some("900000")), "{range}");
    }
}

#[test]
fn a_batch_reports_the_position_of_the_item_that_the_store_refuses() {
    let world = world();
    let items = [
        "{\"key\":\"a\",\"value\":1}".to_owned(),
        format!("{{\"key\":\"{}\",\"value\":2}}", "k".repeat(2000)),
        "{\"key\":\"c\",\"value\":3}".to_owned(),
    ];
    // The cursor reads a compressed batch, the stream every other one.
    let plain = items.join("\n").into_bytes();
    let coded = zstd::encode_all(&plain[..], 1).unwrap();
    for (coding, body) in [("identity", plain), ("zstd", coded)] {
        let reply = world.ask(
            "POST /v1/topics/t/events?mode=records",
            &format!("Content-Type: application/x-ndjson\nContent-Encoding: {coding}"),
            &body,
        );
        let json = reply.json();
        assert_eq!(
            (&json["line"], &json["byte"], &json["done"]["valid"]),
            (&2.into(), &(items[0].len() + 1).into(), &1.into()),
            "{coding}: {json}"
        );
    }
}

#[test]
fn a_batch_is_split_into_log_entries_and_its_items_are_counted() {
    let world = world();
    let lines: String = (0..25_000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    let reply = world.ask(
        "POST /v1/topics/t/events",
        "Content-Type: application/x-ndjson",
        lines.as_bytes(),
    );
    assert_eq!(reply.status, 201, "{reply:?}");
    let json = reply.json();
    assert_eq!(
        (&json["items"], &json["valid"]),
        (&25_000.into(), &25_000.into())
    );
    assert_eq!(world.store.topic("t").unwrap().last.0, 25_001);
    let mut bytes = request(
        "POST /v1/topics/t/events",
        "Content-Type: application/x-ndjson",
        b"1\n2\nnot json\n4\n",
    );
    let mut client = world.client();
    client.send(&bytes);
    let reply = client.reply(false);
    assert_eq!((reply.status, reply.problem().as_str()), (400, "bad-item"));
    let json = reply.json();
    assert_eq!(
        (&json["line"], &json["byte"], &json["done"]["valid"]),
        (&3.into(), &4.into(), &2.into())
    );
    assert_eq!(
        world.store.topic("t").unwrap().last.0,
        25_003,
        "the items before it are stored"
    );
    bytes = request(
        "POST /v1/topics/t/events?atomic=true",
        "Content-Type: application/x-ndjson",
        b"1\n2\nnot json\n",
    );
    let mut client = world.client();
    client.send(&bytes);
    assert_eq!(client.reply(false).status, 400);
    assert_eq!(
        world.store.topic("t").unwrap().last.0,
        25_003,
        "no item is stored"
    );
}

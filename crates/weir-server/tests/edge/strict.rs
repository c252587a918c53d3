//! Malformed requests are refused, and other requests are still served.

use crate::client::Client;
use crate::world::{request, with, world};

/// Maximum size of the header fields of a request, including line ends.
const HEAD_BYTES: usize = 32 << 10;

/// Returns a field that has this many bytes together with `Host: localhost`.
fn fields(bytes: usize) -> String {
    let host = "Host: localhost\r\n".len();
    format!("a: {}\r\n", "x".repeat(bytes - host - "a: \r\n".len()))
}

#[test]
fn ambiguous_requests_are_refused() {
    let world = world();
    let get = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n";
    let many_fields: String = (0..200).map(|n| format!("x{n}: y\r\n")).collect();
    let long = "x".repeat(70_000);
    let cases: &[(&str, String, u16)] = &[
        ("both lengths", format!("{get}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc"), 400),
        ("two lengths", format!("{get}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc"), 400),
        ("equal lengths", format!("{get}Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"), 400),
        ("signed length", format!("{get}Content-Length: +3\r\n\r\nabc"), 400),
        ("list of lengths", format!("{get}Content-Length: 3, 3\r\n\r\nabc"), 400),
        ("coding", format!("{get}Transfer-Encoding: gzip\r\n\r\n"), 501),
        ("chunked in 1.0", "GET /healthz HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), 400),
        ("no host", "GET /healthz HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("two hosts", format!("{get}Host: localhost\r\n\r\n"), 400),
        ("space before colon", format!("{get}a : b\r\n\r\n"), 400),
        ("folded", format!("{get}a: b\r\n c\r\n\r\n"), 400),
        ("bare LF", "GET /healthz HTTP/1.1\nHost: localhost\n\n".to_owned(), 400),
        ("NUL", format!("{get}a: b\0\r\n\r\n"), 400),
        ("blank lines", format!("\r\n\r\n{get}\r\n"), 200),
        ("200 fields", format!("{get}{many_fields}\r\n"), 431),
        ("long field", format!("{get}a: {long}\r\n\r\n"), 431),
        ("long target", format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"), 414),
        ("expectation", format!("{get}Expect: the-unexpected\r\n\r\n"), 417),
        ("version", "GET /healthz HTTP/3.0\r\nHost: localhost\r\n\r\n".to_owned(), 505),
        ("garbage", "\u{1}\u{2}\u{3}\r\n\r\n".to_owned(), 400),
        ("TLS", "\u{16}\u{3}\u{1}\n".to_owned(), 400),
        ("chunk size", "POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n".to_owned(), 400),
        ("trailer", "POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\n1\r\n0\r\nc: d\r\n\r\n".to_owned(), 201),
        ("foreign host", "GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), 421),
        ("method", "BREW /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405),
        ("connect", "CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 404),
        ("options", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 204),
        ("1.0", "GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n".to_owned(), 200),
        ("1.0 without host", "GET /healthz HTTP/1.0\r\n\r\n".to_owned(), 400),
        ("1.0 without host, absolute", "GET http://localhost/healthz HTTP/1.0\r\n\r\n".to_owned(), 400),
        ("absolute", "GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 200),
        ("absolute, foreign", "GET http://evil.example/healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), 421),
        ("absolute, foreign target", "GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("absolute, foreign field", "GET http://localhost/healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), 400),
        ("32 KiB of fields", format!("{get}{}\r\n", fields(HEAD_BYTES - 2)), 200),
        ("more than 32 KiB of fields", format!("{get}{}\r\n", fields(HEAD_BYTES - 1)), 431),
        ("chunk size and a space", "POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1 \r\n1\r\n0\r\n\r\n".to_owned(), 400),
    ];
    for (name, bytes, status) in cases {
        // A valid request before it still gets its response.
        let mut client = world.client();
        let mut all = request("GET /healthz", "", b"");
        all.extend_from_slice(bytes.as_bytes());
        client.send_cut(&all, std::iter::once(all.len() / 2));
        assert_eq!(client.reply(false).body, b"ok\n", "{name}");
        let reply = client.reply(false);
        assert_eq!(reply.status, *status, "{name}: {reply:?}");
        if *status >= 400 {
            assert_eq!(
                reply.get("content-type"),
                Some("application/problem+json"),
                "{name}"
            );
            assert_eq!(reply.json()["status"], *status, "{name}");
        }
        if matches!(status, 400 | 414 | 431 | 501 | 505) {
            assert_eq!(reply.get("connection"), Some("close"), "{name}");
            assert!(client.is_closed(), "{name}");
        }
    }
}

#[test]
fn parameters_and_bodies_are_checked() {
    let world = world();
    for (line, fields, status) in [
        ("GET /v1/topics/t/events?afer=1", "", 400),
        ("GET /v1/topics/t/events?limit=1&limit=2", "", 400),
        ("GET /v1/topics/t/events?limit=10x", "", 400),
        ("GET /v1/topics/t/events?limit=0", "", 400),
        ("GET /v1/topics/t/events?limit=10001", "", 400),
        ("GET /v1/topics/t/events?after=01", "", 400),
        ("GET /v1/topics/t/events?after=%31", "", 200),
        ("GET /v1/topics/t/events", "Accept: image/png", 406),
        ("GET /v1/topics/nope/events", "", 404),
        ("GET /v1/topics/t/events/99", "", 404),
        ("GET /v1/topics/t/keys/x", "", 404),
        ("GET /v1/topics/.weir", "", 404),
        ("PUT /v1/topics/.weir", "", 400),
        ("POST /v1/topics/.weir/events", "", 400),
        ("GET /v1/topics/t/events?consistency=weak", "", 400),
        ("GET /v1/topics/t/events?consistency=weak&live=sse", "", 400),
        ("GET /v1/topics/t/events/1?consistency=weak", "", 400),
        ("GET /v1/topics/t/keys/x?consistency=weak", "", 400),
        ("GET /v1/topics?consistency=weak", "", 400),
        ("GET /v1/topics?consistency=linear", "", 200),
        ("GET /v1/topics/t?consistency=weak", "", 400),
        ("GET /v1/topics/t?consistency=leader", "", 200),
        ("GET /v1/topics/t/program?consistency=weak", "", 400),
        ("GET /v1/topics/t/groups?consistency=weak", "", 400),
        ("GET /v1/topics/t/groups?consistency=linear", "", 200),
        ("GET /v1/topics/t/groups/g?consistency=weak", "", 400),
        (
            "POST /v1/topics/t/groups/g/claim?member=m&consistency=weak",
            "",
            400,
        ),
        ("GET /v1/topics/t/keys/x?at-least=99&wait=0", "", 504),
        ("GET /v1/topics/t/keys?wait=x", "", 400),
        ("GET /v1/topics/t/keys?limit=10001", "", 400),
        ("GET /v1/topics?limit=1001", "", 400),
        ("DELETE /v1/topics/t/events", "", 405),
        ("GET /v2", "", 404),
    ] {
        let reply = world.ask(line, fields, b"");
        assert_eq!(reply.status, status, "{line}: {reply:?}");
    }
    // The link to the next page has the consistency of the request.
    for n in 0..2 {
        world.ask(&format!("PUT /v1/topics/t{n}"), "", b"");
        world.ask(&format!("PUT /v1/topics/t/keys/k{n}"), "", b"1");
        world.ask(&format!("PUT /v1/topics/t/groups/g{n}"), "", b"");
    }
    for path in [
        "/v1/topics",
        "/v1/topics/t/events",
        "/v1/topics/t/keys",
        "/v1/topics/t/groups",
    ] {
        let reply = world.ask(&format!("GET {path}?limit=1&consistency=linear"), "", b"");
        let link = reply.get("link").unwrap();
        assert!(link.contains("consistency=linear"), "{path}: {link}");
    }
    let reply = world.ask(
        "POST /v1/topics/t/events",
        "Content-Type: application/json",
        b"{\"a\":1,}",
    );
    assert_eq!(
        (reply.status, reply.problem().as_str()),
        (422, "invalid-payload")
    );
    assert_eq!(reply.json()["byte"], 7);
    let reply = world.ask("POST /v1/topics/nope/events", "", b"1");
    assert_eq!(reply.status, 404);
    assert!(
        reply.get("weir-intention").is_some(),
        "a verdict has a position in the log"
    );
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let world = world();
    let mut client = world.client();
    let mut bytes = Vec::new();
    for n in 0..200 {
        let line = if n % 3 == 0 {
            "GET /v1/topics/t/events?limit=1".to_owned()
        } else {
            "POST /v1/topics/t/events".to_owned()
        };
        let trace = format!("traceparent: 00-{n:032x}-00f067aa0ba902b7-01");
        bytes.extend_from_slice(&request(
            &line,
            if n == 0 { "" } else { &trace },
            if n % 3 == 0 { b"" } else { b"1" },
        ));
    }
    client.send(&bytes);
    for n in 0..200 {
        let reply = client.reply(false);
        assert_eq!(reply.status, if n % 3 == 0 { 200 } else { 201 });
        if n > 0 {
            assert_eq!(
                reply.get("weir-request-id"),
                Some(format!("{n:032x}").as_str()),
                "in order"
            );
        }
    }
    assert_eq!(world.store.topic("t").unwrap().last.0, 134);
}

#[test]
fn a_half_closed_client_gets_its_responses() {
    let world = world();
    let mut client = world.client();
    client.send(&request("POST /v1/topics/t/events", "", b"1"));
    client.send(&request("GET /v1/topics/t/events/2", "", b""));
    client.close_write();
    assert_eq!(client.reply(false).status, 201);
    assert_eq!(client.reply(false).body, b"1");
    assert!(client.is_closed());
    // A client that closes its side within a head gets no response.
    let mut client = world.client();
    client.send(b"POST /v1/topics/t/events HTTP/1.1\r\nHost: local");
    client.close_write();
    assert!(client.is_closed());
    let mut client = world.client();
    client.send(
        b"POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n123",
    );
    client.close_write();
    assert_eq!(client.reply(false).status, 400);
    assert_eq!(
        world.store.topic("t").unwrap().last.0,
        2,
        "an incomplete body stores no record"
    );
}

#[test]
fn slow_clients_are_disconnected() {
    let world = with(&[
        ("head_timeout", "2s"),
        ("idle_timeout", "2s"),
        ("body_timeout", "1s"),
        ("body_rate_after", "2s"),
    ]);
    assert_eq!(world.ask("PUT /v1/topics/t", "", b"").status, 201);
    let head =
        b"POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n";
    // The clients wait at the same time, so that the limits can be long.
    let clients: [fn(Client, &[u8]); 7] = [
        // A silent client gets no response.
        |mut client, _| assert!(client.is_closed()),
        |mut client, _| {
            client.send(&request("GET /healthz", "", b""));
            assert_eq!(client.reply(false).status, 200);
            assert!(client.is_closed(), "idle after a request");
        },
        // Half a head, and a head that arrives byte by byte.
        |mut client, _| {
            client.send(b"GET /healthz HTTP/1.1\r\nHost: local");
            assert_eq!(client.reply(false).status, 408);
            assert!(client.is_closed());
        },
        |mut client, _| {
            let first = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nx: ";
            send_slowly(&mut client, first);
            assert_eq!(client.reply(false).status, 408);
        },
        // The first bytes of HTTP/2, one by one.
        |mut client, _| {
            let pause = std::time::Duration::from_millis(150);
            for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" {
                client.stream.set_read_timeout(Some(pause)).unwrap();
                drop(std::io::Read::read(&mut client.stream, &mut [0]));
                // The server may have closed the connection already.
                drop(std::io::Write::write(&mut client.stream, &[*byte]));
            }
            let wait = Some(crate::client::TEST_TIMEOUT);
            client.stream.set_read_timeout(wait).unwrap();
            assert!(client.is_closed());
        },
        // Half a body, and a body that arrives byte by byte.
        |mut client, head| {
            client.send(head);
            client.send(b"123");
            assert_eq!(client.reply(false).status, 408);
        },
        |mut client, head| {
            send_slowly(&mut client, head);
            assert_eq!(client.reply(false).status, 408);
            assert!(client.is_closed());
        },
    ];
    std::thread::scope(|threads| {
        for run in clients {
            let client = world.client();
            threads.spawn(move || run(client, head));
        }
    });
    assert_eq!(world.store.topic("t").unwrap().last.0, 1);
    let metrics = world.ask("GET /metrics", "", b"");
    assert!(
        metrics
            .text()
            .contains("weir_http_timeouts_total{kind=\"body\"} 2")
    );
}

/// Sends a byte every 20 ms until the server responds.
fn send_slowly(client: &mut Client, first: &[u8]) {
    client.send(first);
    let pause = std::time::Duration::from_millis(20);
    client.stream.set_read_timeout(Some(pause)).unwrap();
    let end = std::time::Instant::now() + crate::client::TEST_TIMEOUT;
    loop {
        assert!(std::time::Instant::now() < end, "no response arrived");
        let mut piece = [0; 4096];
        match std::io::Read::read(&mut client.stream, &mut piece) {
            Ok(got) => {
                client.buffer.extend_from_slice(&piece[..got]);
                client
                    .stream
                    .set_read_timeout(Some(crate::client::TEST_TIMEOUT))
                    .unwrap();
                return;
            }
            Err(_) => drop(std::io::Write::write(&mut client.stream, b"x")),
        }
    }
}

#[test]
fn the_number_of_connections_per_address_is_limited() {
    let world = with(&[("connections_per_address_max", "3")]);
    let mut clients: Vec<Client> = (0..3).map(|_| world.client()).collect();
    for client in &mut clients {
        client.send(&request("GET /healthz", "", b""));
        assert_eq!(client.reply(false).status, 200);
    }
    assert!(world.client().is_closed());
    drop(clients);
    // The server releases slots when it detects that connections have closed.
    let end = std::time::Instant::now() + crate::client::TEST_TIMEOUT;
    loop {
        let mut client = world.client();
        drop(std::io::Write::write(
            &mut client.stream,
            &request("GET /healthz", "", b""),
        ));
        if client.fill() {
            break;
        }
        assert!(std::time::Instant::now() < end);
    }
}

#[test]
fn a_public_address_without_protection_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = std::sync::Arc::new(
        weir_store::Store::open(directory.path(), &crate::world::options()).unwrap(),
    );
    let mut config = weir_server::ServerConfig::default();
    config.http = "0.0.0.0:0".parse().ok();
    let refused = weir_server::Server::start(config, store);
    assert!(matches!(
        refused,
        Err(weir_server::ServerError::Exposed { .. })
    ));
}

/// A cache keeps responses for pages of allowed origins apart from other responses.
#[test]
fn responses_vary_by_origin_if_an_origin_is_allowed() {
    let allows = with(&[("cors_origins", "https://a.example")]);
    for (server, varies) in [(world(), false), (allows, true)] {
        let reply = server.ask("GET /v1/topics/t/events", "", b"");
        let is_vary = |(name, value): &(String, String)| name == "vary" && value == "origin";
        assert_eq!(reply.fields.iter().any(is_vary), varies, "{reply:?}");
    }
}

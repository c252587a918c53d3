//! Clients that try to take more than their share of memory.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use weir_core::{Intention, Operation};

use crate::client::{Client, PATIENCE};
use crate::world::{World, large, request};

/// Enough that 256 MiB are not enough for all of them.
const MANY: usize = 20;
const VALUE_BYTES: usize = 16 << 20;

/// So that no other deadline is in play.
const PATIENT: [(&str, &str); 3] = [
    ("body_timeout", "10m"),
    ("write_timeout", "10m"),
    ("idle_timeout", "10m"),
];

fn made(settings: &[(&str, &str)]) -> World {
    let all: Vec<_> = PATIENT.iter().chain(settings).copied().collect();
    let world = large(&all);
    assert_eq!(world.ask("PUT /v1/topics/t", "", b"").status, 201);
    world
}

fn with_value(settings: &[(&str, &str)]) -> World {
    let world = made(settings);
    let (key, value) = (&b"large"[..], &vec![b'x'; VALUE_BYTES][..]);
    let put = Intention::new("t", Operation::Put { key, value });
    world.store.propose(&[put]).unwrap().wait().unwrap();
    world
}

/// The status of an answer of which no more is taken than that.
fn status(stream: &TcpStream) -> String {
    let mut head = [0; 12];
    while stream.peek(&mut head).unwrap() < head.len() {
        std::thread::yield_now();
    }
    String::from_utf8(head[9..].to_vec()).unwrap()
}

#[test]
fn bodies_that_do_not_come_to_an_end_are_bounded() {
    let world = made(&[("body_rate_after", "10m")]);
    let head = format!(
        "POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: {VALUE_BYTES}\r\n\r\n"
    );
    let most = vec![b'x'; VALUE_BYTES - 1];
    let mut clients: Vec<Client> = (0..MANY).map(|_| world.client()).collect();
    std::thread::scope(|scope| {
        for client in &mut clients {
            let (head, most) = (&head, &most);
            scope.spawn(move || {
                // One that is refused may be cut while it still sends.
                let _ = client.stream.write_all(head.as_bytes());
                let _ = client.stream.write_all(most);
            });
        }
    });
    // Who wants little is served meanwhile.
    let small = world.ask("POST /v1/topics/t/events", "", b"1");
    assert_eq!(small.status, 201);
    // The budget is for sixteen of them; others are told to come again.
    let end = Instant::now() + PATIENCE;
    let mut refused = 0;
    while refused < MANY - 16 {
        assert!(Instant::now() < end, "{refused} were told to come again");
        refused = 0;
        for client in &clients {
            client.stream.set_nonblocking(true).unwrap();
            refused += usize::from(client.stream.peek(&mut [0]).is_ok());
            client.stream.set_nonblocking(false).unwrap();
        }
        std::thread::yield_now();
    }
    let told = clients.iter_mut().filter_map(|client| {
        client.stream.set_nonblocking(true).unwrap();
        let there = client.stream.peek(&mut [0]).is_ok();
        client.stream.set_nonblocking(false).unwrap();
        there.then(|| client.reply(false))
    });
    for reply in told {
        assert_eq!((reply.status, &*reply.problem()), (503, "busy"));
        assert!(reply.get("retry-after").is_some());
    }
}

#[test]
fn answers_that_nobody_takes_are_bounded() {
    let world = with_value(&[("body_rate_after", "10m")]);
    let mut clients: Vec<Client> = (0..MANY).map(|_| world.client()).collect();
    for client in &mut clients {
        client.send(&request("GET /v1/topics/t/keys/large", "", b""));
    }
    let mut full = Vec::new();
    for mut client in clients {
        match &*status(&client.stream) {
            "200" => full.push(client),
            "503" => assert_eq!(client.reply(false).problem(), "busy"),
            other => panic!("{other}"),
        }
    }
    assert!(full.len() <= 16, "{} of 16 MiB", full.len());
    assert_eq!(world.ask("GET /healthz", "", b"").status, 200);
    // They take theirs, and then there is room again.
    for client in &mut full {
        assert_eq!(client.reply(false).body.len(), VALUE_BYTES);
    }
    let again = world.ask("GET /v1/topics/t/keys/large", "", b"");
    assert_eq!((again.status, again.body.len()), (200, VALUE_BYTES));
}

/// A page ends where there is no room for more of it, and says where.
#[test]
fn a_page_takes_no_more_room_than_there_is_while_it_is_made() {
    const RECORDS: usize = 30;
    let world = with_value(&[("body_rate_after", "10m")]);
    assert_eq!(world.ask("PUT /v1/topics/s", "", b"").status, 201);
    let text = format!("\"{}\"", "y".repeat(50_000));
    let value = text.as_bytes();
    for n in 0..RECORDS {
        let key = format!("{n:03}");
        let key = key.as_bytes();
        let put = Operation::Put { key, value };
        let sent = world.store.propose(&[Intention::new("s", put)]);
        sent.unwrap().wait().unwrap();
    }
    let mut clients: Vec<Client> = (0..16).map(|_| world.client()).collect();
    for client in &mut clients {
        client.send(&request("GET /v1/topics/t/keys/large", "", b""));
    }
    for client in &clients {
        assert_eq!(status(&client.stream), "200");
    }
    for target in [
        "/v1/topics/s/events?max-bytes=16777216",
        "/v1/topics/s/events?max-bytes=16777216&order=desc",
        "/v1/topics/s/keys?values=true",
    ] {
        let page = world.ask(&format!("GET {target}"), "", b"");
        assert_eq!(page.status, 200, "{target}: {}", page.text());
        let count: usize = page.get("weir-count").unwrap().parse().unwrap();
        assert!((1..10).contains(&count), "{target}: {count}");
        assert!(
            page.get("link").unwrap().contains("rel=\"next\""),
            "{target}"
        );
    }
    for client in &mut clients {
        assert_eq!(client.reply(false).body.len(), VALUE_BYTES);
    }
    let page = world.ask("GET /v1/topics/s/events?max-bytes=16777216", "", b"");
    let count: usize = page.get("weir-count").unwrap().parse().unwrap();
    assert_eq!(count, RECORDS + 1, "CREATE as well");
}

#[test]
fn who_trickles_a_large_body_is_cut() {
    // From its first byte that is not small on, 64 KiB a second are due.
    let world = made(&[("body_rate_after", "0s")]);
    let mut client = world.client();
    client.send(
        b"POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n",
    );
    client.send(&vec![b'x'; 300_000]);
    assert_eq!(client.reply(false).status, 408);
}

#[test]
fn who_does_not_take_a_large_answer_is_cut() {
    let rate = [("body_rate_after", "0s"), ("body_rate_min", "1GiB")];
    let world = with_value(&rate);
    let mut client = world.client();
    client.send(&request("GET /v1/topics/t/keys/large", "", b""));
    // Nothing of it is taken, and the server reads nothing meanwhile: this ends
    // when it has cut the connection.
    let end = Instant::now() + PATIENCE;
    let error = loop {
        assert!(Instant::now() < end, "it waits for ever");
        if let Err(error) = client.stream.write_all(b"x") {
            break error;
        }
    };
    let cut = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    assert!(cut.contains(&error.kind()), "{error}");
}

#[test]
fn who_takes_nothing_at_all_is_cut() {
    let world = large(&[("write_timeout", "200ms")]);
    assert_eq!(world.ask("PUT /v1/topics/t", "", b"").status, 201);
    let value = vec![b'x'; 200_000];
    let put = world.ask("PUT /v1/topics/t/keys/k", "", &value);
    assert_eq!(put.status, 201);
    let mut client = world.client();
    // Each answer is a small one; all of them fill every buffer on the way.
    let get = request("GET /v1/topics/t/keys/k", "", b"").repeat(60);
    client.send(&get);
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "it waits for ever");
        let page = world.ask("GET /metrics", "", b"");
        if page
            .text()
            .contains("weir_http_timeouts_total{kind=\"write\"} 1\n")
        {
            break;
        }
    }
    let mut rest = Vec::new();
    // The end may be a reset.
    let _ = client.stream.read_to_end(&mut rest);
    assert!(rest.len() < 60 * value.len());
}

#[test]
fn an_item_costs_no_more_than_itself_however_many_there_are() {
    let world = large(&[]);
    assert_eq!(world.ask("PUT /v1/topics/t", "", b"").status, 201);
    // As a whole they would be many more than a transaction may have.
    let body = b"1\n".repeat(2_000_000);
    let line = "POST /v1/topics/t/events?atomic=true";
    let reply = world.ask(line, "Content-Type: application/x-ndjson", &body);
    assert_eq!(reply.status, 413, "{}", reply.text());
}

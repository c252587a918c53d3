//! Clients that request more than their share of memory.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_core::{Intention, Operation, TopicOptions};

use crate::client::{Client, TEST_TIMEOUT};
use crate::world::{World, large, request};

/// Enough clients to exceed a budget of 256 MiB.
const MANY: usize = 20;
const VALUE_BYTES: usize = 16 << 20;

/// Long timeouts, so that only the limit of a test applies.
const LONG_TIMEOUTS: [(&str, &str); 3] = [
    ("body_timeout", "10m"),
    ("write_timeout", "10m"),
    ("idle_timeout", "10m"),
];

fn with_topic(settings: &[(&str, &str)]) -> World {
    let all: Vec<_> = LONG_TIMEOUTS.iter().chain(settings).copied().collect();
    let world = large(&all);
    assert_eq!(world.ask("PUT /v1/topics/t", "", b"").status, 201);
    world
}

fn with_value(settings: &[(&str, &str)]) -> World {
    let world = with_topic(settings);
    let (key, value) = (&b"large"[..], &vec![b'x'; VALUE_BYTES][..]);
    let put = Intention::new("t", Operation::Put { key, value });
    world.store.propose(&[put]).unwrap().wait().unwrap();
    world
}

/// Reads only the status of a response.
fn status(stream: &TcpStream) -> String {
    let mut head = [0; 12];
    while stream.peek(&mut head).unwrap() < head.len() {
        std::thread::yield_now();
    }
    String::from_utf8(head[9..].to_vec()).unwrap()
}

#[test]
fn unfinished_request_bodies_are_bounded() {
    let world = with_topic(&[("body_rate_after", "10m")]);
    let head = format!(
        "POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: {VALUE_BYTES}\r\n\r\n"
    );
    let partial = vec![b'x'; VALUE_BYTES - 1];
    let mut clients: Vec<Client> = (0..MANY).map(|_| world.client()).collect();
    std::thread::scope(|scope| {
        for client in &mut clients {
            let (head, partial) = (&head, &partial);
            scope.spawn(move || {
                // The server may close the connection of a refused request while the client sends.
                let _ = client.stream.write_all(head.as_bytes());
                let _ = client.stream.write_all(partial);
            });
        }
    });
    // A small request is served meanwhile.
    let small = world.ask("POST /v1/topics/t/events", "", b"1");
    assert_eq!(small.status, 201);
    // The budget covers sixteen of these bodies; the others are refused with a time to retry.
    let end = Instant::now() + TEST_TIMEOUT;
    let mut refused = 0;
    while refused < MANY - 16 {
        assert!(Instant::now() < end, "{refused} were refused");
        refused = 0;
        for client in &clients {
            client.stream.set_nonblocking(true).unwrap();
            refused += usize::from(client.stream.peek(&mut [0]).is_ok());
            client.stream.set_nonblocking(false).unwrap();
        }
        std::thread::yield_now();
    }
    let replies = clients.iter_mut().filter_map(|client| {
        client.stream.set_nonblocking(true).unwrap();
        let has_reply = client.stream.peek(&mut [0]).is_ok();
        client.stream.set_nonblocking(false).unwrap();
        has_reply.then(|| client.reply(false))
    });
    for reply in replies {
        let json = reply.json();
        let text = json["detail"].as_str().unwrap_or_default();
        assert!(text.contains("bodies_budget"), "{text}");
        assert!(json["limit"].is_u64(), "{json}");
        assert_eq!((reply.status, &*reply.problem()), (503, "busy"));
        assert!(reply.get("retry-after").is_some());
    }
}

#[test]
fn unread_responses_are_bounded() {
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
    // After the clients have read their responses, the memory is free again.
    for client in &mut full {
        assert_eq!(client.reply(false).body.len(), VALUE_BYTES);
    }
    let again = world.ask("GET /v1/topics/t/keys/large", "", b"");
    assert_eq!((again.status, again.body.len()), (200, VALUE_BYTES));
}

/// A page ends when memory runs out, and has a link to the next page.
#[test]
fn a_page_ends_when_the_response_budget_is_used_up() {
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
    assert_eq!(count, RECORDS + 1, "with CREATE");
}

#[test]
fn the_outcome_of_a_batch_is_sent_without_runs_when_the_response_budget_is_used_up() {
    const ITEMS: usize = 2000;
    let world = with_value(&[
        ("body_rate_after", "10m"),
        ("memory_max", "256MiB"),
        ("answers_budget", "16MiB"),
    ]);
    let mut client = world.client();
    client.send(&request("GET /v1/topics/t/keys/large", "", b""));
    assert_eq!(status(&client.stream), "200");
    // Every second item is refused, so that the response lists a run for each item.
    let pair = "{\"key\":\"a\",\"value\":1}\n{\"key\":\"a\",\"value\":1,\"expect\":{\"key-absent\":true}}\n";
    let body = pair.repeat(ITEMS / 2);
    let post = |body: &str| {
        let fields = "Content-Type: application/x-ndjson";
        let line = "POST /v1/topics/t/events?mode=records";
        world.ask(line, fields, body.as_bytes())
    };
    let has_runs = |outcomes: &Value| {
        assert_eq!(outcomes["items"], ITEMS);
        assert_eq!(outcomes["valid"], ITEMS / 2);
        let runs = outcomes["runs"].as_array().unwrap().len();
        let left_out = outcomes.get("runs_left_out").and_then(Value::as_u64);
        assert_eq!(runs + left_out.unwrap_or_default() as usize, ITEMS);
        runs > 0
    };
    let reply = post(&body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(!has_runs(&reply.json()));
    // Also if a later item is malformed.
    let malformed = body.clone() + "x\n";
    let failed = post(&malformed);
    assert_eq!(failed.status, 400, "{}", failed.text());
    assert!(!has_runs(&failed.json()["done"]));
    assert_eq!(client.reply(false).body.len(), VALUE_BYTES);
    // The server frees the memory after it has sent the last bytes.
    let end = Instant::now() + TEST_TIMEOUT;
    while !has_runs(&post(&body).json()) {
        assert!(Instant::now() < end, "the memory is not free again");
    }
    assert!(has_runs(&post(&malformed).json()["done"]));
}

#[test]
fn a_client_that_sends_a_large_body_too_slowly_is_disconnected() {
    // Above the small size, the client must send at least 64 KiB per second.
    let world = with_topic(&[("body_rate_after", "0s")]);
    let mut client = world.client();
    client.send(
        b"POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n",
    );
    client.send(&vec![b'x'; 300_000]);
    assert_eq!(client.reply(false).status, 408);
}

#[test]
fn small_items_that_are_not_written_yet_use_the_budget() {
    const ITEMS: usize = 9_000;
    let world = with_topic(&[]);
    let wait = |what: &str, is_reached: &dyn Fn() -> bool| {
        let end = Instant::now() + TEST_TIMEOUT;
        while !is_reached() {
            assert!(Instant::now() < end, "{what}");
        }
    };
    let used = || {
        let status = world.ask("GET /v1/status", "", b"").json();
        status["bodies_bytes"].as_u64().unwrap()
    };
    let mut client = world.client();
    client.send(
        b"POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\n\
          Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    let lines = "1\n".repeat(ITEMS);
    client.send(format!("{:x}\r\n{lines}\r\n", lines.len()).as_bytes());
    wait("the items use no memory", &|| used() > 1 << 20);
    // The client is slow, so the items no longer wait for others.
    let first = world.store.topic("t").unwrap().last.0;
    wait("the items are not written", &|| {
        (&client.stream).write_all(b"2\r\n1\n\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(100));
        world.store.topic("t").unwrap().last.0 >= first + ITEMS as u64
    });
    wait("the memory is not free", &|| used() == 0);
    client.send(b"0\r\n\r\n");
    assert_eq!(client.reply(false).status, 201);
}

#[test]
fn a_client_that_does_not_read_a_large_response_is_disconnected() {
    let rate = [("body_rate_after", "0s"), ("body_rate_min", "1GiB")];
    let world = with_value(&rate);
    let mut client = world.client();
    client.send(&request("GET /v1/topics/t/keys/large", "", b""));
    // The client reads nothing, and the server reads nothing meanwhile. This write fails when the
    // server has closed the connection.
    let end = Instant::now() + TEST_TIMEOUT;
    let error = loop {
        assert!(
            Instant::now() < end,
            "the server does not disconnect the client"
        );
        if let Err(error) = client.stream.write_all(b"x") {
            break error;
        }
    };
    let closed = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    assert!(closed.contains(&error.kind()), "{error}");
}

#[test]
fn a_client_that_reads_no_response_is_disconnected() {
    let world = large(&[("write_timeout", "200ms")]);
    assert_eq!(world.ask("PUT /v1/topics/t", "", b"").status, 201);
    let value = vec![b'x'; 200_000];
    let put = world.ask("PUT /v1/topics/t/keys/k", "", &value);
    assert_eq!(put.status, 201);
    let mut client = world.client();
    // Each response is small, but together they fill all buffers on the way.
    let get = request("GET /v1/topics/t/keys/k", "", b"").repeat(60);
    client.send(&get);
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        assert!(
            Instant::now() < end,
            "the server does not disconnect the client"
        );
        let page = world.ask("GET /metrics", "", b"");
        if page
            .text()
            .contains("weir_http_timeouts_total{kind=\"write\"} 1\n")
        {
            break;
        }
    }
    let mut rest = Vec::new();
    // The connection may end with a reset.
    let _ = client.stream.read_to_end(&mut rest);
    assert!(rest.len() < 60 * value.len());
}

#[test]
fn an_atomic_batch_with_too_many_items_is_refused() {
    let world = large(&[]);
    assert_eq!(world.ask("PUT /v1/topics/t", "", b"").status, 201);
    // The body has many more items than a transaction may have.
    let body = b"1\n".repeat(2_000_000);
    let line = "POST /v1/topics/t/events?atomic=true";
    let reply = world.ask(line, "Content-Type: application/x-ndjson", &body);
    assert_eq!(reply.status, 413, "{}", reply.text());
}

#[test]
fn a_list_of_topics_ends_earlier_without_memory() {
    const TOPICS: usize = 100;
    let world = with_value(&[
        ("body_rate_after", "10m"),
        ("memory_max", "256MiB"),
        ("answers_budget", "16MiB"),
    ]);
    let options = TopicOptions::default();
    let names: Vec<String> = (0..TOPICS)
        .map(|number| format!("u{number:0200}"))
        .collect();
    let creates = names.iter().map(|name| {
        let create = Operation::Create { options: &options };
        Intention::new(name, create)
    });
    let creates: Vec<_> = creates.collect();
    world.store.propose(&creates).unwrap().wait().unwrap();
    let mut client = world.client();
    client.send(&request("GET /v1/topics/t/keys/large", "", b""));
    assert_eq!(status(&client.stream), "200");
    let mut target = "/v1/topics?prefix=u".to_owned();
    let (mut pages, mut count) = (0, 0);
    loop {
        let page = world.ask(&format!("GET {target}"), "", b"");
        assert_eq!(page.status, 200, "{}", page.text());
        count += page.json()["topics"].as_array().unwrap().len();
        pages += 1;
        let Some(link) = page.get("link") else { break };
        link.split(['<', '>'])
            .nth(1)
            .unwrap()
            .clone_into(&mut target);
    }
    assert_eq!(count, TOPICS);
    assert!(pages > 1);
}

#[test]
fn a_page_of_long_keys_is_bounded() {
    const KEYS: usize = 1100;
    let world = with_topic(&[]);
    let keys: Vec<String> = (0..KEYS).map(|number| format!("{number:01000}")).collect();
    let puts = keys.iter().map(|key| {
        let (key, value) = (key.as_bytes(), &b"1"[..]);
        Intention::new("t", Operation::Put { key, value })
    });
    let puts: Vec<_> = puts.collect();
    world.store.propose(&puts).unwrap().wait().unwrap();
    // 1049 keys are the first ones that have 1 MiB.
    let page = world.ask("GET /v1/topics/t/keys?limit=10000", "", b"");
    assert_eq!(page.get("weir-count"), Some("1049"));
    let next = page.get("link").unwrap().split(['<', '>']).nth(1).unwrap();
    let rest = world.ask(&format!("GET {next}"), "", b"");
    assert_eq!(rest.get("weir-count"), Some("51"));
    assert_eq!(rest.get("link"), None);
}

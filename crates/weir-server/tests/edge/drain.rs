//! Shutdown under load: acknowledged writes are stored exactly once.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use weir_core::{ConsequenceOffset, Intention, Operation, TopicOptions};
use weir_store::Store;

use crate::client::TEST_TIMEOUT;
use crate::hold::BlockedThread;
use crate::world::{World, options, request, with, world};

/// Posts numbers until the server ends. Returns the bodies that were acknowledged with 201.
fn write(address: std::net::SocketAddr, writer: u64, answered: &AtomicU64) -> Vec<String> {
    let mut acknowledged = Vec::new();
    let mut n = 0;
    while let Ok(mut stream) = TcpStream::connect(address) {
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        loop {
            n += 1;
            let body = format!("{{\"writer\":{writer},\"n\":{n}}}");
            if stream
                .write_all(&request("POST /v1/topics/t/events", "", body.as_bytes()))
                .is_err()
            {
                break;
            }
            let mut reply = Vec::new();
            let mut piece = [0; 1024];
            // The server writes the response at once, and it ends with the line of its object.
            while !reply.ends_with(b"}\n") {
                match stream.read(&mut piece) {
                    Ok(got) if got > 0 => reply.extend_from_slice(&piece[..got]),
                    _ => break,
                }
            }
            if !reply.starts_with(b"HTTP/1.1 201") {
                assert!(reply.is_empty(), "{}", String::from_utf8_lossy(&reply));
                break;
            }
            acknowledged.push(body);
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
    acknowledged
}

#[test]
fn a_drain_neither_loses_nor_duplicates_a_write() {
    let mut world = world();
    let answered = Arc::new(AtomicU64::new(0));
    let address = world.address;
    let writers: Vec<_> = (0..5)
        .map(|writer| {
            let answered = Arc::clone(&answered);
            std::thread::spawn(move || write(address, writer, &answered))
        })
        .collect();
    while answered.load(Ordering::Relaxed) < 500 {
        let failed = writers.iter().any(std::thread::JoinHandle::is_finished);
        assert!(!failed, "a writer failed");
        std::thread::yield_now();
    }
    let server = world.server.take().unwrap();
    server.drain();
    server.wait().unwrap();
    let acknowledged: Vec<String> = writers
        .into_iter()
        .flat_map(|writer| writer.join().unwrap())
        .collect();
    world.store.shut_down().unwrap();
    let store = Store::open(world.directory.path(), &options()).unwrap();
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    let mut reader = store.read("t", ConsequenceOffset::ZERO).unwrap();
    while let Some(page) = reader.next_page().unwrap() {
        for record in &page {
            let text = String::from_utf8(record.unwrap().value.to_vec()).unwrap();
            *found.entry(text).or_default() += 1;
        }
    }
    assert!(acknowledged.len() >= 500);
    for body in &acknowledged {
        assert_eq!(found.get(body), Some(&1), "{body}");
    }
    // During a drain every accepted write gets a response, so the store has no other records than
    // these and CREATE.
    assert_eq!(found.len(), acknowledged.len() + 1);
}

/// Creates the topic, and returns a request with more items than one log entry may have.
fn lines(world: &World) -> Vec<u8> {
    let options = TopicOptions::default();
    let create = Intention::new("t", Operation::Create { options: &options });
    world.store.propose(&[create]).unwrap().wait().unwrap();
    let fields = "Content-Type: application/x-ndjson";
    request("POST /v1/topics/t/events", fields, &b"1\n".repeat(15_000))
}

#[test]
fn a_drain_ends_a_batch_that_waits_for_its_rate() {
    let world = with(&[("rate_requests", "500")]);
    let mut client = world.client();
    client.send(&lines(&world));
    // The first log entry has 10,000 items, the topic also CREATE.
    let end = Instant::now() + TEST_TIMEOUT;
    while world.store.topic("t").unwrap().last.0 < 10_001 {
        assert!(Instant::now() < end, "the first log entry is missing");
    }
    world.server.as_ref().unwrap().drain();
    let reply = client.reply(false);
    assert_eq!((reply.status, &*reply.problem()), (503, "draining"));
    assert_eq!(reply.json()["done"]["valid"], 10_000);
}

#[test]
fn a_batch_does_not_wait_for_its_rate_longer_than_for_the_store() {
    let world = with(&[("rate_requests", "1")]);
    let mut client = world.client();
    client.send(&lines(&world));
    let reply = client.reply(false);
    assert_eq!((reply.status, &*reply.problem()), (429, "rate"));
    assert!(reply.get("retry-after").is_some());
    assert_eq!(reply.json()["done"]["valid"], 10_000);
}

/// Every request that started before the drain gets a response. Only the last response announces
/// that the connection closes, because a client retries all requests after such a response.
#[test]
fn a_drain_answers_every_request_that_has_started() {
    const REQUESTS: u64 = 16;
    let mut world = world();
    let blocked = BlockedThread::new(&world.store, "t");
    let mut client = world.client();
    let mut all = Vec::new();
    for n in 0..REQUESTS {
        let body = format!("{{\"n\":{n}}}");
        all.extend(request("POST /v1/topics/t/events", "", body.as_bytes()));
    }
    client.send(&all);
    // Wait until all requests are in the queue of the store.
    let mut before = 0;
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        assert!(Instant::now() < end, "no request is in the queue");
        let now = world.in_flight_bytes();
        if now > 0 && now == before {
            break;
        }
        before = now;
    }
    let server = world.server.take().unwrap();
    server.drain();
    drop(blocked);
    let mut answered = 0;
    loop {
        let reply = client.reply(false);
        assert_eq!(reply.status, 201);
        answered += 1;
        if reply.get("connection") == Some("close") {
            break;
        }
    }
    assert!(client.is_closed());
    server.wait().unwrap();
    let mut found = 0;
    let mut reader = world.store.read("t", ConsequenceOffset::ZERO).unwrap();
    while let Some(page) = reader.next_page().unwrap() {
        let numbers = page.iter().filter(|record| {
            let value = record.as_ref().unwrap().value;
            value.starts_with(b"{\"n\":")
        });
        found += numbers.count();
    }
    assert_eq!(answered, found, "responses, records");
}

//! Durable Streams beyond the published test suite: restarts, concurrent clients, and access to
//! streams through other APIs.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use weir_core::{ConsequenceOffset, Intention, Operation};

use crate::client::TEST_TIMEOUT;
use crate::world::{World, with, world};

const TEXT: &str = "Content-Type: text/plain";
const JSON: &str = "Content-Type: application/json";

fn producer(id: &str, epoch: u64, seq: u64) -> String {
    format!("{TEXT}\nProducer-Id: {id}\nProducer-Epoch: {epoch}\nProducer-Seq: {seq}")
}

impl World {
    fn create(&self, name: &str, fields: &str, body: &str) -> String {
        let reply = self.ask(&format!("PUT /ds/{name}"), fields, body.as_bytes());
        assert_eq!(reply.status, 201, "{name}: {}", reply.text());
        reply.get("stream-next-offset").unwrap().to_owned()
    }

    fn append(&self, name: &str, fields: &str, body: &str) -> u16 {
        let line = format!("POST /ds/{name}");
        self.ask(&line, fields, body.as_bytes()).status
    }

    fn data(&self, name: &str) -> String {
        let reply = self.ask(&format!("GET /ds/{name}"), "", b"");
        assert_eq!(reply.status, 200, "{name}");
        assert_eq!(reply.get("stream-up-to-date"), Some("true"));
        reply.text().to_owned()
    }

    fn status(&self, name: &str) -> u16 {
        self.ask(&format!("HEAD /ds/{name}"), "", b"").status
    }

    /// Waits until a topic is destroyed.
    fn wait_until_destroyed(&self, topic: &str) {
        let last = || {
            self.store
                .topic_state(topic)
                .map_or(0, |topic| topic.last.0)
        };
        let is_live = || self.store.topic(topic).is_some_and(|topic| topic.live);
        while is_live() {
            let after = ConsequenceOffset(last());
            if is_live() {
                let more = self.store.wait(topic, after, TEST_TIMEOUT).unwrap();
                assert!(more, "{topic} is not destroyed");
            }
        }
    }
}

#[test]
fn a_restart_keeps_all_properties_of_a_stream() {
    let world = with(&[]);
    world.create("a", &format!("{TEXT}\nStream-TTL: 3600"), "one");
    assert_eq!(world.append("a", &producer("p", 3, 0), "two"), 200);
    assert_eq!(
        world.append("a", &format!("{TEXT}\nStream-Seq: m"), "three"),
        204
    );
    let fork = format!("{TEXT}\nStream-Forked-From: /ds/a");
    world.create("fork", &fork, "");
    assert_eq!(world.append("fork", TEXT, "four"), 204);
    let at = "Stream-Expires-At: 2100-01-01T00:00:00Z";
    world.create("closed", &format!("{TEXT}\n{at}"), "x");
    let close = format!("{}\nStream-Closed: true", producer("p", 0, 0));
    assert_eq!(world.append("closed", &close, "y"), 200);
    assert_eq!(world.ask("DELETE /ds/a", "", b"").status, 204);

    let world = world.restarted();
    let head = world.ask("HEAD /ds/closed", "", b"");
    assert_eq!(head.get("stream-closed"), Some("true"));
    assert_eq!(
        head.get("stream-expires-at"),
        Some("2100-01-01T00:00:00.000Z")
    );
    assert_eq!(head.get("content-type"), Some("text/plain"));
    assert_eq!(world.append("closed", TEXT, "z"), 409);
    assert_eq!(world.append("closed", &close, "y"), 204, "sent again");
    assert_eq!(world.data("closed"), "xy");
    assert_eq!(world.status("a"), 410, "a fork reads it");
    assert_eq!(world.data("fork"), "onetwothreefour");
    let head = world.ask("HEAD /ds/fork", "", b"");
    assert_eq!(head.get("stream-ttl"), Some("3600"), "as its source");
    assert_eq!(world.ask("DELETE /ds/fork", "", b"").status, 204);
    assert_eq!(world.status("a"), 404, "no fork reads it any more");
    assert!(world.store.topic("a").is_some_and(|topic| !topic.live));
    world.create("a", TEXT, "new");
    assert_eq!(world.data("a"), "new");
}

#[test]
fn a_refused_body_leaves_no_entry_in_the_registry() {
    let world = world();
    let fields = format!("{JSON}\nStream-TTL: 3600");
    let reply = world.ask("PUT /ds/a", &fields, b"[1,");
    assert_eq!(reply.status, 400, "{}", reply.text());
    assert!(world.store.topic(".weir.ds").is_none());
    world.create("a", &fields, "[1]");
    assert_eq!(world.data("a"), "[1]");
}

#[test]
fn a_repeated_write_reports_the_end_of_the_stream_only_if_it_is_closed() {
    let world = world();
    world.create("a", TEXT, "");
    assert_eq!(world.append("a", &producer("p", 0, 0), "one"), 200);
    let close = |seq| {
        let fields = format!("{}\nStream-Closed: true", producer("p", 0, seq));
        world.ask("POST /ds/a", &fields, b"")
    };
    let reply = close(0);
    assert_eq!((reply.status, reply.get("stream-closed")), (204, None));
    assert_eq!(world.append("a", &producer("p", 0, 1), "two"), 200);
    for _ in 0..2 {
        let reply = close(2);
        let closed = reply.get("stream-closed");
        assert_eq!((reply.status, closed), (204, Some("true")));
    }
    assert_eq!(world.data("a"), "onetwo");
}

#[test]
fn a_restart_keeps_producers_and_their_order() {
    let world = with(&[]);
    world.create("a", TEXT, "");
    assert_eq!(world.append("a", &producer("p", 3, 0), "one"), 200);
    assert_eq!(world.append("a", &producer("p", 3, 1), "two"), 200);
    assert_eq!(
        world.append("a", &format!("{TEXT}\nStream-Seq: m"), "three"),
        204
    );
    let world = world.restarted();
    let reply = world.ask("POST /ds/a", &producer("p", 3, 0), b"one");
    assert_eq!((reply.status, reply.get("producer-seq")), (204, Some("1")));
    let reply = world.ask("POST /ds/a", &producer("p", 3, 5), b"x");
    assert_eq!(
        (reply.status, reply.problem().as_str()),
        (409, "stream-order")
    );
    assert_eq!(reply.get("producer-expected-seq"), Some("2"));
    let reply = world.ask("POST /ds/a", &producer("p", 2, 0), b"x");
    assert_eq!(
        (reply.status, reply.problem().as_str()),
        (403, "stream-epoch")
    );
    assert_eq!(reply.get("producer-epoch"), Some("3"));
    assert_eq!(
        world.append("a", &format!("{TEXT}\nStream-Seq: m"), "x"),
        409
    );
    assert_eq!(
        world.append("a", &format!("{TEXT}\nStream-Seq: l"), "x"),
        409
    );
    assert_eq!(
        world.append("a", &format!("{TEXT}\nStream-Seq: n"), "four"),
        204
    );
    assert_eq!(world.append("a", &producer("p", 4, 0), "five"), 200);
    assert_eq!(world.data("a"), "onetwothreefourfive");
}

#[test]
fn a_server_removes_expired_streams_at_its_start() {
    let world = with(&[]);
    world.create("a", TEXT, "a");
    // The stream expires soon, and no request reads it before the restart.
    let soon = rfc3339_in(Duration::from_millis(1500));
    let fields = format!("{TEXT}\nStream-Forked-From: /a\nStream-Expires-At: {soon}");
    world.create("b", &fields, "b");
    assert_eq!(world.ask("DELETE /ds/a", "", b"").status, 204);
    let world = world.restarted();
    // The server removes the stream without a request, and its source too.
    world.wait_until_destroyed("b");
    world.wait_until_destroyed("a");
    assert_eq!((world.status("a"), world.status("b")), (404, 404));
    // The registry entries of both streams are deleted last.
    let last = || world.store.topic_state(".weir.ds").unwrap().last;
    let entries = || world.store.scan(".weir.ds", b"", None, 10).unwrap();
    let mut seen = last();
    while !entries().is_empty() {
        let more = world.store.wait(".weir.ds", seen, TEST_TIMEOUT).unwrap();
        assert!(more, "{:?}", entries());
        seen = last();
    }
}

/// A time from now, as a header field.
fn rfc3339_in(time: Duration) -> String {
    let now = weir_server::security::now_ms();
    let then = now + u64::try_from(time.as_millis()).unwrap();
    let text = weir_server::security::rfc3339(then);
    text.replace('Z', &format!(".{:03}Z", then % 1000))
}

#[test]
fn an_expired_stream_is_not_found_and_its_name_can_be_used_again() {
    let world = with(&[]);
    world.create("a", &format!("{TEXT}\nStream-TTL: 0"), "old");
    assert_eq!(world.ask("GET /ds/a", "", b"").status, 404);
    assert!(world.store.topic("a").is_some_and(|topic| !topic.live));
    let first = world.create("a", JSON, "[1]");
    assert_eq!(world.data("a"), "[1]");
    assert_eq!(world.ask("DELETE /ds/a", "", b"").status, 204);
    let second = world.create("a", JSON, "[2]");
    assert!(second > first, "positions increase over incarnations");
    let old = world.ask(&format!("GET /ds/a?offset={first}"), "", b"");
    assert_eq!((old.status, old.problem().as_str()), (410, "gone"));
}

#[test]
fn only_one_of_several_writes_with_equal_stream_seq_is_accepted() {
    let world = Arc::new(with(&[]));
    world.create("a", TEXT, "");
    for round in 0..5 {
        let start = Barrier::new(8);
        let (world, start) = (&world, &start);
        let mut statuses: Vec<u16> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..8)
                .map(|writer| {
                    scope.spawn(move || {
                        let fields = format!("{TEXT}\nStream-Seq: {round}");
                        start.wait();
                        world.append("a", &fields, &format!("{round}{writer};"))
                    })
                })
                .collect();
            writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .collect()
        });
        statuses.sort_unstable();
        assert_eq!(statuses, [204, 409, 409, 409, 409, 409, 409, 409]);
        let data = world.data("a");
        let rounds: Vec<&str> = data.split_terminator(';').map(|text| &text[..1]).collect();
        assert_eq!(rounds.len(), round + 1, "{data}");
        assert!(rounds.is_sorted(), "{data}");
    }
}

#[test]
fn each_write_of_a_producer_is_stored_once_if_several_clients_send_it() {
    let world = with(&[]);
    world.create("a", TEXT, "");
    let accepted: usize = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut accepted = 0;
                    for seq in 0..20 {
                        let body = format!("{seq};");
                        // A producer that is ahead of the others may get a gap.
                        let status = loop {
                            let status = world.append("a", &producer("p", 0, seq), &body);
                            if status != 409 {
                                break status;
                            }
                        };
                        assert!(status == 200 || status == 204, "{status}");
                        accepted += usize::from(status == 200);
                    }
                    accepted
                })
            })
            .collect();
        senders
            .into_iter()
            .map(|sender| sender.join().unwrap())
            .sum()
    });
    let wanted: String = (0..20).map(|seq| format!("{seq};")).collect();
    assert_eq!((world.data("a"), accepted), (wanted, 20));
}

#[test]
fn nothing_is_appended_after_a_close() {
    for _ in 0..10 {
        let world = with(&[]);
        world.create("a", TEXT, "");
        let start = Barrier::new(5);
        let (world, start) = (&world, &start);
        let accepted: usize = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(move || {
                        start.wait();
                        (0..20)
                            .filter(|_| world.append("a", TEXT, "x") == 204)
                            .count()
                    })
                })
                .collect();
            start.wait();
            assert_eq!(
                world.append("a", &format!("{TEXT}\nStream-Closed: true"), "!"),
                204
            );
            writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .sum()
        });
        let data = world.data("a");
        assert_eq!(data, format!("{}!", "x".repeat(accepted)));
    }
}

#[test]
fn only_one_of_several_concurrent_requests_creates_a_stream() {
    let world = with(&[]);
    let start = Barrier::new(8);
    let (world, start) = (&world, &start);
    let mut statuses: Vec<u16> = std::thread::scope(|scope| {
        let creators: Vec<_> = (0..8)
            .map(|writer| {
                scope.spawn(move || {
                    let content_type = if writer % 2 == 0 { TEXT } else { JSON };
                    start.wait();
                    let reply = world.ask("PUT /ds/a", content_type, b"1");
                    reply.status
                })
            })
            .collect();
        creators
            .into_iter()
            .map(|creator| creator.join().unwrap())
            .collect()
    });
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 201, 409, 409, 409, 409]);
    let data = world.data("a");
    assert!(data == "1" || data == "[1]", "{data}");
}

#[test]
fn a_stream_is_a_topic_and_a_topic_a_stream() {
    let world = world();
    // A stream through the events API: its data, without its reserved keys.
    world.create("s/a", JSON, "[{\"n\": 1},2]");
    assert_eq!(world.append("s.a", JSON, "3"), 204);
    let page = world
        .ask("GET /v1/topics/s.a/events?type=put&key=", "", b"")
        .json();
    let values: Vec<&serde_json::Value> = page.as_array().unwrap().iter().collect();
    let wanted = [serde_json::json!({"n": 1}), 2.into(), 3.into()];
    assert!(
        values.iter().map(|record| &record["value"]).eq(&wanted),
        "{page}"
    );
    // A write through the events API is data of the stream.
    let line = "POST /v1/topics/s.a/events";
    assert_eq!(
        world
            .ask(line, &format!("{JSON}\nWeir-Key: k"), b"4")
            .status,
        201
    );
    assert_eq!(world.ask(line, TEXT, b"five").status, 201);
    assert_eq!(
        world.ask("DELETE /v1/topics/s.a/keys/k", "", b"").status,
        204
    );
    assert_eq!(world.data("s/a"), "[{\"n\": 1},2,3,4,\"five\"]");
    // A topic of the events API gets its content type from its first record.
    assert_eq!(
        world.append("t", TEXT, "a"),
        204,
        "the topic has no content type yet"
    );
    assert_eq!(world.append("t", JSON, "1"), 409);
    assert_eq!(
        world.ask("HEAD /ds/t", "", b"").get("content-type"),
        Some("text/plain")
    );
    assert_eq!(world.ask("PUT /ds/t", TEXT, b"").status, 200);
    assert_eq!(world.ask("PUT /v1/topics/u", "", b"").status, 201);
    assert_eq!(world.ask("POST /v1/topics/u/events", "", b"{}").status, 201);
    let reply = world.ask("GET /ds/u", "", b"");
    assert_eq!(
        (reply.get("content-type"), reply.text()),
        (Some("application/json"), "[{}]")
    );
    // An empty topic becomes a stream.
    assert_eq!(world.ask("PUT /v1/topics/w", "", b"").status, 201);
    world.create("w", &format!("{TEXT}\nStream-Closed: true"), "all");
    assert_eq!(world.append("w", TEXT, "x"), 409);
    // A fork reports that its source was destroyed through the events API.
    world.create("f", &format!("{TEXT}\nStream-Forked-From: /ds/w"), "");
    assert_eq!(world.ask("DELETE /v1/topics/w", "", b"").status, 200);
    let reply = world.ask("GET /ds/f", "", b"");
    assert_eq!((reply.status, reply.problem().as_str()), (410, "gone"));
}

#[test]
fn requests_over_a_limit_are_refused_and_store_nothing() {
    let world = with(&[]);
    world.create("a", JSON, "");
    let many = format!("[{}1]", "1,".repeat(10_000));
    let reply = world.ask("POST /ds/a", JSON, many.as_bytes());
    assert_eq!((reply.status, reply.problem().as_str()), (413, "too-large"));
    assert_eq!(reply.json()["limit"], 9_996);
    for fields in [
        format!("{JSON}\nStream-Seq: {}", "x".repeat(1025)),
        format!("{JSON}\nStream-Seq:"),
        format!(
            "{JSON}\nProducer-Id: {}\nProducer-Epoch: 0\nProducer-Seq: 0",
            "x".repeat(257)
        ),
        format!("{JSON}\nProducer-Id: x\nProducer-Epoch: 9007199254740992\nProducer-Seq: 0"),
        format!("Content-Type: text/{}", "x".repeat(255)),
    ] {
        assert_eq!(world.append("a", &fields, "1"), 400, "{fields}");
    }
    assert_eq!(world.data("a"), "[]");
    // Bytes have no boundaries, so a body may be larger than a record.
    world.create("b", TEXT, "");
    let large = "x".repeat(3 << 20);
    assert_eq!(world.append("b", TEXT, &large), 204);
    let mut got = String::new();
    let mut at = "-1".to_owned();
    loop {
        let reply = world.ask(&format!("GET /ds/b?offset={at}"), "", b"");
        got.push_str(reply.text());
        reply.get("stream-next-offset").unwrap().clone_into(&mut at);
        if reply.get("stream-up-to-date").is_some() {
            break;
        }
    }
    assert!(got == large, "{} bytes", got.len());
}

#[test]
fn the_number_of_producers_of_a_stream_is_limited() {
    let world = with(&[]);
    world.create("a", TEXT, "");
    let keys: Vec<String> = (0..9_999).map(|n| format!(".ds/producer/{n}")).collect();
    for keys in keys.chunks(5_000) {
        let puts = keys.iter().map(|key| {
            let (key, value) = (key.as_bytes(), b"{\"epoch\":0,\"seq\":0}");
            Intention::new("a", Operation::Put { key, value })
        });
        let puts: Vec<Intention<'_>> = puts.collect();
        world.store.propose(&puts).unwrap().wait().unwrap();
    }
    assert_eq!(world.append("a", &producer("last", 0, 0), "x"), 200);
    let reply = world.ask("POST /ds/a", &producer("more", 0, 0), b"y");
    assert_eq!((reply.status, reply.problem().as_str()), (507, "quota"));
    assert_eq!(
        world.append("a", &producer("7", 0, 1), "z"),
        200,
        "a known producer"
    );
    assert_eq!(world.data("a"), "xz");
    // The stream can still be closed, which adds a key.
    let close = format!("{TEXT}\nStream-Closed: true");
    assert_eq!(world.append("a", &close, "!"), 204);
}

#[test]
fn nested_forks_are_readable_up_to_their_maximum_depth() {
    let world = with(&[]);
    world.create("f0", TEXT, "0");
    for n in 1..70 {
        let fields = format!("{TEXT}\nStream-Forked-From: /ds/f{}", n - 1);
        let reply = world.ask(&format!("PUT /ds/f{n}"), &fields, n.to_string().as_bytes());
        if n >= 64 {
            assert_eq!((reply.status, reply.problem().as_str()), (413, "too-large"));
            break;
        }
        assert_eq!(reply.status, 201, "{n}");
    }
    let wanted: String = (0..64).map(|n| n.to_string()).collect();
    assert_eq!(world.data("f63"), wanted);
    // Reads from a position within the parts, through all forks.
    let head = world.ask(
        "GET /ds/f63?offset=0000000000000003_0000000000000000",
        "",
        b"",
    );
    assert!(wanted.ends_with(head.text()) && head.text().len() < wanted.len());
}

#[test]
fn a_drain_ends_long_polls_and_event_streams() {
    let mut world = with(&[]);
    let tail = world.create("a", TEXT, "x");
    let mut poll = world.client();
    let line = format!("GET /ds/a?offset={tail}&live=long-poll");
    poll.send(&crate::world::request(&line, "Prefer: wait=60", b""));
    let mut events = world.client();
    let line = "GET /ds/a?offset=-1&live=sse";
    events.send(&crate::world::request(line, "", b""));
    assert_eq!(events.head().status, 200);
    events.read_until(b"\"upToDate\":true}\n\n");
    // The poll waits once the metrics count it.
    let waits = || {
        world
            .ask("GET /metrics", "", b"")
            .text()
            .contains("weir_http_tails{kind=\"long-poll\"} 1")
    };
    while !waits() {
        std::thread::yield_now();
    }
    let server = world.server.take().unwrap();
    server.drain();
    let reply = poll.reply(false);
    assert_eq!(
        (reply.status, reply.get("stream-next-offset")),
        (204, Some(tail.as_str()))
    );
    events.read_until(b"0\r\n\r\n");
    server.wait().unwrap();
}

/// The server caches the description of each stream, and clients can write descriptions.
#[test]
fn a_content_type_that_is_too_long_is_ignored() {
    let world = with(&[]);
    for (topic, bytes, is_used) in [("a", 255, true), ("b", 256, false)] {
        let content_type = format!("text/{}", "x".repeat(bytes - "text/".len()));
        let description = serde_json::json!({ "content_type": content_type }).to_string();
        let line = format!("PUT /v1/topics/{topic}");
        assert_eq!(world.ask(&line, "", b"").status, 201);
        let line = format!("PUT /v1/topics/{topic}/keys/.ds%2Fconfig");
        assert_eq!(world.ask(&line, "", description.as_bytes()).status, 201);
        // A record of another topic has the type of its writer.
        let line = format!("POST /v1/topics/{topic}.plain/events");
        let create = format!("PUT /v1/topics/{topic}.plain");
        assert_eq!(world.ask(&create, "", b"").status, 201);
        let fields = format!("Content-Type: {content_type}");
        assert_eq!(world.ask(&line, &fields, b"x").status, 201);
        for stream in [topic.to_owned(), format!("{topic}.plain")] {
            let reply = world.ask(&format!("GET /ds/{stream}"), "", b"");
            assert_eq!(reply.status, 200, "{stream}");
            let found = reply.get("content-type") == Some(content_type.as_str());
            assert_eq!(found, is_used, "{stream}: {reply:?}");
        }
    }
}

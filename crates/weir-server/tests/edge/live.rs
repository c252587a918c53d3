//! Tails: no event is missed or repeated.

use std::time::Instant;

use weir_core::{Intention, Operation};

use crate::client::{Client, TEST_TIMEOUT};
use crate::world::{World, request, with, world};

/// Reads events of a stream until one has this data. Returns their ids and data.
fn events(client: &mut Client, until: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut text = String::new();
    loop {
        let line = String::from_utf8(client.read_until(b"\r\n")).unwrap();
        let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
        assert_ne!(size, 0, "the stream ended: {found:?}");
        let piece = client.read_bytes(size + 2);
        text.push_str(std::str::from_utf8(&piece[..size]).unwrap());
        while let Some(end) = text.find("\n\n") {
            let event: String = text.drain(..end + 2).collect();
            let field = |name: &str| {
                let lines = event.lines().filter_map(|line| line.strip_prefix(name));
                lines.collect::<Vec<_>>().join("\n")
            };
            let (id, data) = (field("id: "), field("data: "));
            let done = data.contains(until) || field("event: ").contains(until);
            if !id.is_empty() {
                found.push((id, data));
            }
            if done {
                return found;
            }
        }
    }
}

fn follow(world: &World, target: &str, fields: &str) -> Client {
    let mut client = world.client();
    client.send(&request(&format!("GET {target}"), fields, b""));
    let reply = client.head();
    assert_eq!(
        (reply.status, reply.get("content-type")),
        (200, Some("text/event-stream")),
        "{reply:?}"
    );
    client
}

fn post(world: &World, body: &str) {
    assert_eq!(
        world
            .ask("POST /v1/topics/t/events", "", body.as_bytes())
            .status,
        201
    );
}

#[test]
fn a_reconnected_tail_resumes_after_its_last_event() {
    let world = world();
    let mut seen: Vec<(String, String)> = Vec::new();
    for round in 0..5 {
        post(&world, &format!("\"{round}a\""));
        let last = seen.last().map(|(id, _)| format!("Last-Event-ID: {id}"));
        let mut client = follow(
            &world,
            "/v1/topics/t/events?live=sse",
            &last.unwrap_or_default(),
        );
        seen.extend(events(&mut client, &format!("{round}a")));
        // While the tail waits.
        events(&mut client, "caught-up");
        post(&world, &format!("\"{round}b\""));
        seen.extend(events(&mut client, &format!("{round}b")));
        post(&world, &format!("\"{round}c\""));
    }
    let ids: Vec<&str> = seen.iter().map(|(id, _)| id.as_str()).collect();
    let wanted: Vec<String> = (1..=seen.len()).map(|n| n.to_string()).collect();
    assert_eq!(ids, wanted);
    assert_eq!(seen.last().unwrap().1, "\"4b\"");
}

#[test]
fn all_tails_receive_equal_events() {
    let world = world();
    let mut clients: Vec<Client> = (0..40)
        .map(|_| follow(&world, "/v1/topics/t/events", "Accept: text/event-stream"))
        .collect();
    for n in 0..100 {
        post(&world, &n.to_string());
    }
    post(&world, "\"end\"");
    let wanted: Vec<String> = (1..=102).map(|n| n.to_string()).collect();
    for client in &mut clients {
        let found = events(client, "end");
        let ids: Vec<String> = found.into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, wanted);
    }
}

#[test]
fn a_filtered_tail_reports_its_progress() {
    let world = world();
    let mut client = follow(&world, "/v1/topics/t/events?live=sse&key=k&after=0", "");
    let lines: String = "1\n".repeat(2500);
    assert_eq!(
        world
            .ask(
                "POST /v1/topics/t/events",
                "Content-Type: application/x-ndjson",
                lines.as_bytes()
            )
            .status,
        201
    );
    events(&mut client, "progress");
    assert_eq!(
        world.ask("PUT /v1/topics/t/keys/k", "", b"\"it\"").status,
        201
    );
    let found = events(&mut client, "it");
    assert_eq!(found, [("2502".to_owned(), "\"it\"".to_owned())]);
}

#[test]
fn a_tail_of_a_missing_topic_begins_with_its_creation() {
    let world = world();
    let mut client = follow(&world, "/v1/topics/later/events?live=sse&data=record", "");
    events(&mut client, "caught-up");
    assert_eq!(world.ask("PUT /v1/topics/later", "", b"").status, 201);
    let found = events(&mut client, "CREATE");
    assert_eq!(found[0].0, "1");
}

#[test]
fn ids_of_an_earlier_incarnation_are_gone() {
    let world = world();
    assert_eq!(world.ask("DELETE /v1/topics/t", "", b"").status, 200);
    assert_eq!(world.ask("PUT /v1/topics/t", "", b"").status, 201);
    let incarnation = world.store.topic("t").unwrap().incarnation.unwrap().0;
    let reply = world.ask(
        "GET /v1/topics/t/events?live=sse",
        "Last-Event-ID: 1-2",
        b"",
    );
    assert_eq!((reply.status, reply.problem().as_str()), (410, "gone"));
    follow(
        &world,
        "/v1/topics/t/events?live=sse",
        &format!("Last-Event-ID: {incarnation}-3"),
    );
    assert_eq!(
        world
            .ask("GET /v1/topics/t/events?live=sse", "Last-Event-ID: x", b"")
            .status,
        400
    );
}

/// Removes all records of the topic.
fn remove_all_records(world: &World) {
    let mut options = weir_core::TopicOptions::default();
    options.retention.records = Some(0);
    let options = weir_core::Operation::Alter { options: &options };
    let alter = weir_core::Intention::new("t", options);
    world.store.propose(&[alter]).unwrap().wait().unwrap();
    assert!(world.store.retain(None).unwrap().records > 0);
}

#[test]
fn ids_have_the_incarnation_of_their_record() {
    const TAIL: &str = "/v1/topics/t/events?live=sse";
    let world = world();
    let create_again = || {
        assert_eq!(world.ask("DELETE /v1/topics/t", "", b"").status, 200);
        assert_eq!(world.ask("PUT /v1/topics/t", "", b"").status, 201);
        world.store.topic("t").unwrap().incarnation.unwrap().0
    };
    let first = create_again();
    remove_all_records(&world);
    post(&world, "\"old\"");
    let mut client = follow(&world, TAIL, "");
    let seen = events(&mut client, "caught-up");
    let id = &seen.last().unwrap().0;
    assert!(id.starts_with(&format!("{first}-")), "{id}");
    let second = create_again();
    post(&world, "\"new\"");
    let seen = events(&mut client, "new");
    let id = &seen.last().unwrap().0;
    assert!(id.starts_with(&format!("{second}-")), "{id}");
    follow(&world, TAIL, &format!("Last-Event-ID: {id}"));
}

/// Waits until a long poll waits, as the metrics count it.
fn wait_for_long_poll(world: &World) {
    let end = Instant::now() + TEST_TIMEOUT;
    let waits = || {
        let page = world.ask("GET /metrics", "", b"");
        page.text().contains("kind=\"long-poll\"} 1")
    };
    while !waits() {
        assert!(Instant::now() < end, "no long poll waits");
    }
}

#[test]
fn a_long_poll_waits_for_the_next_record() {
    let world = world();
    let mut client = world.client();
    client.send(&request("GET /v1/topics/t/events?after=1&wait=60", "", b""));
    wait_for_long_poll(&world);
    post(&world, "7");
    let reply = client.reply(false);
    assert_eq!((reply.status, reply.get("weir-next")), (200, Some("2")));
    assert_eq!(reply.json()[0]["value"], 7);
    let reply = world.ask("GET /v1/topics/t/events?after=2&wait=0", "", b"");
    assert_eq!(
        (reply.status, reply.get("weir-up-to-date")),
        (200, Some("?1"))
    );
    let reply = world.ask("GET /v1/topics/t/events?after=2", "Prefer: wait=1", b"");
    assert_eq!((reply.status, reply.get("weir-next")), (204, Some("2")));
}

#[test]
fn waiting_clients_are_notified_of_a_drain() {
    let world = with(&[]);
    assert_eq!(world.ask("PUT /v1/topics/t", "", b"").status, 201);
    let mut tail = follow(&world, "/v1/topics/t/events?live=sse", "");
    events(&mut tail, "caught-up");
    let mut poll = world.client();
    poll.send(&request("GET /v1/topics/t/events?after=1&wait=60", "", b""));
    wait_for_long_poll(&world);
    // The requests arrive together, so the second one has started when the first one is answered.
    let mut lagging = world.client();
    let mut requests = request("GET /healthz", "", b"");
    let read = "GET /v1/topics/t/keys/k?at-least=99&wait=60";
    requests.extend(request(read, "", b""));
    lagging.send(&requests);
    assert_eq!(lagging.reply(false).status, 200);
    let mut idle = world.client();
    idle.send(&request("GET /healthz", "", b""));
    assert_eq!(idle.reply(false).status, 200);
    let server = world.server.as_ref().unwrap();
    server.leave();
    for path in ["/readyz", "/readyz?verbose"] {
        let ready = world.ask(&format!("GET {path}"), "", b"");
        assert_eq!(ready.status, 503, "{path}");
        let kind = ready.get("content-type");
        assert_eq!(kind, Some("application/problem+json"), "{path}");
        let problem: serde_json::Value = serde_json::from_slice(&ready.body).unwrap();
        assert_eq!(problem["type"], "/problems/draining");
        assert_eq!(problem["draining"], true);
    }
    assert_eq!(world.ask("GET /healthz", "", b"").status, 200);
    server.drain();
    let reply = poll.reply(false);
    assert_eq!(
        (reply.status, reply.get("connection")),
        (204, Some("close"))
    );
    assert_eq!(lagging.reply(false).status, 504);
    events(&mut tail, "bye");
    assert_eq!(tail.read_until(b"0\r\n\r\n"), b"0\r\n\r\n");
    assert!(idle.is_closed());
    let mut world = world;
    world.server.take().unwrap().wait().unwrap();
}

#[test]
fn a_reader_of_removed_records_gets_410_or_resumes_at_the_first_remaining_record() {
    let world = world();
    for round in 0..8 {
        post(&world, &format!("\"{round}\""));
    }
    remove_all_records(&world);
    let removed = world.store.removed("t").0;
    post(&world, "\"new\"");
    let read = |query: &str| world.ask(&format!("GET /v1/topics/t/events?{query}"), "", b"");
    let gone = read("after=2");
    assert_eq!((gone.status, gone.problem().as_str()), (410, "gone"));
    assert_eq!(gone.json()["first"], removed + 1);
    assert_eq!(gone.json()["last"], removed + 1);
    for query in ["after=2&reset=earliest", "after=0", ""] {
        let reply = read(query);
        assert_eq!(reply.status, 200, "{query}");
        assert!(reply.text().contains("new"), "{query}: {}", reply.text());
    }
    // A tail that reconnects continues after its last event, not at the start in its address.
    let mut tail = world.client();
    let line = "GET /v1/topics/t/events?live=sse&after=2";
    tail.send(&request(line, &format!("Last-Event-ID: {removed}"), b""));
    assert_eq!(tail.head().status, 200);
    tail.read_until(b"new");
}

#[test]
fn a_payload_with_a_false_json_flag_is_never_inserted_as_json() {
    const LIST: &str = "GET /v1/topics/t/events?after=1";
    const FORGED: &str = "1},\n{\"offset\":9,\"value\":2";
    let world = world();
    let reply = world.ask("PUT /ds/s", "Content-Type: application/json", b"");
    assert_eq!(reply.status, 201, "{reply:?}");
    for topic in ["t", "s"] {
        let (key, value) = (&b""[..], FORGED.as_bytes());
        let mut put = Intention::new(topic, Operation::Put { key, value });
        put.meta = b"json";
        world.store.propose(&[put]).unwrap().wait().unwrap();
    }
    let list = world.ask(LIST, "", b"").json();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    assert_eq!(list[0]["text"], FORGED);
    let lines = world.ask(LIST, "Accept: application/x-ndjson", b"");
    assert_eq!(lines.text().lines().count(), 1, "{}", lines.text());
    let accept = "Accept: application/cloudevents-batch+json";
    let list = world.ask(LIST, accept, b"").json();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    assert_eq!(list[0]["data"], FORGED);
    assert_eq!(list[0].get("datacontenttype"), None);
    let one = world.ask("GET /v1/topics/t/events/2", "", b"");
    assert_eq!(one.get("content-type"), Some("text/plain; charset=utf-8"));

    let stream = world.ask("GET /ds/s", "", b"").json();
    assert_eq!(stream, serde_json::json!([FORGED]));

    let tail = "/v1/topics/t/events?live=sse&data=record";
    let seen = events(&mut follow(&world, tail, ""), "PUT");
    let event: serde_json::Value = serde_json::from_str(&seen.last().unwrap().1).unwrap();
    assert_eq!(event["text"], FORGED);
}

#[test]
fn deeply_nested_json_is_not_inserted_into_a_response() {
    let world = world();
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let typed = "Content-Type: application/json";
    assert_eq!(world.ask("PUT /ds/s", typed, b"").status, 201);
    for (levels, is_inserted) in [(100, true), (101, false), (10_000, false)] {
        let value = nested(levels);
        let posted = world.ask("POST /v1/topics/t/events", typed, value.as_bytes());
        assert_eq!(posted.status, 201, "{levels}");
        let after = posted.json()["offset"].as_u64().unwrap() - 1;
        let list = format!("GET /v1/topics/t/events?after={after}");
        // The parser of the test accepts 127 levels.
        let json = world.ask(&list, "", b"").json();
        assert_eq!(json[0].get("value").is_some(), is_inserted, "{levels}");
        assert_eq!(json[0].get("value64").is_some(), !is_inserted, "{levels}");
        let events = "Accept: application/cloudevents-batch+json";
        let json = world.ask(&list, events, b"").json();
        assert_eq!(json[0].get("data").is_some(), is_inserted, "{levels}");
        assert_eq!(json[0]["datacontenttype"], "application/json");
        let one = format!("GET /v1/topics/t/events/{}", after + 1);
        let one = world.ask(&one, "", b"");
        assert_eq!(one.get("content-type"), Some("application/json"));
        assert_eq!(one.text(), value);
    }
    let value = nested(200);
    let refused = world.ask("POST /ds/s", typed, format!("[{value}]").as_bytes());
    assert_eq!(refused.status, 400, "{}", refused.text());
    let posted = world.ask("POST /v1/topics/s/events", typed, value.as_bytes());
    assert_eq!(posted.status, 201);
    let stream = world.ask("GET /ds/s", "", b"").json();
    assert!(stream[0]["value64"].is_string(), "{stream}");
}

//! Groups over HTTP: waiting members are woken, and no record is lost or processed twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_core::{Intention, Operation};
use weir_store::ClaimRequest;

use crate::world::{World, world};

fn create_group(world: &World, setup: &str) {
    let reply = world.ask("PUT /v1/topics/t/groups/g", "", setup.as_bytes());
    assert_eq!(reply.status, 201, "{}", reply.text());
}

fn step(world: &World, what: &str, body: &Value) -> u16 {
    let line = format!("POST /v1/topics/t/groups/g/{what}");
    let fields = "Content-Type: application/json";
    world.ask(&line, fields, body.to_string().as_bytes()).status
}

#[test]
fn a_claim_waits_for_a_record() {
    let world = Arc::new(world());
    create_group(&world, "{}");
    let client = Arc::clone(&world);
    let started = Instant::now();
    let waiting = std::thread::spawn(move || {
        client.ask("POST /v1/topics/t/groups/g/claim?member=a&wait=30", "", b"")
    });
    // The member gets the record, whether it is written before or after the claim.
    assert_eq!(world.ask("POST /v1/topics/t/events", "", b"1").status, 201);
    let reply = waiting.join().unwrap();
    assert_eq!((reply.status, reply.get("weir-count")), (200, Some("1")));
    assert!(started.elapsed() < Duration::from_secs(25));
}

#[test]
fn several_members_process_each_record_once() {
    let world = Arc::new(world());
    create_group(&world, r#"{"lease_ms":60000}"#);
    for n in 0..60 {
        let body = n.to_string();
        let reply = world.ask("POST /v1/topics/t/events", "", body.as_bytes());
        assert_eq!(reply.status, 201);
    }
    let members = (0..4).map(|member| {
        let world = Arc::clone(&world);
        std::thread::spawn(move || {
            let mut processed = Vec::new();
            loop {
                let line = format!("POST /v1/topics/t/groups/g/claim?member=m{member}&max=7");
                let reply = world.ask(&line, "", b"");
                assert_eq!(reply.status, 200);
                let json = reply.json();
                let records = json["records"].as_array().unwrap();
                if records.is_empty() {
                    return processed;
                }
                let offsets: Vec<u64> = records
                    .iter()
                    .map(|record| record["offset"].as_u64().unwrap())
                    .collect();
                let body = serde_json::json!({"claim": json["claim"], "offsets": offsets});
                assert_eq!(step(&world, "ack", &body), 200);
                processed.extend(offsets);
            }
        })
    });
    let threads: Vec<_> = members.collect();
    let mut times = BTreeMap::new();
    for offset in threads.into_iter().flat_map(|t| t.join().unwrap()) {
        *times.entry(offset).or_insert(0) += 1;
    }
    // A member may end while another one claims, so claim the remaining records now.
    let rest = world.ask("POST /v1/topics/t/groups/g/claim?member=z", "", b"");
    for record in rest.json()["records"].as_array().unwrap() {
        *times.entry(record["offset"].as_u64().unwrap()).or_insert(0) += 1;
    }
    let all: BTreeMap<u64, i32> = (2..62).map(|offset| (offset, 1)).collect();
    assert_eq!(times, all);
}

#[test]
fn a_record_that_is_returned_too_often_becomes_a_dead_letter() {
    let world = world();
    create_group(&world, r#"{"attempts_max":2,"dead_letters":"dead"}"#);
    assert_eq!(world.ask("POST /v1/topics/t/events", "", b"1").status, 201);
    for attempt in 1..=2 {
        let line = "POST /v1/topics/t/groups/g/claim?member=a&wait=5";
        let json = world.ask(line, "", b"").json();
        assert_eq!(json["records"][0]["attempts"], attempt);
        let body = serde_json::json!({"claim": json["claim"], "offsets": [2], "reason": "no"});
        assert_eq!(step(&world, "nack", &body), 200);
    }
    let line = "POST /v1/topics/t/groups/g/claim?member=a";
    assert_eq!(world.ask(line, "", b"").get("weir-count"), Some("0"));
    let reply = world.ask("GET /v1/topics/t/groups/g", "", b"");
    assert_eq!(reply.json()["dead_lettered"], 1);
    // The store creates the topic and writes the dead letter, with its reason.
    let reply = world.ask("GET /v1/topics/dead/events?wait=10&type=put", "", b"");
    let json = reply.json();
    let letters = json.as_array().map_or(0, Vec::len);
    let body = String::from_utf8_lossy(&reply.body).into_owned();
    assert!(
        reply.status == 200 && letters == 2,
        "{} {body}",
        reply.status
    );
}

#[test]
fn metrics_describe_groups() {
    let world = world();
    create_group(&world, r#"{"lease_ms":60000}"#);
    let lines = "1\n2\n3\n";
    let fields = "Content-Type: application/x-ndjson";
    let posted = world.ask("POST /v1/topics/t/events", fields, lines.as_bytes());
    assert_eq!(posted.status, 201);
    let claim = "POST /v1/topics/t/groups/g/claim?member=a&max=1";
    assert_eq!(world.ask(claim, "", b"").get("weir-count"), Some("1"));
    let reply = world.ask("GET /metrics", "", b"");
    let text = reply.text();
    for line in [
        "weir_groups 1",
        "weir_groups_left_out 0",
        "weir_group_lag{topic=\"t\",group=\"g\"} 3",
        "weir_group_leased{topic=\"t\",group=\"g\"} 1",
        "weir_group_redeliveries_total{topic=\"t\",group=\"g\"} 0",
        "weir_idempotency_keys 0",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }
}

/// The store checks no conditions of a step, so the server does not accept them.
#[test]
fn a_step_with_a_condition_is_refused() {
    let world = world();
    create_group(&world, "{}");
    let reset = "POST /v1/topics/t/groups/g/reset";
    for field in [
        "Weir-Expect: incarnation=99",
        "If-Match: \"i99\"",
        "If-None-Match: *",
    ] {
        let fields = format!("Content-Type: application/json\n{field}");
        let reply = world.ask(reset, &fields, br#"{"to":"start"}"#);
        assert_eq!((reply.status, &*reply.problem()), (400, "bad-request"));
    }
}

#[test]
fn a_page_of_groups_with_many_members_is_bounded() {
    const MEMBERS: usize = 1000;
    const GROUPS: [&str; 4] = ["a", "b", "c", "d"];
    let world = world();
    let (key, value) = (&b""[..], &b"1"[..]);
    let records = vec![Intention::new("t", Operation::Put { key, value }); MEMBERS];
    world.store.propose(&records).unwrap().wait().unwrap();
    // In JSON, most bytes of these names are escapes of six characters.
    let escapes = "\u{1}".repeat(60);
    for group in GROUPS {
        let line = format!("PUT /v1/topics/t/groups/{group}");
        assert_eq!(world.ask(&line, "", b"").status, 201);
        for number in 0..MEMBERS {
            let member = format!("{number:04}{escapes}");
            let request = ClaimRequest {
                member: member.as_bytes(),
                max: 1,
                lease_ms: 3_600_000,
                bytes_max: usize::MAX,
            };
            let claimed = world.store.claim("t", group, &request).unwrap();
            assert_eq!(claimed.deliveries.len(), 1);
        }
    }
    let page = |line: &str| {
        let reply = world.ask(line, "", b"");
        let json = reply.json();
        let groups = json["groups"].as_array().unwrap().iter();
        let names: Vec<_> = groups
            .map(|group| group["name"].as_str().unwrap().to_owned())
            .collect();
        let next = reply.get("link").map(str::to_owned);
        (names, next)
    };
    let (names, next) = page("GET /v1/topics/t/groups");
    assert_eq!(names, GROUPS[..3]);
    assert!(next.unwrap().contains("after=c"));
    let (names, next) = page("GET /v1/topics/t/groups?after=c");
    assert_eq!(names, GROUPS[3..]);
    assert_eq!(next, None);
}

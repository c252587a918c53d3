//! Conditions, nonces and idempotency keys: no write is executed twice.

use std::sync::{Arc, Barrier};
use std::time::Instant;

use weir_core::{Intention, Operation};

use crate::client::TEST_TIMEOUT;
use crate::hold::BlockedThread;
use crate::world::{request, world};

#[test]
fn only_one_of_several_concurrent_conditional_puts_succeeds() {
    let world = Arc::new(world());
    let start = Arc::new(Barrier::new(16));
    let threads: Vec<_> = (0..16)
        .map(|writer| {
            let (world, start) = (Arc::clone(&world), Arc::clone(&start));
            std::thread::spawn(move || {
                start.wait();
                let body = writer.to_string();
                world
                    .ask(
                        "PUT /v1/topics/t/keys/k",
                        "If-None-Match: *",
                        body.as_bytes(),
                    )
                    .status
            })
        })
        .collect();
    let mut statuses: Vec<u16> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses[0], 201);
    assert!(
        statuses[1..].iter().all(|status| *status == 412),
        "{statuses:?}"
    );
    assert_eq!(world.store.topic("t").unwrap().last.0, 2);
}

#[test]
fn concurrent_changes_of_different_options_are_both_applied() {
    let world = world();
    let blocked = BlockedThread::new(&world.store, "t");
    let patch = |body: &str| {
        let mut client = world.client();
        let fields = "Content-Type: application/merge-patch+json";
        let line = "PATCH /v1/topics/t";
        client.send(&request(line, fields, body.as_bytes()));
        client
    };
    let mut first = patch(r#"{"options":{"retention_records":1000}}"#);
    let end = Instant::now() + TEST_TIMEOUT;
    while world.in_flight_bytes() == 0 {
        assert!(Instant::now() < end, "no write is in flight");
    }
    let mut second = patch(r#"{"options":{"keys_max":10}}"#);
    // Time for the server to process the second change, which must wait for the first one.
    for _ in 0..100 {
        assert_eq!(world.ask("GET /healthz", "", b"").status, 200);
    }
    // A bad option is refused although other changes are waiting.
    let bad = patch(r#"{"options":{"unknown":1}}"#).reply(false);
    assert_eq!((bad.status, &*bad.problem()), (422, "invalid-option"));
    drop(blocked);
    assert_eq!(first.reply(false).status, 200);
    let reply = second.reply(false);
    assert_eq!(reply.status, 200);
    let options = &reply.json()["options"];
    assert_eq!(options["retention_records"], 1000);
    assert_eq!(options["keys_max"], 10);
}

#[test]
fn a_change_of_options_does_not_undo_one_through_another_interface() {
    let world = world();
    let blocked = BlockedThread::new(&world.store, "t");
    let mut options = world.store.topic("t").unwrap().options;
    options.keys_max = Some(10);
    // Executed after the server has read the options for the PATCH.
    let alter = Operation::Alter { options: &options };
    let other = world.store.propose(&[Intention::new("t", alter)]).unwrap();
    let mut client = world.client();
    let fields = "Content-Type: application/merge-patch+json";
    let body = br#"{"options":{"retention_records":1000}}"#;
    client.send(&request("PATCH /v1/topics/t", fields, body));
    let end = Instant::now() + TEST_TIMEOUT;
    while world.in_flight_bytes() == 0 {
        assert!(Instant::now() < end, "no write is in flight");
    }
    drop(blocked);
    other.wait().unwrap();
    let reply = client.reply(false);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let options = &reply.json()["options"];
    assert_eq!(options["retention_records"], 1000);
    assert_eq!(options["keys_max"], 10);
}

/// A condition that the server cannot read is not ignored.
#[test]
fn a_write_with_an_unreadable_condition_is_refused() {
    let world = world();
    let put = "PUT /v1/topics/t/keys/k";
    for field in [
        "If-Match:",
        "If-None-Match: ,",
        "Weir-Expect:",
        "Weir-Expect: ?",
    ] {
        let mut bytes = request(put, field, b"1");
        // A byte that is not UTF-8.
        let mark = bytes.iter().position(|byte| *byte == b'?');
        if let Some(at) = mark {
            bytes[at] = 0xff;
        }
        let mut client = world.client();
        client.send(&bytes);
        let reply = client.reply(false);
        assert_eq!(
            (reply.status, &*reply.problem()),
            (400, "bad-request"),
            "{field}"
        );
    }
    assert_eq!(world.store.topic("t").unwrap().last.0, 1);
}

#[test]
fn a_conflict_reports_the_current_offset() {
    let world = world();
    assert_eq!(world.ask("PUT /v1/topics/t/keys/k", "", b"1").status, 201);
    // A tag needs quotes; the problem shows an example.
    for (line, field, example) in [
        (
            "POST /v1/topics/t/events",
            "If-Match: o2",
            "If-Match: \"o3\"",
        ),
        (
            "PUT /v1/topics/t/keys/k",
            "If-Match: k2",
            "If-Match: \"k3\"",
        ),
        ("DELETE /v1/topics/t", "If-Match: i1", "If-Match: \"i3\""),
    ] {
        let reply = world.ask(line, field, b"2");
        assert_eq!(reply.status, 400, "{line}");
        let json = reply.json();
        let detail = json["detail"].as_str().unwrap();
        assert!(detail.contains("needs quotes"), "{detail}");
        assert!(detail.ends_with(example), "{detail}");
    }
    let reply = world.ask("PUT /v1/topics/t/keys/k", "If-Match: \"k1\"", b"2");
    assert_eq!((reply.status, reply.get("etag")), (412, Some("\"k2\"")));
    let json = reply.json();
    assert_eq!((&json["expected"], &json["actual"]), (&1.into(), &2.into()));
    // One matching tag is enough, at any position.
    let reply = world.ask(
        "PUT /v1/topics/t/keys/k",
        "If-Match: \"k1\", \"k2\", \"k9\"",
        b"2",
    );
    assert_eq!(reply.status, 204);
    let reply = world.ask("POST /v1/topics/t/events", "If-Match: \"o3\"", b"3");
    assert_eq!(reply.status, 201);
    assert_eq!(
        world
            .ask("POST /v1/topics/t/events", "If-Match: \"o3\"", b"3")
            .status,
        412
    );
    assert_eq!(
        world
            .ask("DELETE /v1/topics/t", "If-Match: \"i9\"", b"")
            .status,
        412
    );
    assert_eq!(
        world
            .ask("DELETE /v1/topics/t", "If-Match: \"i1.o4\"", b"")
            .status,
        200
    );
}

#[test]
fn a_conflict_of_a_transaction_reports_the_failed_condition() {
    let world = world();
    let ask = |head: &str, expect: &str| {
        let body =
            format!("{{\"operations\":[{{\"key\":\"k\",\"text\":\"1\"}}],\"expect\":[{expect}]}}");
        let head = format!("Content-Type: application/json\n{head}");
        let line = "POST /v1/topics/t/transactions";
        world.ask(line, head.trim_end(), body.as_bytes())
    };
    let offset = ask("", "{\"topic-offset\":7}");
    assert_eq!((offset.status, offset.get("etag")), (412, Some("\"o1\"")));
    let json = offset.json();
    assert_eq!((&json["expected"], &json["actual"]), (&7.into(), &1.into()));
    assert_eq!(json["condition"], "topic-offset");
    let tag = ask("If-Match: \"o7\"", "").json();
    assert_eq!((&tag["expected"], &tag["actual"]), (&7.into(), &1.into()));
    let key = ask("", "{\"key\":\"k\",\"key-offset\":5}").json();
    assert_eq!((&key["expected"], &key["actual"]), (&5.into(), &0.into()));
    // With several conditions, the store does not report which condition failed.
    let both = ask("", "{\"topic-offset\":1},{\"key\":\"k\",\"key-offset\":5}");
    assert_eq!(both.status, 412);
    let both = both.json();
    assert_eq!((both.get("expected"), &both["actual"]), (None, &0.into()));
    let successful = ask("", "{\"topic-offset\":1}");
    assert_eq!(successful.status, 201);
}

#[test]
fn an_idempotency_key_is_valid_for_one_request() {
    let world = world();
    let post = |key: &str, body: &[u8]| {
        world.ask(
            "POST /v1/topics/t/events",
            &format!("Idempotency-Key: {key}"),
            body,
        )
    };
    let first = post("\"a b\"", b"1");
    assert_eq!((first.status, first.get("weir-replayed")), (201, None));
    let again = post("\"a b\"", b"1");
    assert_eq!(
        (again.status, again.get("weir-replayed")),
        (201, Some("?1"))
    );
    assert_eq!(again.get("weir-offset"), first.get("weir-offset"));
    let other = post("\"a b\"", b"2");
    assert_eq!(
        (other.status, other.problem().as_str()),
        (422, "key-reused")
    );
    assert_eq!(post("", b"1").status, 400);
    assert_eq!(post("\"\"", b"1").status, 400);
    assert_eq!(world.store.topic("t").unwrap().last.0, 2);
    // A verdict that is not VALID is stored as well.
    let conflict = world.ask(
        "PUT /v1/topics/t/keys/k",
        "Idempotency-Key: \"n\"\nIf-Match: *",
        b"1",
    );
    assert_eq!(conflict.status, 412);
    assert_eq!(world.ask("PUT /v1/topics/t/keys/k", "", b"1").status, 201);
    let conflict = world.ask(
        "PUT /v1/topics/t/keys/k",
        "Idempotency-Key: \"n\"\nIf-Match: *",
        b"1",
    );
    assert_eq!(
        (conflict.status, conflict.get("weir-replayed")),
        (412, Some("?1"))
    );
}

#[test]
fn a_retry_after_a_topic_or_group_was_removed_returns_the_first_verdict() {
    let world = world();
    let put = |line: &str, key: &str| world.ask(line, &format!("Idempotency-Key: \"{key}\""), b"");
    let (topic, group) = ("PUT /v1/topics/t", "PUT /v1/topics/t/groups/g");
    assert_eq!(put(topic, "topic").status, 200);
    assert_eq!(put(group, "created").status, 201);
    assert_eq!(put(group, "existed").status, 200);
    for line in ["DELETE /v1/topics/t/groups/g", "DELETE /v1/topics/t"] {
        assert_eq!(world.ask(line, "", b"").status, 200, "{line}");
    }
    let created = put(group, "created");
    assert_eq!(created.status, 201, "{}", created.text());
    assert_eq!(created.get("weir-replayed"), Some("?1"));
    assert_eq!(created.get("location"), Some("/v1/topics/t/groups/g"));
    assert!(created.body.is_empty());
    // The first verdict was that it exists. The settings can no longer be compared.
    let existed = put(group, "existed");
    assert_eq!((existed.status, &*existed.problem()), (409, "group-exists"));
    let existed = put(topic, "topic");
    assert_eq!((existed.status, &*existed.problem()), (409, "topic-exists"));
}

#[test]
fn a_nonce_must_follow_the_last_one() {
    let world = world();
    let client = "Weir-Client: 000102030405060708090a0b0c0d0e0f";
    let post = |nonce: &str, body: &[u8]| {
        world.ask(
            "POST /v1/topics/t/events",
            &format!("{client}\nWeir-Nonce: {nonce}"),
            body,
        )
    };
    assert_eq!(post("1", b"1").status, 201);
    assert_eq!(post("1", b"1").get("weir-replayed"), Some("?1"));
    assert_eq!(post("1", b"2").problem(), "key-reused");
    let gap = post("3", b"3");
    assert_eq!((gap.status, gap.problem().as_str()), (409, "nonce-gap"));
    assert_eq!(gap.json()["expected"], 2);
    assert!(
        gap.get("weir-intention").is_none(),
        "a refusal has no position in the log"
    );
    assert_eq!(post("2", b"2").status, 201);
    assert_eq!(post("0", b"2").status, 400);
    assert_eq!(
        world.ask("POST /v1/topics/t/events", client, b"1").status,
        400
    );
    assert_eq!(world.store.topic("t").unwrap().last.0, 3);
}

#[test]
fn a_retry_after_a_cut_at_any_byte_stores_one_event() {
    let world = world();
    let body = b"{\"a\":1}";
    let whole = crate::world::request(
        "POST /v1/topics/t/events",
        "Idempotency-Key: \"0000\"",
        body,
    );
    for cut in 0..=whole.len() {
        let key = format!("Idempotency-Key: \"{cut:04}\"");
        let bytes = crate::world::request("POST /v1/topics/t/events", &key, body);
        let mut client = world.client();
        client.send(&bytes[..cut]);
        drop(client);
        let end = Instant::now() + TEST_TIMEOUT;
        loop {
            assert!(Instant::now() < end, "the first request does not end");
            let reply = world.ask("POST /v1/topics/t/events", &key, body);
            // The first request may still be in flight.
            if reply.status != 409 {
                assert_eq!(reply.status, 201, "cut at {cut}");
                break;
            }
        }
    }
    assert_eq!(
        world.store.topic("t").unwrap().last.0,
        whole.len() as u64 + 2
    );
}

#[test]
fn thousands_of_idempotency_keys_are_kept_and_use_no_session() {
    let world = world();
    let keyed = |n: usize| format!("Idempotency-Key: \"order-{n}\"");
    let post = "POST /v1/topics/t/events";
    // More keys than the maximum number of sessions, on one connection.
    let mut client = world.client();
    for n in 0..6400 {
        client.send(&crate::world::request(post, &keyed(n), b"1"));
        if n % 32 == 31 {
            let all = (0..32).all(|_| client.reply(false).status == 201);
            assert!(all, "up to {n}");
        }
    }
    // Many more keys, proposed directly to the store.
    let ids = (1_u128..=120_000).map(|n| weir_core::ClientId(n.to_be_bytes()));
    let put = weir_core::Operation::Put {
        key: b"",
        value: b"",
    };
    let writes: Vec<_> = ids
        .map(|id| weir_core::Intention::new("t", put).under(id, weir_core::intention::ONCE))
        .collect();
    for part in writes.chunks(10_000) {
        let outcomes = world.store.propose(part).unwrap().wait().unwrap();
        assert!(outcomes.iter().all(|outcome| outcome.commit().is_some()));
    }
    let last = world.store.topic("t").unwrap().last;
    let again = |world: &crate::world::World, n: usize| {
        let reply = world.ask(post, &keyed(n), b"1");
        let replayed = reply.get("weir-replayed") == Some("?1");
        (
            reply.status,
            replayed,
            reply.get("weir-offset").map(str::to_owned),
        )
    };
    assert_eq!(again(&world, 0), (201, true, Some("2".to_owned())));
    assert_eq!(again(&world, 6399), (201, true, Some("6401".to_owned())));
    assert_eq!(world.ask(post, &keyed(17), b"2").problem(), "key-reused");
    assert_eq!(world.store.topic("t").unwrap().last, last);
    // Keys do not displace sessions, and a restart loses neither.
    let session = "Weir-Client: 000102030405060708090a0b0c0d0e0f\nWeir-Nonce: 1";
    assert_eq!(world.ask(post, session, b"1").status, 201);
    let world = world.restarted();
    assert_eq!(again(&world, 0), (201, true, Some("2".to_owned())));
    assert_eq!(world.ask(post, &keyed(17), b"2").problem(), "key-reused");
    assert_eq!(
        world.ask(post, session, b"1").get("weir-replayed"),
        Some("?1")
    );
}

#[test]
fn an_idempotency_key_of_a_batch_is_refused_for_another_request() {
    let world = world();
    let key = "Idempotency-Key: \"k\"";
    let lines = "Content-Type: application/x-ndjson\nIdempotency-Key: \"k\"";
    let post = "POST /v1/topics/t/events";
    assert_eq!(world.ask(post, lines, b"1\n2\n").status, 201);
    let again = world.ask(post, lines, b"1\n2\n");
    assert_eq!(
        (again.status, again.get("weir-replayed")),
        (201, Some("?1"))
    );
    assert_eq!(world.ask(post, key, b"1").problem(), "key-reused");
    // A nonce must be a number that a session can reach.
    let client = "Weir-Client: 000102030405060708090a0b0c0d0e0f\nWeir-Nonce: 9223372036854775808";
    assert_eq!(world.ask(post, client, b"1").status, 400);
    assert_eq!(world.store.topic("t").unwrap().last.0, 3);
}

#[test]
fn a_conflict_lists_the_unseen_records_on_request() {
    let world = world();
    for (key, value) in [("k", "1"), ("other", "2"), ("k", "3"), ("k", "4")] {
        let line = format!("PUT /v1/topics/t/keys/{key}");
        assert!(world.ask(&line, "", value.as_bytes()).status < 300);
    }
    let offsets = |reply: &crate::client::Reply| -> Vec<u64> {
        let json = reply.json();
        let records = json["conflicts"].as_array().unwrap().iter();
        records
            .map(|record| record["offset"].as_u64().unwrap())
            .collect()
    };
    // For a key, its records after the expected offset; for the topic, all records after it.
    let stale = "If-Match: \"k2\"\nPrefer: conflicts=10";
    let reply = world.ask("PUT /v1/topics/t/keys/k", stale, b"5");
    assert_eq!((reply.status, offsets(&reply)), (412, vec![4, 5]));
    assert_eq!(reply.json()["conflicts"][1]["value"], 4);
    assert!(reply.json().get("conflicts_more").is_none());
    let stale = "If-Match: \"o2\"\nPrefer: conflicts=10";
    let reply = world.ask("POST /v1/topics/t/events", stale, b"5");
    assert_eq!((reply.status, offsets(&reply)), (412, vec![3, 4, 5]));
    // A limit, and a list of tags.
    let stale = "If-Match: \"k2\", \"k4\"\nPrefer: conflicts=1";
    let reply = world.ask("PUT /v1/topics/t/keys/k", stale, b"5");
    assert_eq!((reply.status, offsets(&reply)), (412, vec![4]));
    assert_eq!(reply.json()["conflicts_more"], true);
    // Without the preference, the response has no records. Nothing was written.
    let reply = world.ask("PUT /v1/topics/t/keys/k", "If-Match: \"k2\"", b"5");
    assert!(reply.status == 412 && reply.json().get("conflicts").is_none());
    assert_eq!(world.store.topic("t").unwrap().last.0, 5);
}

#[test]
fn a_conflict_scans_a_limited_number_of_bytes() {
    let world = world();
    let put = |key: &[u8], value: &[u8]| {
        let put = Intention::new("t", Operation::Put { key, value });
        world.store.propose(&[put]).unwrap().wait().unwrap();
    };
    put(b"k", b"1");
    // More than 64 MiB, in blocks of less than 1 MiB.
    let value = vec![b'v'; 1_000_000];
    for _ in 0..70 {
        put(b"other", &value);
    }
    put(b"k", b"2");
    let stale = "If-Match: \"k2\"\nPrefer: conflicts=10";
    let reply = world.ask("PUT /v1/topics/t/keys/k", stale, b"3");
    assert_eq!(reply.status, 412);
    assert_eq!(reply.json()["conflicts"].as_array().unwrap().len(), 0);
    assert_eq!(reply.json()["conflicts_more"], true);
}

/// The intention of a retry can differ, because it depends on the state of the topic or has another
/// trace.
#[test]
fn a_retry_under_a_nonce_is_recognized_by_the_words_of_the_request() {
    let world = world();
    let ask = |nonce: u32, line: &str, fields: &str, body: &str| {
        let session = "Weir-Client: 000102030405060708090a0b0c0d0e0f";
        let fields = format!("{session}\nWeir-Nonce: {nonce}\n{fields}");
        world.ask(line, &fields, body.as_bytes())
    };
    let json = "Content-Type: application/json";
    let trace = |span: u32| format!("traceparent: 00-{:032x}-{span:016x}-01", 7);
    let post = "POST /v1/topics/t/events";
    let group = "PUT /v1/topics/t/groups/g";
    let reset = "POST /v1/topics/t/groups/g/reset";
    let patch = "PATCH /v1/topics/t";
    for (nonce, line, body, other) in [
        (1, group, r#"{"from":"end"}"#, r#"{"from":"start"}"#),
        (2, reset, r#"{"to":"end"}"#, r#"{"to":"start"}"#),
        (3, patch, r#"{"options":{"keys_max":9}}"#, "{}"),
        (4, post, "1", "2"),
    ] {
        let first = ask(nonce, line, &format!("{json}\n{}", trace(1)), body);
        assert!(first.status < 300, "{line}: {}", first.text());
        // Changes the end of the topic and its options.
        assert_eq!(world.ask(post, "", b"1").status, 201);
        let options = format!("{{\"options\":{{\"retention_records\":{}}}}}", 1000 + nonce);
        let changed = world.ask(patch, json, options.as_bytes());
        assert_eq!(changed.status, 200, "{}", changed.text());
        let fields = format!("{json}\n{}", trace(2));
        let again = ask(nonce, line, &fields, body);
        let result = (again.status, again.get("weir-replayed"));
        assert_eq!(
            result,
            (first.status, Some("?1")),
            "{line}: {}",
            again.text()
        );
        let reused = ask(nonce, line, &fields, other);
        assert_eq!((reused.status, &*reused.problem()), (422, "key-reused"));
    }
}

#[test]
fn a_change_of_an_existing_topic_under_if_none_match_is_refused() {
    let world = world();
    let fields = "Content-Type: application/json\nIf-None-Match: *";
    for line in ["PATCH /v1/topics/t", "DELETE /v1/topics/t"] {
        let body: &[u8] = if line.starts_with("PATCH") {
            b"{}"
        } else {
            b""
        };
        let reply = world.ask(line, fields, body);
        let kind = reply.problem();
        assert_eq!((reply.status, &*kind), (412, "conflict"), "{line}");
        assert_eq!(reply.get("etag"), Some("\"i1.o1\""), "{line}");
    }
    let line = "DELETE /v1/topics/absent";
    assert_eq!(world.ask(line, fields, b"").problem(), "no-topic");
    assert_eq!(world.store.topic("t").unwrap().last.0, 1);
}

//! Stored content cannot harm its readers, and a search without a match has a bounded cost.

use weir_core::{Intention, Operation};

use crate::world::{with, world};

#[test]
fn stored_html_runs_in_a_sandbox() {
    let world = world();
    let html = "Content-Type: text/html";
    let body = b"<script>fetch('/v1/topics')</script>";
    assert_eq!(world.ask("PUT /v1/topics/t/keys/k", html, body).status, 201);
    assert_eq!(world.ask("PUT /ds/s", html, body).status, 201);
    for target in [
        "/v1/topics/t/keys/k",
        "/v1/topics/t/events/2",
        "/ds/s?offset=-1",
    ] {
        let reply = world.ask(&format!("GET {target}"), "", b"");
        assert_eq!((reply.status, &reply.body[..]), (200, &body[..]));
        let policy = reply.get("content-security-policy").unwrap();
        assert!(policy.contains("sandbox"), "{policy}");
        assert!(policy.contains("default-src 'none'"), "{policy}");
        assert_eq!(reply.get("x-content-type-options"), Some("nosniff"));
    }
}

#[test]
fn a_filter_without_a_match_ends_with_a_link_to_the_next_page() {
    const RECORDS: u64 = 130;
    let world = with(&[]);
    assert_eq!(world.ask("PUT /v1/topics/t", "", b"").status, 201);
    let value = vec![b'v'; 1 << 20];
    for _ in 0..RECORDS {
        let (key, value) = (&b"k"[..], &value[..]);
        let put = Intention::new("t", Operation::Put { key, value });
        world.store.propose(&[put]).unwrap().wait().unwrap();
    }
    for (order, wait) in [("asc", "&wait=60"), ("desc", "")] {
        let mut target = format!("/v1/topics/t/events?key=none&order={order}{wait}");
        let mut pages = 0;
        loop {
            let reply = world.ask(&format!("GET {target}"), "", b"");
            assert_eq!((reply.status, reply.get("weir-count")), (200, Some("0")));
            pages += 1;
            let Some(link) = reply.get("link") else { break };
            let next = link.split(['<', '>']).nth(1).unwrap();
            // With `wait`, the last page would wait for a record that never arrives.
            target = next.replace("&wait=60", "");
            assert!(pages < 9, "{target}");
        }
        assert!(pages > 1, "{order}");
    }
}

/// The search would examine each window of offsets below `after`.
#[test]
fn a_page_newest_first_begins_at_the_last_record_if_after_is_above_it() {
    let world = world();
    for value in [b"1", b"2"] {
        let put = world.ask("PUT /v1/topics/t/keys/k", "", value);
        assert!(put.status < 300, "{put:?}");
    }
    for (after, newest) in [(3, 2), (1_000_000_000_000_u64, 3)] {
        let line = format!("GET /v1/topics/t/events?order=desc&after={after}");
        let page = world.ask(&line, "", b"");
        assert_eq!(page.status, 200, "{page:?}");
        let json = page.json();
        let records = json.as_array().unwrap().iter();
        let offsets = records.map(|record| record["offset"].as_u64());
        assert!(offsets.eq((1..=newest).rev().map(Some)), "{json}");
    }
}

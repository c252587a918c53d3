//! The content of the topic `.weir.audit`, and its limits.

use crate::peer::assert_line;
use crate::world::Files;
use weir_server::security::AUDIT_TOPIC;

#[test]
fn denied_and_administrative_requests_are_recorded() {
    let files = Files::new();
    let token = files.token("operator", &["create,destroy,put t.*"]);
    let world = files.start(|_| {});
    let mut peer = world.plain();
    assert_line(&peer.hello(token.expose()), "_notice_hello");
    assert_line(
        &peer.ask(":_topic\tt.a\n_request_create"),
        "_notice_committed",
    );
    assert_line(
        &peer.put("t.a", "writes are not recorded"),
        "_notice_committed",
    );
    assert_line(&peer.put("other", "1"), "_error_forbidden");
    assert_line(
        &peer.ask(":_topic\tt.a\n_request_destroy"),
        "_notice_committed",
    );
    let destroy = world.audited(&["\"allowed\"", "\"destroy\""]);
    // The topic has a retention limit.
    let topic = world.store.topic(".weir.audit").unwrap();
    assert!(topic.options.retention.is_limited());
    for part in [
        "\"time\":\"20",
        "\"topic\":\"t.a\"",
        "\"principal\":\"operator\"",
        "127.0.0.1:",
    ] {
        assert!(destroy.contains(part), "{destroy}");
    }
    let values = world.values(AUDIT_TOPIC);
    let order: Vec<&str> = ["\"create\"", "\"put\"", "\"destroy\""].into();
    let positions: Vec<usize> = order
        .iter()
        .map(|word| {
            values
                .iter()
                .position(|value| value.contains(word))
                .unwrap()
        })
        .collect();
    assert!(positions.is_sorted(), "{values:#?}");
    assert!(
        values
            .iter()
            .all(|value| !value.contains("writes are not recorded"))
    );
}

/// A record of the read would change the state that the read returns.
#[test]
fn a_read_of_the_status_is_recorded_only_if_it_is_denied() {
    let files = Files::new();
    let admin = files.token("operator", &["admin"]);
    let reader = files.token("reader", &["read **"]);
    let world = files.start(|_| {});
    for (token, answer) in [(&admin, "_data_status"), (&reader, "_error_forbidden")] {
        let mut peer = world.plain();
        assert_line(&peer.hello(token.expose()), "_notice_hello");
        assert_line(&peer.ask("_request_status"), answer);
    }
    // Records are written in the order of the requests.
    world.audited(&["\"denied\"", "\"admin\"", "\"reader\""]);
    let values = world.values(AUDIT_TOPIC);
    let is_allowed = |value: &String| value.contains("\"allowed\"");
    assert!(!values.iter().any(is_allowed), "{values:#?}");
}

#[test]
fn a_flood_of_denied_requests_is_counted_but_not_fully_written() {
    let files = Files::new();
    let token = files.token("a", &["read **"]);
    let world = files.start(|_| {});
    let mut peer = world.plain();
    assert_line(&peer.hello(token.expose()), "_notice_hello");
    let puts = "\n:_topic\tt\n_request_put\nx\n|\n".repeat(2_000);
    peer.send(puts.as_bytes());
    for _ in 0..2_000 {
        assert_line(&peer.read().unwrap(), "_error_forbidden");
    }
    drop(peer);
    // The record of the reload follows the flood and has the number of dropped audit records.
    world.server.reload().unwrap();
    world.audited(&["reload"]);
    let values = world.values(AUDIT_TOPIC);
    let dropped: u64 = values
        .iter()
        .filter_map(|value| {
            value
                .split("\"lost\":")
                .nth(1)?
                .trim_end_matches('}')
                .parse::<u64>()
                .ok()
        })
        .sum();
    let written = values
        .iter()
        .filter(|value| value.contains("\"denied\""))
        .count() as u64;
    assert_eq!(dropped + written, 2_000);
    assert!(written < 1_000, "{written}");
}

#[test]
fn pending_audit_records_are_written_before_the_server_ends() {
    let files = Files::new();
    files.token("a", &[]);
    let world = files.start(|_| {});
    for _ in 0..50 {
        world.server.reload().unwrap();
    }
    let store = std::sync::Arc::clone(&world.store);
    world.server.drain();
    world.server.wait().unwrap();
    let topic = store.topic(AUDIT_TOPIC).unwrap();
    assert_eq!(topic.last.0, 51, "CREATE and fifty records");
}

#[test]
fn without_identities_the_audit_log_is_off_by_default() {
    let world = Files::new().start(|_| {});
    world.server.reload().unwrap();
    let mut peer = world.plain();
    assert_line(&peer.hello(""), "_notice_hello");
    assert_line(
        &peer.ask(":_topic\tt\n_request_create"),
        "_notice_committed",
    );
    assert!(world.store.topic(AUDIT_TOPIC).is_none());
    let world = Files::new().start(|config| config.audit = Some(true));
    let mut peer = world.plain();
    assert_line(&peer.hello(""), "_notice_hello");
    assert_line(
        &peer.ask(":_topic\tt\n_request_create"),
        "_notice_committed",
    );
    world.audited(&["\"allowed\"", "\"create\""]);
}

//! A local and a remote store return equal results.

use std::time::Duration;

use weir::{
    ClientId, ConnectOptions, ConsequenceOffset, Detail, Effect, ErrorCode, Expect, ReadFrom,
    StoreError, TopicOptions, TxnOp, Weir, WeirError,
};

use crate::world::{CLIENT, UNREACHABLE, World, put};

/// Returns the information without the size in bytes, which depends on the timestamps.
fn sizeless(mut info: weir::TopicInfo) -> weir::TopicInfo {
    info.bytes = 0;
    info
}

/// Returns the results of a script of calls, as text.
#[allow(clippy::too_many_lines, reason = "one call after the other")]
fn script(weir: &Weir) -> Vec<String> {
    let mut lines = Vec::new();
    let mut push = |line: String| lines.push(line);
    let topic = weir.topic("t").unwrap();
    push(format!("{:?}", topic.put("k", "v").unwrap().commit()));
    push(format!("{}", topic.ensure().unwrap()));
    push(format!("{}", topic.ensure().unwrap()));
    push(format!("{:?}", topic.put("a", "1").unwrap().commit()));
    push(format!(
        "{:?}",
        topic.put("b", vec![0_u8; 50_000]).unwrap().commit()
    ));
    push(format!("{:?}", topic.append("no key").unwrap().commit()));
    let late = topic.put_if("a", "2", &[Expect::KeyAbsent(None)]).unwrap();
    assert_eq!(late.detail(), Detail::Actual(2));
    push(format!("{:?}", late.commit()));
    let steps = [
        TxnOp::Put {
            key: b"c",
            value: b"3",
            meta: b"m",
        },
        TxnOp::Delete {
            key: b"a",
            meta: b"",
        },
    ];
    push(format!(
        "{:?}",
        topic
            .txn(&steps, &[Expect::KeyPresent(Some(b"a"))])
            .unwrap()
            .commit()
    ));
    for key in ["a", "b", "c", "d"] {
        let value = topic.get(key).unwrap();
        push(format!(
            "{key} {:?}",
            value.as_ref().map(|v| (v.record().offset, v.value().len()))
        ));
    }
    for offset in 0..9 {
        let found = topic.at(ConsequenceOffset(offset)).unwrap();
        push(format!(
            "{offset} {:?}",
            found.as_ref().map(|v| (v.record().kind, v.record().nonce))
        ));
    }
    for (prefix, after, limit) in [
        ("", None, 10),
        ("b", None, 10),
        ("", Some("b"), 10),
        ("", None, 1),
    ] {
        let after = after.map(str::as_bytes);
        let keys = topic.scan(prefix.as_bytes(), after, limit).unwrap();
        push(format!("{keys:?}"));
        for entry in &keys {
            let value = topic.value(entry).unwrap().unwrap();
            push(format!("{}", value.value().len()));
        }
    }
    for from in [
        ReadFrom::Start,
        ReadFrom::End,
        ReadFrom::After(ConsequenceOffset(3)),
        ReadFrom::After(ConsequenceOffset(1000)),
        ReadFrom::Last(2),
        ReadFrom::Time(0),
        ReadFrom::Time(u64::MAX),
    ] {
        for page in topic.pages(from).unwrap() {
            for record in &page.unwrap() {
                let record = record.unwrap();
                let what = (
                    record.offset,
                    record.intention,
                    record.kind,
                    record.key,
                    record.flags,
                );
                push(format!(
                    "{from:?} {what:?} {} {:?}",
                    record.value.len(),
                    record.meta
                ));
            }
        }
    }
    let mut options = TopicOptions::default();
    options.keys_max = Some(1);
    push(format!("{:?}", topic.alter(&options).unwrap().commit()));
    push(format!("{:?}", topic.put("e", "5").unwrap().commit()));
    push(format!("{:?}", topic.info().map(sizeless)));
    let other = weir.topic("u").unwrap();
    push(format!("{:?}", other.info()));
    push(format!("{:?}", other.create(&options).unwrap().commit()));
    push(format!("{:?}", other.destroy().unwrap().commit()));
    for dead in [false, true] {
        let topics = weir.topics(dead).unwrap().into_iter().map(sizeless);
        push(format!("{:?}", topics.collect::<Vec<_>>()));
    }
    push(format!("{:?} {:?}", weir.program("t"), weir.durability()));
    let mut session = weir.session(CLIENT);
    push(format!("{}", session.next_nonce()));
    let answers = session
        .execute(&[put("t", "a", "1"), put("gone", "b", "2")])
        .unwrap();
    push(format!("{answers:?}"));
    push(format!("{}", session.next_nonce()));
    session.resume(1);
    let again = session.execute(&[
        put("t", "a", "1"),
        put("gone", "b", "2"),
        put("t", "c", "3"),
    ]);
    push(format!("{again:?}"));
    session.resume(9);
    push(format!(
        "{:?}",
        session
            .execute(&[put("t", "a", "1")])
            .map_err(|e| e.to_string())
    ));
    session.resume(3);
    push(format!(
        "{:?}",
        session
            .execute(&[put("t", "a", "other")])
            .map_err(|e| e.to_string())
    ));
    session.resume(4);
    push(format!(
        "{:?}",
        session
            .execute(&[put("t", "b", "4")])
            .map_err(|e| e.to_string())
    ));
    lines
}

#[test]
fn a_script_gets_equal_results_local_and_remote() {
    let world = World::new();
    let remote = world.connect();
    let dir = tempfile::tempdir().unwrap();
    let options = weir::OpenOptions {
        durability: weir::Durability::Memory,
        ..weir::OpenOptions::default()
    };
    let local = Weir::open_with(dir.path(), &options).unwrap();
    for (local, remote) in script(&local).iter().zip(&script(&remote)) {
        assert_eq!(local, remote);
    }
}

#[test]
fn remote_errors_have_the_types_of_local_errors() {
    let world = World::new();
    let remote = world.connect();
    let topic = remote.topic("t").unwrap();
    assert!(matches!(
        topic.reader(ReadFrom::Start),
        Err(WeirError::Store(StoreError::TopicUnknown { .. }))
    ));
    assert!(matches!(
        topic.put(vec![b'k'; 2000], "v"),
        Err(WeirError::Store(StoreError::Refused { index: 0, .. }))
    ));
    topic.ensure().unwrap();
    assert_eq!(topic.put("k", "v").unwrap().effect(), Effect::Valid);
}

#[test]
fn unreachable_and_malformed_addresses_have_their_own_codes() {
    let mut options = ConnectOptions::default();
    options.connect_timeout = Duration::from_millis(200);
    let error = Weir::connect_with(&format!("weir://{UNREACHABLE}"), &options).unwrap_err();
    let WeirError::Store(StoreError::Remote { code, .. }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(code, ErrorCode::Unreachable);
    for bad in ["http://x", "weir://", "nowhere"] {
        let error = Weir::connect_with(bad, &options).unwrap_err();
        let WeirError::Store(StoreError::Remote { code, .. }) = error else {
            panic!("{error:?}");
        };
        assert_eq!(code, ErrorCode::BadAddress, "{bad}");
    }
}

#[test]
fn many_threads_share_a_connection() {
    let world = World::new();
    let remote = world.connect();
    remote.topic("t").unwrap().ensure().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let remote = remote.clone();
            scope.spawn(move || {
                let topic = remote.topic("t").unwrap();
                for n in 0..100 {
                    let key = format!("{thread}.{n}");
                    assert!(topic.put(&key, &key).unwrap().is_valid());
                    assert_eq!(topic.get(&key).unwrap().unwrap().value(), key.as_bytes());
                }
            });
        }
    });
    assert_eq!(world.values("t").len(), 800);
}

#[test]
fn ten_thousand_writes_in_flight_are_answered_in_order() {
    let world = World::new();
    let remote = world.connect();
    remote.topic("t").unwrap().ensure().unwrap();
    let mut session = remote.session(ClientId([8; 16]));
    let mut pending = Vec::new();
    for n in 0..30_000 {
        let value = n.to_string();
        pending.push(session.send(&[put("t", "k", &value)]).unwrap());
    }
    for (n, pending) in pending.into_iter().enumerate() {
        let verdict = pending.wait().unwrap().remove(0);
        assert!(verdict.is_valid() && !verdict.is_replayed());
        assert_eq!(verdict.offset(), Some(ConsequenceOffset(n as u64 + 2)));
    }
    assert!(
        world
            .values("t")
            .iter()
            .enumerate()
            .all(|(n, value)| *value == n.to_string())
    );
}

#[test]
fn accepted_writes_are_sent_before_a_connection_is_dropped() {
    let world = World::new();
    let remote = world.connect();
    remote.topic("t").unwrap().ensure().unwrap();
    let mut session = remote.session(CLIENT);
    for n in 0..1000 {
        let value = n.to_string();
        drop(session.send(&[put("t", "k", &value)]).unwrap());
    }
    drop(session);
    assert_eq!(world.values("t").len(), 1000);
}

#[test]
fn a_remote_client_reads_the_status_and_compacts_the_log() {
    let world = World::new();
    let (local, remote) = (world.local(), world.connect());
    local.topic("t").unwrap().ensure().unwrap();
    local
        .topic("t")
        .unwrap()
        .put("k", "v")
        .unwrap()
        .ensure_valid()
        .unwrap();
    let (local_status, remote_status) = (local.status().unwrap(), remote.status().unwrap());
    assert_eq!(local_status.stats, remote_status.stats);
    assert_eq!(
        (remote_status.topics, remote_status.log_first_index),
        (1, 1)
    );
    assert_eq!(local_status.file_system, remote_status.file_system);
    assert_eq!(local_status.total_bytes, remote_status.total_bytes);
    assert_eq!(
        (local_status.server, remote_status.poison_cause),
        (None, None)
    );
    let server = remote_status.server.unwrap();
    assert!(server.ready && server.connections_native == 1, "{server:?}");
    assert!(
        server.answers.max_bytes > 0 && server.connections_max > 0,
        "{server:?}"
    );

    let report = remote.compact().unwrap();
    assert_eq!(report.index.0, remote_status.stats.applied_index);
    let then = remote.status().unwrap();
    assert_eq!(then.log_first_index, report.index.0 + 1);
    assert_eq!(then.stats.log_bytes, report.log_bytes_after);
    assert_eq!(
        remote
            .topic("t")
            .unwrap()
            .get("k")
            .unwrap()
            .unwrap()
            .value(),
        b"v"
    );
}

//! Tests the public API: verdicts, sessions that are resumed, reads from every start position, and
//! listeners that wait.
//!
//! No test sleeps; only a hang reaches the limit of a wait.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a failed expectation is what a test is for"
)]

use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant, UNIX_EPOCH};

use weir::query::Bounds;
use weir::{
    ClientId, ConsequenceOffset, Detail, Effect, ErrorCode, Expect, Intention, Operation, ReadFrom,
    TopicEnd, TopicQuery, TopicQueryOptions, TopicStep, TopicView, TxnOp, Weir, WeirError,
    interruptible,
};

const PATIENCE: Duration = Duration::from_mins(1);
const CLIENT: ClientId = ClientId([7; 16]);

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Intention<'a> {
    Intention::new("t", Operation::Put { key, value })
}

fn offsets(topic: &weir::Topic, from: ReadFrom) -> Vec<u64> {
    let mut found = Vec::new();
    for page in topic.pages(from).unwrap() {
        for record in &page.unwrap() {
            found.push(record.unwrap().offset.0);
        }
    }
    found
}

#[test]
fn a_verdict_has_the_outcome_and_an_invalid_one_is_not_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let weir = Weir::open(dir.path()).unwrap();
    let topic = weir.topic("t").unwrap();
    let without_topic = topic.put("k", "v").unwrap();
    assert_eq!(without_topic.effect(), Effect::Error);
    assert_eq!(without_topic.reason(), Some(ErrorCode::NoTopic));
    assert!(topic.ensure().unwrap() && !topic.ensure().unwrap());
    let first = topic.put("k", "v").unwrap();
    assert!(first.is_valid());
    assert_eq!(first.offset(), Some(ConsequenceOffset(2)));
    let conflict = topic.put_if("k", "w", &[Expect::KeyAbsent(None)]).unwrap();
    assert_eq!(conflict.effect(), Effect::Invalid);
    assert_eq!(conflict.reason(), Some(ErrorCode::Conflict));
    assert_eq!(conflict.detail(), Detail::Actual(2));
    assert_eq!(conflict.offset(), None);
    assert_eq!(topic.get("k").unwrap().unwrap().value(), b"v");
    let ops = [
        TxnOp::Delete {
            key: b"k",
            meta: b"",
        },
        TxnOp::Put {
            key: b"l",
            value: b"x",
            meta: b"",
        },
    ];
    assert!(topic.txn(&ops, &[]).unwrap().is_valid());
    assert!(topic.get("k").unwrap().is_none());
    assert!(topic.delete("never").unwrap().is_valid());
    assert!(topic.append("no key").unwrap().is_valid());
    assert!(topic.destroy().unwrap().is_valid());
    assert_eq!(
        topic.destroy().unwrap().reason(),
        Some(ErrorCode::TopicAbsent)
    );
    assert!(weir.topic("a b").is_err());
    assert!(weir.topic("never").unwrap().info().is_none());
    assert!(weir.topic("never").unwrap().pages(ReadFrom::Start).is_err());
}

#[test]
fn keys_can_be_bytes_that_are_not_utf8() {
    let dir = tempfile::tempdir().unwrap();
    let weir = Weir::open(dir.path()).unwrap();
    let topic = weir.topic("t").unwrap();
    topic.ensure().unwrap();
    let keys: [&[u8]; 4] = [b"\xff\xfe", b"\0", b"\xc3\x28", b"plain"];
    for key in keys {
        assert!(topic.put(key, key).unwrap().is_valid());
    }
    for key in keys {
        assert_eq!(topic.get(key).unwrap().unwrap().record().key, key);
    }
    let scanned: Vec<Vec<u8>> = topic
        .scan(b"", None, 10)
        .unwrap()
        .iter()
        .map(|entry| topic.value(entry).unwrap().unwrap().value().to_vec())
        .collect();
    let sorted: [&[u8]; 4] = [b"\0", b"plain", b"\xc3\x28", b"\xff\xfe"];
    assert_eq!(scanned, sorted);
}

#[test]
fn a_rejected_write_becomes_an_error_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let weir = Weir::open(dir.path()).unwrap();
    let missing = weir.topic("missing").unwrap();
    let error = missing.put("k", "v").unwrap().ensure_valid().unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoTopic);

    let topic = weir.topic("t").unwrap();
    topic.ensure().unwrap();
    let created = topic.put("k", "v").unwrap();
    created.ensure_valid().unwrap();
    let late = topic
        .put_if("k", "w", &[Expect::KeyOffset(None, 1)])
        .unwrap();
    assert_eq!(
        late.ensure_valid().unwrap_err().to_string(),
        "the write was rejected: CONFLICT (E104) (actual offset 2)"
    );
}

#[test]
fn a_read_begins_at_its_start_position() {
    let dir = tempfile::tempdir().unwrap();
    let weir = Weir::open(dir.path()).unwrap();
    let topic = weir.topic("t").unwrap();
    topic.ensure().unwrap();
    for n in 0..2_000_u32 {
        if n == 900 {
            // Else all records could have one time, and no record would be before it.
            let first = topic.at(ConsequenceOffset(1)).unwrap().unwrap();
            let time = first.record().time_ms;
            while u128::from(time) >= UNIX_EPOCH.elapsed().unwrap().as_millis() {}
        }
        drop(weir.propose(&[put(b"k", &[n as u8; 40])]).unwrap());
    }
    topic.append("end").unwrap().ensure_valid().unwrap();
    let last = 2_002;
    assert_eq!(
        offsets(&topic, ReadFrom::Start),
        (1..=last).collect::<Vec<_>>()
    );
    assert_eq!(offsets(&topic, ReadFrom::End), [0_u64; 0]);
    let after = ReadFrom::After(ConsequenceOffset(1_990));
    assert_eq!(offsets(&topic, after), (1_991..=last).collect::<Vec<_>>());
    assert_eq!(offsets(&topic, ReadFrom::Last(3)), [2_000, 2_001, 2_002]);
    assert_eq!(offsets(&topic, ReadFrom::Last(u64::MAX)).len() as u64, last);
    let time = topic
        .at(ConsequenceOffset(1_000))
        .unwrap()
        .unwrap()
        .record()
        .time_ms;
    let found = offsets(&topic, ReadFrom::Time(time));
    assert_eq!(*found.last().unwrap(), last);
    assert!(found[0] <= 1_000);
    let before = topic.at(ConsequenceOffset(found[0] - 1)).unwrap().unwrap();
    assert!(before.record().time_ms < time);
    assert!(offsets(&topic, ReadFrom::Time(u64::MAX)).is_empty());
    assert!(topic.at(ConsequenceOffset(last + 1)).unwrap().is_none());
    assert!(topic.at(ConsequenceOffset(0)).unwrap().is_none());
}

/// The values that a query returns, until it has none or `max` were returned.
fn values(query: &mut TopicQuery, max: usize) -> Vec<String> {
    let mut found = Vec::new();
    let until = Instant::now().checked_add(PATIENCE);
    while found.len() < max {
        let items_max = max - found.len();
        let bounds = Bounds {
            items_max,
            ..Bounds::default()
        };
        match query.next(bounds, until).unwrap() {
            TopicStep::Page(page) => {
                let values = page.iter().map(String::from_utf8_lossy);
                found.extend(values.map(String::from));
            }
            TopicStep::Done => break,
            TopicStep::Idle => panic!("no page arrived in time: {found:?}"),
        }
    }
    found
}

#[test]
fn a_query_begins_at_a_position_and_keeps_it_when_it_is_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let weir = Weir::open(dir.path()).unwrap();
    for name in ["q.a", "q.b"] {
        let topic = weir.topic(name).unwrap();
        topic.ensure().unwrap();
        for n in 1..=3 {
            topic
                .append(format!("{name}{n}"))
                .unwrap()
                .ensure_valid()
                .unwrap();
        }
    }
    let from = |from| {
        let mut options = TopicQueryOptions::new(["q.*"]);
        options.from = from;
        options
    };
    let all = |start| values(&mut weir.query(from(start)).unwrap(), usize::MAX);
    assert_eq!(all(ReadFrom::Last(1)), ["q.a3", "q.b3"]);
    let after = ReadFrom::After(ConsequenceOffset(2));
    assert_eq!(all(after), ["q.a2", "q.a3", "q.b2", "q.b3"]);
    assert_eq!(all(ReadFrom::Last(u64::MAX)), all(ReadFrom::Start));
    assert_eq!(all(ReadFrom::Time(0)), all(ReadFrom::Start));
    assert!(all(ReadFrom::Time(u64::MAX)).is_empty());
    assert!(all(ReadFrom::End).is_empty());
    let mut latest = from(ReadFrom::Last(1));
    latest.view = TopicView::Latest;
    let refused = weir.query(latest).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::BadOption);

    // A token keeps the position in each topic that the query found when it began.
    for (start, expected) in [
        (ReadFrom::End, &["q.b4", "q.c1"][..]),
        (ReadFrom::Last(1), &["q.a3", "q.b3", "q.b4", "q.c1"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let weir = Weir::open(dir.path()).unwrap();
        let append = |name: &str, n: u32| {
            let topic = weir.topic(name).unwrap();
            topic.ensure().unwrap();
            topic
                .append(format!("{name}{n}"))
                .unwrap()
                .ensure_valid()
                .unwrap();
        };
        for n in 1..=3 {
            append("q.a", n);
            append("q.b", n);
        }
        let mut options = from(start);
        options.end = TopicEnd::Follow;
        let query = weir.query(options.clone()).unwrap();
        options.token = Some(query.token().unwrap());
        drop(query);
        append("q.b", 4);
        append("q.c", 1);
        let mut query = weir.query(options).unwrap();
        assert_eq!(values(&mut query, expected.len()), expected, "{start:?}");
    }
}

#[test]
fn a_query_that_follows_every_topic_is_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let weir = Weir::open(dir.path()).unwrap();
    let topic = weir.topic("t").unwrap();
    topic.ensure().unwrap();
    for pattern in ["*", "**"] {
        let mut options = TopicQueryOptions::new([pattern]);
        options.from = ReadFrom::End;
        options.end = TopicEnd::Follow;
        let query = weir.query(options.clone()).unwrap();
        options.token = Some(query.token().unwrap());
        drop(query);
        topic.append(pattern).unwrap().ensure_valid().unwrap();
        let mut query = weir.query(options).unwrap();
        assert_eq!(values(&mut query, 1), [pattern]);
    }
}

#[test]
fn a_token_from_beyond_the_end_of_a_store_is_refused() {
    let (longer, shorter) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = |dir: &tempfile::TempDir, records: u32| {
        let weir = Weir::open(dir.path()).unwrap();
        let topic = weir.topic("t").unwrap();
        topic.ensure().unwrap();
        for _ in 0..records {
            topic.append("1").unwrap().ensure_valid().unwrap();
        }
        weir
    };
    let (longer, shorter) = (open(&longer, 3), open(&shorter, 1));
    let mut options = TopicQueryOptions::new(["t"]);
    options.token = Some(longer.query(options.clone()).unwrap().token().unwrap());
    longer.query(options.clone()).unwrap();
    let refused = shorter.query(options).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::TokenMismatch);
    assert!(refused.to_string().contains("has fewer records"));
}

#[test]
fn a_query_that_reads_records_can_be_interrupted_and_continues() {
    let dir = tempfile::tempdir().unwrap();
    let weir = Weir::open(dir.path()).unwrap();
    let topic = weir.topic("t").unwrap();
    topic.ensure().unwrap();
    topic.append("1").unwrap().ensure_valid().unwrap();
    let mut options = TopicQueryOptions::new(["t"]);
    options.text.select = "count".to_owned();
    let mut query = weir.query(options).unwrap();
    let interrupted = interruptible(Duration::ZERO, Arc::new(|| true), || {
        query.next(Bounds::default(), None)
    });
    assert_eq!(interrupted.unwrap_err().code(), ErrorCode::Cancelled);
    assert_eq!(values(&mut query, 1), ["1"]);
}

#[test]
fn a_follow_returns_each_new_record_and_ends_after_its_patience() {
    let dir = tempfile::tempdir().unwrap();
    let weir = Weir::open(dir.path()).unwrap();
    let topic = weir.topic("t").unwrap();
    topic.ensure().unwrap();
    let (sender, seen) = mpsc::channel();
    let ready = Arc::new(Barrier::new(2));
    let listener = {
        let (topic, ready) = (topic.clone(), Arc::clone(&ready));
        std::thread::spawn(move || {
            let pages = topic.follow(ReadFrom::End, PATIENCE).unwrap();
            ready.wait();
            for page in pages {
                for record in &page.unwrap() {
                    let value = record.unwrap().value.to_vec();
                    let last = value == b"end";
                    sender.send(value).unwrap();
                    if last {
                        return;
                    }
                }
            }
        })
    };
    ready.wait();
    for n in 0..50_u8 {
        topic.append([n]).unwrap().ensure_valid().unwrap();
        assert_eq!(seen.recv_timeout(PATIENCE).unwrap(), [n]);
    }
    topic.append("end").unwrap().ensure_valid().unwrap();
    listener.join().unwrap();
    let mut none = topic.follow(ReadFrom::End, Duration::ZERO).unwrap();
    assert!(none.next().is_none());
}

#[test]
fn a_session_that_is_opened_again_continues_and_repeats_no_write() {
    let dir = tempfile::tempdir().unwrap();
    let weir = Weir::open(dir.path()).unwrap();
    weir.topic("t").unwrap().ensure().unwrap();
    let mut session = weir.session(CLIENT);
    assert_eq!(session.next_nonce(), 1);
    let first = session
        .execute(&[put(b"a", b"1"), put(b"b", b"2")])
        .unwrap();
    assert!(first.iter().all(weir::Verdict::is_valid));
    assert!(first.iter().all(|verdict| !verdict.is_replayed()));
    drop(session);
    weir.close().unwrap();

    let weir = Weir::open(dir.path()).unwrap();
    let mut session = weir.session(CLIENT);
    assert_eq!(session.next_nonce(), 3);
    session.resume(1);
    let again = session
        .execute(&[put(b"a", b"1"), put(b"b", b"2")])
        .unwrap();
    for (first, again) in first.iter().zip(&again) {
        assert!(again.is_replayed());
        assert_eq!(first.offset(), again.offset());
    }
    session.resume(1);
    let reused = session.execute(&[put(b"a", b"other")]).unwrap_err();
    assert!(matches!(
        reused,
        WeirError::Nonce {
            nonce: 1,
            code: ErrorCode::NonceReused,
            expected: 3
        }
    ));
    session.resume(9);
    let gap = session.execute(&[put(b"a", b"1")]).unwrap_err();
    assert!(matches!(
        gap,
        WeirError::Nonce {
            nonce: 9,
            code: ErrorCode::NonceGap,
            expected: 3
        }
    ));
    assert_eq!(
        weir.topic("t").unwrap().info().unwrap().last,
        ConsequenceOffset(3)
    );
}

#[test]
fn closing_ends_every_handle_and_unlocks_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let weir = Weir::open(dir.path()).unwrap();
    let other = weir.clone();
    let topic = weir.topic("t").unwrap();
    let mut session = weir.session(CLIENT);
    topic.ensure().unwrap();
    topic.put("k", "v").unwrap().ensure_valid().unwrap();
    let value = topic.get("k").unwrap().unwrap();
    assert!(Weir::open(dir.path()).is_err(), "the directory is locked");
    let waiting = topic.follow(ReadFrom::End, PATIENCE).unwrap();
    let listener = std::thread::spawn(move || waiting.count());
    weir.close().unwrap();
    assert_eq!(listener.join().unwrap(), 0, "the listener ends");
    let closed = |error: WeirError| matches!(error, WeirError::Store(weir::StoreError::Closed));
    assert!(closed(topic.put("k", "w").unwrap_err()));
    assert!(closed(session.execute(&[put(b"k", b"w")]).unwrap_err()));
    assert!(other.store().unwrap().compact_log().is_err());
    assert_eq!(value.value(), b"v", "a value that was read stays valid");
    let again = Weir::open(dir.path()).unwrap();
    assert!(again.store().unwrap().report().log.clean);
    let topic = again.topic("t").unwrap();
    assert_eq!(topic.get("k").unwrap().unwrap().value(), b"v");
    // Closing the old handles does not affect the new owner.
    drop((other, session));
    assert!(topic.put("k", "w").unwrap().is_valid());
    again.close().unwrap();
}

#[test]
fn a_store_that_is_open_for_writing_can_be_opened_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Weir::open(dir.path()).unwrap();
    let written = writer.topic("t").unwrap();
    assert!(written.ensure().unwrap());
    let first = written.put("k", "v").unwrap();
    let reader = Weir::open_read_only(dir.path()).unwrap();
    let read = reader.topic("t").unwrap();
    assert_eq!(read.get("k").unwrap().unwrap().value(), b"v");
    assert_eq!(
        offsets(&read, ReadFrom::Start).last().copied(),
        first.offset().map(|at| at.0)
    );
    let WeirError::Store(error) = read.put("k", "w").unwrap_err() else {
        panic!("not an error of the store");
    };
    assert_eq!(error.code(), ErrorCode::OpenedReadOnly);
    let refused = reader.session(CLIENT).execute(&[put(b"k", b"w")]);
    assert!(matches!(
        refused,
        Err(WeirError::Store(weir::StoreError::ReadOnly))
    ));
    // The writer continues.
    assert!(written.put("k", "x").unwrap().is_valid());
}

//! One set of tests for a local and a remote store: sessions (S), listeners (L), reads (K),
//! conditions and transactions (X).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir::{
    ClientId, ConsequenceOffset, Durability, ErrorCode, Expect, GroupMode, OpenOptions, ReadFrom,
    RecordKind, StoreError, TopicOptions, TxnOp, Weir, WeirError,
};
use weir_store::Store;

use crate::world::{World, put};

/// Longest wait; only a test that hangs reaches it.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a test with a handle, another handle on its store, and the store.
pub(crate) fn local_and_remote(body: impl Fn(&Weir, &Weir, &Store)) {
    let directory = tempfile::tempdir().unwrap();
    let options = OpenOptions {
        durability: Durability::Memory,
        ..OpenOptions::default()
    };
    let local = Weir::open_with(directory.path(), &options).unwrap();
    body(&local, &local.clone(), local.store().unwrap());
    let world = World::new();
    let store: Arc<Store> = Arc::clone(&world.store);
    body(&world.connect(), &world.connect(), &store);
}

fn values(weir: &Weir, topic: &str) -> Vec<String> {
    let mut values = Vec::new();
    for page in weir.topic(topic).unwrap().pages(ReadFrom::Start).unwrap() {
        for record in &page.unwrap() {
            let record = record.unwrap();
            if record.kind == RecordKind::Put {
                values.push(String::from_utf8(record.value.to_vec()).unwrap());
            }
        }
    }
    values
}

fn nonce_error(error: WeirError) -> (ErrorCode, u64) {
    match error {
        WeirError::Nonce { code, expected, .. } => (code, expected),
        other => panic!("{other:?}"),
    }
}

#[test]
fn s_writes_out_of_order_are_refused_until_their_turn() {
    local_and_remote(|weir, _, _| {
        weir.topic("t").unwrap().ensure().unwrap();
        let mut session = weir.session(ClientId([1; 16]));
        let all: Vec<String> = (1..=4).map(|n| n.to_string()).collect();
        let write = |session: &mut weir::Session, n: usize| {
            session.resume(n as u64);
            session.execute(&[put("t", "k", &all[n - 1])])
        };
        for early in [3, 2, 4] {
            let error = nonce_error(write(&mut session, early).unwrap_err());
            assert!(
                matches!(error, (ErrorCode::NonceGap | ErrorCode::SessionExpired, 1)),
                "{error:?}"
            );
        }
        assert!(write(&mut session, 1).unwrap()[0].is_valid());
        assert_eq!(
            nonce_error(write(&mut session, 3).unwrap_err()),
            (ErrorCode::NonceGap, 2)
        );
        for n in 2..=4 {
            assert!(write(&mut session, n).unwrap()[0].is_valid());
        }
        assert!(write(&mut session, 2).unwrap()[0].is_replayed());
        assert_eq!(values(weir, "t"), all);
    });
}

#[test]
fn s_a_run_continues_after_each_of_its_writes() {
    const RUN: u64 = 1000;
    local_and_remote(|weir, other, _| {
        weir.topic("t").unwrap().ensure().unwrap();
        let client = ClientId([2; 16]);
        let all: Vec<String> = (1..=RUN).map(|n| n.to_string()).collect();
        for cut in 1..=RUN {
            // A writer that does not know the outcomes of the last three writes.
            let handle = if cut % 2 == 0 { weir } else { other };
            let mut session = handle.session(client);
            assert_eq!(session.next_nonce(), cut);
            let from = cut.saturating_sub(3).max(1);
            session.resume(from);
            let range = usize::try_from(from - 1).unwrap()..usize::try_from(cut).unwrap();
            let again: Vec<_> = all[range].iter().map(|v| put("t", "k", v)).collect();
            let verdicts = session.execute(&again).unwrap();
            let (last, before) = verdicts.split_last().unwrap();
            assert!(last.is_valid() && !last.is_replayed(), "{cut}");
            assert!(before.iter().all(weir::Verdict::is_replayed), "{cut}");
        }
        assert!(values(weir, "t") == all, "each once and in order");
    });
}

#[test]
fn l_listeners_start_at_every_position_of_two_incarnations() {
    local_and_remote(|weir, _, _| {
        let topic = weir.topic("t").unwrap();
        topic.ensure().unwrap();
        topic.put("a", "1").unwrap().ensure_valid().unwrap();
        topic.put("b", "2").unwrap().ensure_valid().unwrap();
        topic.destroy().unwrap().ensure_valid().unwrap();
        topic.ensure().unwrap();
        topic.put("a", "3").unwrap().ensure_valid().unwrap();
        let offsets = |from: ReadFrom, last: u64| {
            let mut seen = Vec::new();
            for page in topic.follow(from, TEST_TIMEOUT).unwrap() {
                for record in &page.unwrap() {
                    seen.push(record.unwrap().offset.0);
                }
                if seen.last().is_some_and(|seen| *seen >= last) {
                    break;
                }
            }
            seen
        };
        for after in 0..6 {
            let seen = offsets(ReadFrom::After(ConsequenceOffset(after)), 6);
            assert_eq!(seen, (after + 1..=6).collect::<Vec<_>>());
        }
        assert_eq!(offsets(ReadFrom::Last(2), 6), [5, 6]);
        // A listener at the end, and one at a future offset.
        let mut tail = topic.listener(ReadFrom::End).unwrap();
        let mut future = topic
            .listener(ReadFrom::After(ConsequenceOffset(7)))
            .unwrap();
        topic.put("c", "4").unwrap().ensure_valid().unwrap();
        topic.put("d", "5").unwrap().ensure_valid().unwrap();
        for (reader, first) in [(&mut tail, 7), (&mut future, 8)] {
            assert!(reader.wait(std::time::Instant::now().checked_add(TEST_TIMEOUT)));
            let page = reader.next_page().unwrap().unwrap();
            assert_eq!(page.iter().next().unwrap().unwrap().offset.0, first);
        }
    });
}

#[test]
fn l_a_listener_at_removed_records_gets_an_error() {
    local_and_remote(|weir, _, store| {
        let topic = weir.topic("t").unwrap();
        let mut options = TopicOptions::default();
        options.retention.records = Some(0);
        assert!(topic.create(&options).unwrap().is_valid());
        for n in 0..8 {
            topic
                .put("k", n.to_string())
                .unwrap()
                .ensure_valid()
                .unwrap();
        }
        assert!(store.retain(None).unwrap().records > 0);
        let removed = store.removed("t").0;
        topic.put("k", "new").unwrap().ensure_valid().unwrap();
        let mut reader = topic
            .listener(ReadFrom::After(ConsequenceOffset(2)))
            .unwrap();
        let error = loop {
            match reader.next_page() {
                Err(error) => break error,
                Ok(Some(page)) => panic!("{:?}", page.last()),
                Ok(None) => drop(reader.wait(std::time::Instant::now().checked_add(TEST_TIMEOUT))),
            }
        };
        let StoreError::RecordsGone { first, last } = error else {
            panic!("{error:?}");
        };
        assert_eq!((first, last), (removed + 1, removed + 1));
        // The start is the first remaining record.
        assert_eq!(values(weir, "t"), ["new"]);
    });
}

#[test]
fn k_an_acknowledged_write_is_visible_to_every_client() {
    local_and_remote(|weir, other, _| {
        let (here, there) = (weir.topic("t").unwrap(), other.topic("t").unwrap());
        here.ensure().unwrap();
        for n in 0..500_u32 {
            let (writer, reader) = if n % 2 == 0 {
                (&here, &there)
            } else {
                (&there, &here)
            };
            let offset = writer.put("k", n.to_string()).unwrap().offset().unwrap();
            let seen = reader.get("k").unwrap().unwrap();
            assert_eq!(seen.record().offset, offset);
            assert_eq!(reader.info().unwrap().last, offset);
            let record = reader.at(offset).unwrap().unwrap();
            assert_eq!(record.value(), n.to_string().as_bytes());
            let mut tail = reader
                .listener(ReadFrom::After(ConsequenceOffset(offset.0 - 1)))
                .unwrap();
            assert!(tail.wait(std::time::Instant::now().checked_add(TEST_TIMEOUT)));
        }
    });
}

#[test]
fn x_every_condition_holds_and_fails_as_documented() {
    local_and_remote(|weir, _, _| {
        let topic = weir.topic("t").unwrap();
        topic.ensure().unwrap();
        let at = topic.put("k", "1").unwrap().offset().unwrap().0;
        let incarnation = topic.info().unwrap().incarnation.unwrap().0;
        let table: &[(Expect<'_>, bool)] = &[
            (Expect::KeyOffset(None, at), true),
            (Expect::KeyOffset(None, at - 1), false),
            (Expect::KeyOffset(None, 0), false),
            (Expect::KeyPresent(None), true),
            (Expect::KeyAbsent(None), false),
            (Expect::KeyAbsent(Some(b"other")), true),
            (Expect::KeyPresent(Some(b"other")), false),
            (Expect::TopicOffset(at), true),
            (Expect::TopicOffset(at + 1), false),
            (Expect::Incarnation(incarnation), true),
            (Expect::Incarnation(incarnation + 1), false),
        ];
        // A write with a failed condition changes nothing, so all conditions see one state.
        for (expect, _) in table.iter().filter(|(_, holds)| !holds) {
            let verdict = topic.put_if("k", "2", &[*expect]).unwrap();
            assert_eq!(verdict.reason(), Some(ErrorCode::Conflict), "{expect:?}");
        }
        // All conditions that hold, together.
        let all: Vec<Expect<'_>> = table.iter().filter(|(_, h)| *h).map(|(e, _)| *e).collect();
        assert!(topic.put_if("k", "3", &all).unwrap().is_valid());
        assert!(!topic.put_if("k", "4", &all).unwrap().is_valid());
    });
}

#[test]
fn x_a_transaction_is_applied_as_a_whole_or_not_at_all() {
    local_and_remote(|weir, other, _| {
        let topic = weir.topic("t").unwrap();
        topic.ensure().unwrap();
        let both = |n: u32| {
            let value = n.to_string().into_bytes();
            let ops = [b"a", b"b"].map(|key| TxnOp::Put {
                key: &key[..],
                value: &value,
                meta: b"",
            });
            topic.txn(&ops, &[]).unwrap()
        };
        both(0).ensure_valid().unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = BTreeMap::new();
                let mut last = None;
                let pages = other.topic("t").unwrap();
                for page in pages.follow(ReadFrom::Start, TEST_TIMEOUT).unwrap() {
                    for record in &page.unwrap() {
                        let record = record.unwrap();
                        if record.kind == RecordKind::Put {
                            let value = String::from_utf8(record.value.to_vec()).unwrap();
                            last = value.parse::<u32>().ok();
                            let run = seen.entry(record.intention).or_insert_with(Vec::new);
                            run.push((value, record.flags.last()));
                        }
                    }
                    if last == Some(200) {
                        return seen;
                    }
                }
                panic!("the records stop");
            });
            for n in 1..=200 {
                assert_eq!(both(n).records(), 2);
                // A transaction that fails in its second operation changes nothing.
                let long = vec![0; 2 << 20];
                let ops = [&b"small"[..], &long].map(|value| TxnOp::Put {
                    key: b"a",
                    value,
                    meta: b"",
                });
                assert!(topic.txn(&ops, &[]).is_err());
            }
            for (intention, run) in reader.join().unwrap() {
                let [(first, false), (second, true)] = &run[..] else {
                    panic!("{intention:?}: {run:?}");
                };
                assert_eq!(first, second);
            }
        });
    });
}

#[test]
fn a_call_that_is_longer_than_a_packet_is_refused_and_the_connection_continues() {
    let world = World::new();
    let remote = world.connect();
    let topic = remote.topic("t").unwrap();
    topic.ensure().unwrap();
    let value = "x".repeat(1 << 20);
    let error = remote
        .propose(&vec![put("t", "k", &value); 66])
        .unwrap_err();
    assert!(
        matches!(error, WeirError::Store(StoreError::LimitExceeded { .. })),
        "{error:?}"
    );
    assert!(topic.put("k", "1").unwrap().is_valid());
}

#[test]
fn keys_and_names_that_cannot_exist_are_not_found_and_the_connection_continues() {
    local_and_remote(|weir, _, _| {
        let topic = weir.topic("t").unwrap();
        topic.ensure().unwrap();
        topic.put("k", "1").unwrap().ensure_valid().unwrap();
        let long = vec![b'k'; 70_000];
        for key in [&b""[..], &long] {
            assert!(topic.get(key).unwrap().is_none());
        }
        assert!(topic.scan(&long, None, 10).unwrap().is_empty());
        assert!(topic.scan(b"", Some(&long), 10).unwrap().is_empty());
        assert!(weir.program("").unwrap().is_none());
        let group = topic.group("g", GroupMode::Shared).unwrap();
        let claimed = group.member("m".repeat(65)).claim(1, Duration::ZERO);
        assert_eq!(claimed.unwrap_err().code(), ErrorCode::BadRequest);
        assert!(topic.get("k").unwrap().is_some());
    });
}

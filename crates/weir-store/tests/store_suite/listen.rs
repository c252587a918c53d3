//! Listeners receive each record of their topic once and in order, also during maintenance of
//! the topic (I5).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_core::intention::{Intention, Operation};
use weir_core::{ClientId, ConsequenceOffset};
use weir_store::disk::SimDisk;
use weir_store::{Store, StoreError, TopicReader};

use crate::disks::{Gate, Op, Rule};
use crate::world::{
    Rec, create, create_with, drain, execute, latest, open, put, put_many, records,
};

/// Much longer than any step takes. A test that waits so long hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// Follows a topic on a separate thread until a record with the key `end`.
fn follow(mut reader: TopicReader, end: &'static [u8]) -> JoinHandle<Vec<Rec>> {
    std::thread::spawn(move || {
        let mut found: Vec<Rec> = Vec::new();
        loop {
            while let Some(page) = reader.next_page().unwrap() {
                for record in &page {
                    found.push(Rec::from(record.unwrap()));
                }
            }
            if found.last().is_some_and(|last| last.key == end) {
                return found;
            }
            assert!(
                reader.wait(Instant::now().checked_add(PATIENCE)),
                "no record arrived"
            );
        }
    })
}

/// Five threads write to a topic, one record at a time and in batches.
fn produce(store: &Arc<Store>, topic: &'static str, calls: u64) {
    let start = Arc::new(Barrier::new(5));
    let threads: Vec<_> = (1..=5_u8)
        .map(|writer| {
            let (store, start) = (Arc::clone(store), Arc::clone(&start));
            std::thread::spawn(move || {
                start.wait();
                let client = ClientId([writer; 16]);
                let mut nonce = store.last_nonce(client);
                for call in 0..calls {
                    let size = if call % 3 == 0 { 17 } else { 1 };
                    let value = vec![writer; usize::from(writer) * 40];
                    let key = [writer, (call % 200) as u8];
                    let items: Vec<_> = (1..=size)
                        .map(|n| put(topic, &key, &value).under(client, nonce + n))
                        .collect();
                    execute(&store, &items);
                    nonce += size;
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

fn is_dense(found: &[Rec], from: u64) -> bool {
    (from..)
        .zip(found)
        .all(|(offset, record)| record.offset == offset)
}

#[test]
fn listeners_from_any_offset_get_each_record_once_during_writes() {
    let store = Arc::new(open(Arc::new(SimDisk::new())));
    create(&store, "t");
    put_many(
        &store,
        "t",
        (0..300_u32).map(|n| (b"early", n.to_be_bytes())),
    );
    let at = |after: u64| store.read("t", ConsequenceOffset(after)).unwrap();
    let mut from_time = at(0);
    let time = {
        let page = at(200).next_page().unwrap().unwrap();
        page.iter().next().unwrap().unwrap().time_ms
    };
    from_time.seek_time(time).unwrap();
    let time_start = from_time.position().0;
    assert!((1..=201).contains(&time_start), "{time_start}");
    let end = at(0).last().0;
    assert_eq!(end, 301);
    let listeners = [
        (1, follow(at(0), b"end")),
        (151, follow(at(150), b"end")),
        (end + 1, follow(at(end), b"end")),
        (end - 9, follow(at(end - 10), b"end")),
        (time_start, follow(from_time, b"end")),
        (1, follow(at(0), b"end")),
    ];
    produce(&store, "t", 150);
    execute(&store, &[put("t", b"end", b"")]);
    let all = records(&store, "t");
    assert!(is_dense(&all, 1));
    for (from, listener) in listeners {
        let found = listener.join().unwrap();
        assert!(is_dense(&found, from), "from {from}");
        assert!(found == all[from as usize - 1..]);
    }
}

#[test]
fn a_listener_continues_in_the_next_incarnation_of_its_topic() {
    let store = Arc::new(open(Arc::new(SimDisk::new())));
    create(&store, "t");
    let listener = follow(store.read("t", ConsequenceOffset::ZERO).unwrap(), b"end");
    execute(&store, &[put("t", b"k", b"1")]);
    execute(&store, &[Intention::new("t", Operation::Destroy)]);
    assert!(store.get("t", b"k").unwrap().is_none());
    create(&store, "t");
    assert!(
        store.get("t", b"k").unwrap().is_none(),
        "a DESTROY removes the keys"
    );
    execute(&store, &[put("t", b"end", b"2")]);
    let found = listener.join().unwrap();
    assert!(is_dense(&found, 1));
    let kinds: Vec<&str> = found.iter().map(|r| r.kind.name()).collect();
    assert_eq!(kinds, ["CREATE", "PUT", "DESTROY", "CREATE", "PUT"]);
}

#[test]
fn maintenance_neither_hides_nor_repeats_records() {
    let disk = SimDisk::new();
    let store = Arc::new(open(Arc::new(disk)));
    create_with(&store, "t", &latest());
    let stop = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new(AtomicU64::new(0));
    let maintenance = {
        let (store, stop, rounds) = (Arc::clone(&store), Arc::clone(&stop), Arc::clone(&rounds));
        std::thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) || rounds.load(Ordering::SeqCst) < 3 {
                store.checkpoint().unwrap();
                store.compact_topic("t").unwrap();
                store.compact_log().unwrap();
                rounds.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    let live = follow(store.read("t", ConsequenceOffset(1)).unwrap(), b"end");
    let late = follow(store.read("t", ConsequenceOffset(1)).unwrap(), b"end");
    produce(&store, "t", 100);
    stop.store(true, Ordering::SeqCst);
    maintenance.join().unwrap();
    execute(&store, &[put("t", b"end", b"")]);
    let retained = records(&store, "t");
    for listener in [live, late] {
        let found = listener.join().unwrap();
        assert!(found.windows(2).all(|w| w[0].offset < w[1].offset));
        // The records that compaction retained must have been received, with equal bytes.
        let mut seen = found.iter();
        for record in retained.iter().filter(|record| record.offset > 1) {
            assert!(seen.any(|r| r == record), "offset {}", record.offset);
        }
        // A newer record with the same key was received for each record that compaction
        // removed.
        let newest = |key: &[u8]| found.iter().rev().find(|r| r.key == key).unwrap();
        for record in &found {
            assert!(retained.contains(newest(&record.key)));
        }
    }
}

#[test]
fn a_waiting_listener_is_woken_by_a_visible_record() {
    let gate = Gate::new(SimDisk::new());
    let store = Arc::new(open(gate.disk()));
    create(&store, "t");
    create(&store, "other");
    let reader = store.read("t", ConsequenceOffset(1)).unwrap();
    let (sender, woken) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        // No deadline: the call returns only when it is woken.
        sender.send(reader.wait(None)).unwrap();
    });
    execute(&store, &[put("other", b"k", b"v")]);
    gate.rule(Op::Sync, "log/", Rule::Hold);
    let proposal = store.propose(&[put("t", b"k", b"v")]).unwrap();
    gate.wait_held();
    assert!(woken.try_recv().is_err(), "no wake before the sync");
    gate.release();
    proposal.wait().unwrap();
    assert_eq!(woken.recv_timeout(PATIENCE), Ok(true));
    waiter.join().unwrap();
    let now = Instant::now();
    let reader = store.read("t", ConsequenceOffset(2)).unwrap();
    assert!(
        !reader.wait(Some(now)),
        "a deadline that has passed does not wait"
    );
    assert!(
        !store
            .wait("t", ConsequenceOffset(2), Duration::ZERO)
            .unwrap()
    );
    assert!(store.wait("t", ConsequenceOffset(1), PATIENCE).unwrap());
}

#[test]
fn a_close_of_the_store_ends_the_wait_of_a_listener() {
    let store = open(Arc::new(SimDisk::new()));
    create(&store, "t");
    let reader = store.read("t", ConsequenceOffset::ZERO).unwrap();
    let (sender, ended) = mpsc::channel();
    let mut waiting = reader.clone();
    let waiter = std::thread::spawn(move || {
        let mut found = Vec::new();
        while waiting.wait(None) {
            found.extend(drain(&mut waiting).unwrap());
        }
        sender.send(found.len()).unwrap();
    });
    execute(&store, &[put("t", b"k", b"v")]);
    store.close().unwrap();
    assert_eq!(
        ended.recv_timeout(PATIENCE),
        Ok(2),
        "all records, then the end"
    );
    waiter.join().unwrap();
    let mut reader = reader;
    assert_eq!(
        drain(&mut reader).unwrap().len(),
        2,
        "the records stay readable"
    );
    assert!(!reader.wait(None), "a closed store has no more records");
}

#[test]
fn a_compaction_does_not_change_a_page_in_use() {
    let store = open(Arc::new(SimDisk::new()));
    create_with(&store, "t", &latest());
    put_many(&store, "t", (0..2_000_u32).map(|n| (b"k", [n as u8; 50])));
    store.checkpoint().unwrap();
    let mut reader = store.read("t", ConsequenceOffset::ZERO).unwrap();
    let page = reader.next_page().unwrap().unwrap();
    let before: Vec<Rec> = page.iter().map(|r| Rec::from(r.unwrap())).collect();
    let report = store.compact_topic("t").unwrap();
    assert_eq!(report.records_before, 2001);
    assert_eq!(report.records_after, 2);
    store.compact_log().unwrap();
    let after: Vec<Rec> = page.iter().map(|r| Rec::from(r.unwrap())).collect();
    assert!(before.len() > 10 && before == after);
    // The started reader continues after the removed records.
    let rest = drain(&mut reader).unwrap();
    assert_eq!(rest.iter().map(|r| r.offset).collect::<Vec<_>>(), [2001]);
}

#[test]
fn a_segment_that_is_removed_while_a_reader_opens_it_is_no_error() {
    let gate = Gate::new(SimDisk::new());
    let store = Arc::new(open(gate.disk()));
    create_with(&store, "t", &latest());
    let items = (0..300_u32).map(|n| ((n % 3).to_be_bytes(), [n as u8; 90]));
    put_many(&store, "t", items);
    // With more topics than open files, the file of the first topic is closed.
    for n in 0..200 {
        create(&store, &format!("other-{n}"));
    }
    store.checkpoint().unwrap();
    gate.rule(Op::Open, "topics/00000000", Rule::HoldOne);
    let reader = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || records(&store, "t"))
    };
    gate.wait_held();
    let report = store.compact_topic("t").unwrap();
    assert_eq!(report.records_after, 4);
    gate.release();
    let offsets: Vec<u64> = reader.join().unwrap().iter().map(|r| r.offset).collect();
    assert_eq!(offsets, [1, 299, 300, 301]);
}

#[test]
fn a_slow_reader_delays_no_writer_and_misses_no_record() {
    let store = Arc::new(open(Arc::new(SimDisk::new())));
    create(&store, "t");
    let mut slow = store.read("t", ConsequenceOffset::ZERO).unwrap();
    let mut found = Vec::new();
    for round in 0..40_u32 {
        let items = (0..25).map(|n| (b"", vec![round as u8; 700 + n]));
        put_many(&store, "t", items);
        if round % 10 == 0 {
            let page = slow.next_page().unwrap().unwrap();
            found.extend(page.iter().map(|r| Rec::from(r.unwrap())));
        }
    }
    assert!(found.len() < 200, "the reader is behind the writer");
    found.extend(drain(&mut slow).unwrap());
    assert_eq!(found, records(&store, "t"));
    assert!(is_dense(&found, 1));
}

#[test]
fn an_unknown_topic_has_no_reader() {
    let store = open(Arc::new(SimDisk::new()));
    let unknown =
        |error: StoreError| matches!(error, StoreError::TopicUnknown { name } if name == "t");
    assert!(unknown(
        store.read("t", ConsequenceOffset::ZERO).unwrap_err()
    ));
    assert!(unknown(store.get("t", b"k").unwrap_err()));
    assert!(unknown(store.scan("t", b"", None, 1).unwrap_err()));
    assert!(unknown(store.compact_topic("t").unwrap_err()));
    assert!(store.topic("t").is_none());
    // A PUT does not create the topic either.
    let commits = execute(&store, &[put("t", b"k", b"v")]);
    assert_eq!(commits[0].reason, Some(weir_core::ErrorCode::NoTopic));
    assert!(store.topic("t").is_none());
    create(&store, "t");
    assert_eq!(records(&store, "t").len(), 1);
}

#[test]
fn a_time_is_found_with_any_stamps() {
    let store = open(Arc::new(SimDisk::new()));
    create(&store, "t");
    for n in 0..3_000_u32 {
        drop(store.propose(&[put("t", b"", &[n as u8; 60])]).unwrap());
    }
    execute(&store, &[put("t", b"", b"")]);
    let mut stamps = Vec::new();
    let mut reader = store.read("t", ConsequenceOffset::ZERO).unwrap();
    while let Some(page) = reader.next_page().unwrap() {
        for record in &page {
            let record = record.unwrap();
            stamps.push((record.time_ms, record.offset.0));
        }
    }
    assert!(
        stamps.windows(2).all(|w| w[0].0 <= w[1].0),
        "stamps never decrease"
    );
    let (first, last) = (stamps[0].0, stamps[stamps.len() - 1].0);
    // All records may have one stamp: then there is no later stamp to search for.
    for time in [
        0,
        first,
        (first + 1).min(last),
        u64::midpoint(first, last),
        last,
    ] {
        let expected = stamps.iter().find(|(stamp, _)| *stamp >= time).unwrap().1;
        reader.seek_time(time).unwrap();
        assert_eq!(reader.position().0, expected, "time {time}");
    }
    reader.seek_time(last + 1).unwrap();
    assert!(reader.next_page().unwrap().is_none());
}

/// Runs a future on this thread, which sleeps until the waker is called.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    let end = Instant::now() + PATIENCE;
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        assert!(Instant::now() < end, "the future was not woken");
        std::thread::park_timeout(PATIENCE);
    }
}

#[test]
fn a_task_waits_without_a_thread() {
    let store = Arc::new(open(Arc::new(SimDisk::new())));
    // The task waits before the topic exists, and after each record that it read.
    let mut reader = store.listen("t", ConsequenceOffset::ZERO);
    let (sender, received) = mpsc::channel();
    let follower = std::thread::spawn(move || {
        let mut found = Vec::new();
        while block_on(reader.changed()) {
            while let Some(page) = reader.next_page().unwrap() {
                found.extend(page.iter().map(|record| record.unwrap().offset.0));
            }
            sender.send(found.len()).unwrap();
        }
        found
    });
    create(&store, "t");
    for n in 0..200_u64 {
        execute(&store, &[put("t", b"k", &n.to_le_bytes())]);
        if n % 50 == 0 {
            // Wait until the task has read all records, so that it waits again.
            while received.recv_timeout(PATIENCE).unwrap() < usize::try_from(n + 2).unwrap() {}
        }
    }
    // A dropped wait does not consume the wake of another reader.
    for _ in 0..100 {
        let mut reader = store.read("t", ConsequenceOffset::ZERO).unwrap();
        reader.seek(reader.last());
        let mut changed = std::pin::pin!(reader.changed());
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        assert!(changed.as_mut().poll(&mut context).is_pending());
    }
    while received.recv_timeout(PATIENCE).unwrap() < 201 {}
    store.shut_down().unwrap();
    assert_eq!(follower.join().unwrap(), (1..=201).collect::<Vec<_>>());
}

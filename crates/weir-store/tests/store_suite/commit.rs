//! When calls complete, and which calls share a sync.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use weir_core::{ClientId, Effect, ErrorCode, Outcome};
use weir_store::disk::SimDisk;
use weir_store::{Durability, OpenOptions, Proposal, Store, StoreError};

use crate::disks::{EIO, Gate, Op, Rule};
use crate::world::{
    CLIENT, create, execute, keys, open, options, outcomes, put, put_many, records, state,
};

/// Waits until the log is sealed. Returns the number of syncs of the log on the disk, and of its
/// writes.
fn syncs(gate: &Gate, store: &Store) -> (usize, u64) {
    gate.wait_sealed();
    (gate.count(Op::Sync, "log/"), store.stats().syncs)
}

/// Checks the number of syncs since `before`. On the disk, there may be one more: that of a seal
/// after the last write.
fn check_syncs(gate: &Gate, store: &Store, before: (usize, u64), expected: usize) {
    let of_writes = store.stats().syncs - before.1;
    assert_eq!(of_writes, expected as u64);
    let on_disk = gate.count(Op::Sync, "log/") - before.0;
    assert!((expected..=expected + 1).contains(&on_disk), "{on_disk}");
}

#[test]
fn calls_that_arrive_during_a_sync_share_the_next_sync() {
    let gate = Gate::new(SimDisk::new());
    let store = open(gate.disk());
    create(&store, "t");
    let before = syncs(&gate, &store);
    gate.rule(Op::Sync, "log/", Rule::Hold);
    let first = store.propose(&[put("t", b"k", b"0")]).unwrap();
    gate.wait_held();
    let many: Vec<_> = (0..500_u32)
        .map(|n| store.propose(&[put("t", b"k", &n.to_be_bytes())]).unwrap())
        .collect();
    assert!(!first.is_done() && many.iter().all(|p| !p.is_done()));
    gate.release();
    first.wait().unwrap();
    let mut last = 0;
    for proposal in many {
        let outcomes = proposal.wait().unwrap();
        let commit = outcomes.iter().next().unwrap().commit().unwrap().clone();
        assert!(commit.intention.0 > last, "in the order of the calls");
        last = commit.intention.0;
    }
    check_syncs(&gate, &store, before, 2);
    assert_eq!(records(&store, "t").len(), 502);
}

#[test]
fn the_each_level_syncs_once_for_each_call() {
    let gate = Gate::new(SimDisk::new());
    let level = OpenOptions {
        durability: Durability::Each,
        log_segment_bytes: 1 << 20,
        ..options()
    };
    let store = Store::open_disk(gate.disk(), &level).unwrap();
    create(&store, "t");
    let before = syncs(&gate, &store);
    gate.rule(Op::Sync, "log/", Rule::Hold);
    let first = store.propose(&[put("t", b"", b"")]).unwrap();
    gate.wait_held();
    let calls: Vec<_> = (0..40)
        .map(|_| {
            store
                .propose(&[put("t", b"", b""), put("t", b"", b"")])
                .unwrap()
        })
        .collect();
    gate.release();
    first.wait().unwrap();
    for call in calls {
        assert_eq!(call.wait().unwrap().len(), 2);
    }
    check_syncs(&gate, &store, before, 41);
}

#[test]
fn nothing_is_acknowledged_or_visible_before_its_sync() {
    let gate = Gate::new(SimDisk::new());
    let store = open(gate.disk());
    create(&store, "t");
    let reader = store.read("t", weir_core::ConsequenceOffset(1)).unwrap();
    gate.rule(Op::Sync, "log/", Rule::Hold);
    let proposal = store.propose(&[put("t", b"k", b"v")]).unwrap();
    gate.wait_held();
    assert!(!proposal.is_done());
    assert!(
        store.get("t", b"k").unwrap().is_none(),
        "not visible before the sync"
    );
    assert!(reader.clone().next_page().unwrap().is_none());
    assert_eq!(store.topic("t").unwrap().last.0, 1);
    gate.release();
    proposal.wait().unwrap();
    assert!(
        store.get("t", b"k").unwrap().is_some(),
        "visible after the acknowledgement"
    );
    assert!(reader.clone().next_page().unwrap().is_some());
}

#[test]
fn weaker_levels_acknowledge_without_a_sync() {
    for level in [
        Durability::Memory,
        Durability::Interval(Duration::from_hours(1)),
    ] {
        let gate = Gate::new(SimDisk::new());
        let level = OpenOptions {
            durability: level,
            log_segment_bytes: 1 << 20,
            ..options()
        };
        let store = Store::open_disk(gate.disk(), &level).unwrap();
        create(&store, "t");
        gate.rule(Op::Sync, "log/", Rule::Hold);
        for n in 0..100_u32 {
            execute(&store, &[put("t", b"k", &n.to_be_bytes())]);
        }
        gate.release();
        let before = gate.count(Op::Sync, "log/");
        store.sync().unwrap();
        assert_eq!(gate.count(Op::Sync, "log/") - before, 1);
        assert_eq!(store.stats().durable_index, store.stats().applied_index);
    }
}

#[test]
fn an_interval_of_zero_syncs_without_a_request() {
    let gate = Gate::new(SimDisk::new());
    let level = OpenOptions {
        durability: Durability::Interval(Duration::ZERO),
        ..options()
    };
    let store = Store::open_disk(gate.disk(), &level).unwrap();
    create(&store, "t");
    gate.rule(Op::Sync, "log/", Rule::Hold);
    let proposal = store.propose(&[put("t", b"k", b"v")]).unwrap();
    // The sync happens without a request.
    gate.wait_held();
    gate.release();
    proposal.wait().unwrap();
    store.close().unwrap();
}

#[test]
fn a_session_is_executed_in_the_order_of_its_nonces() {
    let store = open(Arc::new(SimDisk::new()));
    create(&store, "t");
    let put_nonce = |nonce: u64| put("t", b"k", b"v").under(CLIENT, nonce);
    let first = outcomes(&store, &[put_nonce(1), put_nonce(2)]);
    let gap = outcomes(&store, &[put_nonce(4), put_nonce(3), put_nonce(4)]);
    let refused = Outcome::Refused {
        code: ErrorCode::NonceGap,
        expected: 3,
    };
    assert_eq!(gap[0], refused);
    assert!(matches!(
        gap[1..],
        [Outcome::Committed(_), Outcome::Committed(_)]
    ));
    let again = outcomes(&store, &[put_nonce(2), put_nonce(1)]);
    let commit = |at: usize| Outcome::Replayed(first[at].commit().unwrap().clone());
    assert_eq!(again, [commit(1), commit(0)]);
    let other = outcomes(&store, &[put("t", b"k", b"other").under(CLIENT, 2)]);
    let reused = Outcome::Refused {
        code: ErrorCode::NonceReused,
        expected: 5,
    };
    assert_eq!(other, [reused]);
    assert_eq!(store.last_nonce(CLIENT), 4);
    assert_eq!(records(&store, "t").len(), 5);
    let stats = store.stats();
    assert_eq!((stats.replayed, stats.refused), (2, 2));
}

#[test]
fn concurrent_callers_get_their_own_outcomes() {
    let store = Arc::new(open(Arc::new(SimDisk::new())));
    create(&store, "t");
    let threads: Vec<_> = (1..=5_u8)
        .map(|caller| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || {
                let client = ClientId([caller; 16]);
                let mut nonce = 0;
                for round in 0..60_u64 {
                    let size = 1 + (round * u64::from(caller)) % 9;
                    let keys: Vec<_> = (0..size)
                        .map(|n| format!("{caller}-{}", (round + n) % 20))
                        .collect();
                    let call: Vec<_> = keys
                        .iter()
                        .zip(1..)
                        .map(|(key, n)| {
                            put("t", key.as_bytes(), key.as_bytes()).under(client, nonce + n)
                        })
                        .collect();
                    let commits = execute(&store, &call);
                    for (commit, n) in commits.iter().zip(1..) {
                        assert_eq!((commit.nonce, commit.effect), (nonce + n, Effect::Valid));
                    }
                    nonce += size;
                }
                nonce
            })
        })
        .collect();
    let sent: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    let records = records(&store, "t");
    assert_eq!(records.len() as u64, sent + 1);
    for caller in 1..=5_u8 {
        let own: Vec<u64> = records
            .iter()
            .filter(|r| r.client == ClientId([caller; 16]))
            .map(|r| r.nonce)
            .collect();
        assert_eq!(own, (1..=own.len() as u64).collect::<Vec<_>>());
    }
    assert_eq!(keys(&store, "t").len(), 100);
}

#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_proposal_is_a_future_that_wakes_once() {
    let gate = Gate::new(SimDisk::new());
    let store = open(gate.disk());
    create(&store, "t");
    gate.rule(Op::Sync, "log/", Rule::Hold);
    let mut proposal = store.propose(&[put("t", b"k", b"v")]).unwrap();
    gate.wait_held();
    let counting = Arc::new(CountingWaker::default());
    let waker = Waker::from(Arc::clone(&counting));
    let mut context = Context::from_waker(&waker);
    assert!(Pin::new(&mut proposal).poll(&mut context).is_pending());
    assert!(Pin::new(&mut proposal).poll(&mut context).is_pending());
    assert_eq!(counting.0.load(Ordering::SeqCst), 0);
    gate.release();
    // Calls complete in order: the later call completes after this one.
    execute(&store, &[put("t", b"k", b"w")]);
    assert_eq!(counting.0.load(Ordering::SeqCst), 1);
    let Poll::Ready(Ok(outcomes)) = Pin::new(&mut proposal).poll(&mut context) else {
        panic!("the waker was called");
    };
    assert_eq!(outcomes.len(), 1);
}

/// Counts the wakes at which another proposal is already complete.
struct WakeCheck(Proposal, AtomicUsize);

impl Wake for WakeCheck {
    fn wake(self: Arc<Self>) {
        self.1
            .fetch_add(usize::from(self.0.is_done()), Ordering::SeqCst);
    }
}

#[test]
fn a_waiter_is_woken_after_the_other_calls_of_its_batch_complete() {
    let gate = Gate::new(SimDisk::new());
    let store = open(gate.disk());
    create(&store, "t");
    gate.rule(Op::Sync, "log/", Rule::Hold);
    let held = store.propose(&[put("t", b"k", b"0")]).unwrap();
    gate.wait_held();
    let mut first = store.propose(&[put("t", b"k", b"1")]).unwrap();
    let second = store.propose(&[put("t", b"k", b"2")]).unwrap();
    let check = Arc::new(WakeCheck(second, AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&check));
    let mut context = Context::from_waker(&waker);
    assert!(Pin::new(&mut first).poll(&mut context).is_pending());
    gate.release();
    held.wait().unwrap();
    store.close().unwrap();
    assert_eq!(check.1.load(Ordering::SeqCst), 1);
}

#[test]
fn a_wait_that_times_out_returns_the_proposal() {
    let gate = Gate::new(SimDisk::new());
    let store = open(gate.disk());
    create(&store, "t");
    gate.rule(Op::Sync, "log/", Rule::Hold);
    let proposal = store.propose(&[put("t", b"k", b"v")]).unwrap();
    gate.wait_held();
    let Err(proposal) = proposal.wait_for(Duration::ZERO) else {
        panic!("the call must not complete before its sync");
    };
    let Err(proposal) = proposal.wait_for(Duration::from_millis(1)) else {
        panic!("the call must not complete before its sync");
    };
    gate.release();
    let completed = proposal.wait_for(Duration::MAX);
    assert_eq!(completed.unwrap().unwrap().len(), 1);
}

struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("scripted: a waker panics");
    }
}

#[test]
fn a_waker_that_panics_affects_no_other_call() {
    let gate = Gate::new(SimDisk::new());
    let store = open(gate.disk());
    create(&store, "t");
    gate.rule(Op::Sync, "log/", Rule::Hold);
    let mut proposal = store.propose(&[put("t", b"k", b"v")]).unwrap();
    gate.wait_held();
    let waker = Waker::from(Arc::new(PanickingWaker));
    let polled = Pin::new(&mut proposal).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    let other = store.propose(&[put("t", b"k", b"w")]).unwrap();
    gate.release();
    assert_eq!(other.wait().unwrap().len(), 1);
    assert_eq!(proposal.wait().unwrap().len(), 1);
    execute(&store, &[put("t", b"k", b"x")]);
    store.close().unwrap();
}

#[test]
fn a_dropped_proposal_is_still_executed() {
    let store = open(Arc::new(SimDisk::new()));
    create(&store, "t");
    for n in 0..20_u32 {
        drop(store.propose(&[put("t", &n.to_be_bytes(), b"v")]).unwrap());
    }
    execute(&store, &[put("t", b"last", b"v")]);
    assert_eq!(keys(&store, "t").len(), 21);
}

#[test]
fn a_drop_of_the_store_completes_waiting_calls() {
    let disk = SimDisk::new();
    let gate = Gate::new(disk.clone());
    let store = open(gate.disk());
    create(&store, "t");
    gate.rule(Op::Sync, "log/", Rule::Hold);
    let pending: Vec<_> = (0..50_u32)
        .map(|n| store.propose(&[put("t", &n.to_be_bytes(), b"v")]).unwrap())
        .collect();
    gate.wait_held();
    let dropper = std::thread::spawn(move || drop(store));
    gate.release();
    dropper.join().unwrap();
    for proposal in pending {
        assert_eq!(proposal.wait().unwrap().len(), 1);
    }
    let again = open(Arc::new(disk));
    assert!(again.report().log.clean);
    assert_eq!(keys(&again, "t").len(), 50);
}

#[test]
fn a_full_queue_makes_callers_wait_and_bounds_memory() {
    let gate = Gate::new(SimDisk::new());
    let level = OpenOptions {
        log_segment_bytes: 1 << 30,
        ..options()
    };
    let store = Arc::new(Store::open_disk(gate.disk(), &level).unwrap());
    create(&store, "t");
    gate.rule(Op::Sync, "log/", Rule::Hold);
    let first = store.propose(&[put("t", b"", b"")]).unwrap();
    gate.wait_held();
    let (sender, queued) = mpsc::channel();
    let value = vec![0_u8; 1 << 20];
    let caller = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            let mut proposals = Vec::new();
            for n in 0..80 {
                proposals.push(store.propose(&[put("t", b"", &value)]).unwrap());
                sender.send(n).unwrap();
            }
            proposals
        })
    };
    // Values of 64 MiB and their headers fill the queue, so the next call waits.
    for expected in 0..64 {
        assert_eq!(queued.recv().unwrap(), expected);
    }
    let early = queued.try_recv();
    assert!(
        early.is_err(),
        "64 MiB are queued already, but {early:?} was accepted"
    );
    gate.release();
    first.wait().unwrap();
    let proposals = caller.join().unwrap();
    assert_eq!(proposals.len(), 80);
    for proposal in proposals {
        proposal.wait().unwrap();
    }
    assert_eq!(records(&store, "t").len(), 82);
}

#[test]
fn a_full_queue_releases_callers_when_the_store_fails() {
    let gate = Gate::new(SimDisk::new());
    let store = Arc::new(open(gate.disk()));
    create(&store, "t");
    gate.rule(Op::Sync, "log/", Rule::Hold);
    let first = store.propose(&[put("t", b"", b"")]).unwrap();
    gate.wait_held();
    let caller = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            let value = vec![0_u8; 1 << 20];
            let mut results = Vec::new();
            for _ in 0..70 {
                results.push(store.propose(&[put("t", b"", &value)]));
            }
            results
        })
    };
    gate.rule(Op::Write, "log/", Rule::Fail(EIO));
    gate.release();
    first.wait().unwrap();
    gate.rule(Op::Write, "log/", Rule::Fail(EIO));
    let mut failed = 0;
    for result in caller.join().unwrap() {
        match result.and_then(weir_store::Proposal::wait) {
            Ok(_) => assert_eq!(failed, 0, "nothing is written after a failure"),
            Err(
                StoreError::Io { .. } | StoreError::Poisoned { .. } | StoreError::InDoubt { .. },
            ) => failed += 1,
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_panic_of_the_commit_thread_fails_all_calls() {
    let gate = Gate::new(SimDisk::new());
    let store = open(gate.disk());
    create(&store, "t");
    execute(&store, &[put("t", b"k", b"v")]);
    gate.wait_sealed();
    gate.rule(Op::Write, "log/", Rule::Panic);
    let panicked = store.propose(&[put("t", b"k", b"w")]).unwrap().wait();
    let is_panic = |error: &StoreError| matches!(error.root(), StoreError::Panicked { .. });
    assert!(panicked.as_ref().is_err_and(is_panic), "{panicked:?}");
    // The thread may have ended after the write.
    let code = panicked.as_ref().err().map(StoreError::code);
    assert_eq!(code, Some(ErrorCode::Indeterminate));
    // The thread has ended or is about to end. In both cases the call fails.
    let later = store
        .propose(&[put("t", b"k", b"x")])
        .and_then(weir_store::Proposal::wait);
    assert!(later.as_ref().is_err_and(is_panic), "{later:?}");
    for error in [
        store.sync().err(),
        store.checkpoint().err(),
        store.compact_log().err(),
    ] {
        assert!(error.as_ref().is_some_and(is_panic), "{error:?}");
    }
    assert!(store.get("t", b"k").unwrap().is_some(), "reads continue");
    assert!(store.close().is_err());
}

#[test]
fn a_cleanly_closed_store_opens_with_its_whole_content() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create(&store, "a");
    create(&store, "b");
    for topic in ["a", "b"] {
        let items = (0..100_u32).map(|n| ((n % 50).to_be_bytes(), n.to_be_bytes()));
        put_many(&store, topic, items);
    }
    let (before, digest, applied) = (state(&store), store.digest(), store.applied());
    store.close().unwrap();
    let again = open(Arc::new(disk));
    assert!(again.report().log.clean && !again.report().created);
    assert_eq!(state(&again), before);
    assert_eq!((again.digest(), again.applied()), (digest, applied));
}

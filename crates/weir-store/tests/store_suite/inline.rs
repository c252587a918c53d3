//! `Store::propose_inline`: the thread that commits, the order of the log, and the remaining work of
//! the commit thread.

use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use weir_core::{ClientId, ErrorCode};
use weir_store::disk::SimDisk;
use weir_store::{Durability, OpenOptions, Proposal, Store, StoreError};

use crate::disks::{ENOSPC, Gate, Op, PATIENCE, Rule};
use crate::world::{create, open, options, put, records};

/// A store with the topic `t` whose log is sealed: the commit thread does nothing by itself.
fn sealed() -> (Gate, Store) {
    let gate = Gate::new(SimDisk::new());
    let store = open(gate.disk());
    let before = gate.count(Op::Sync, "log/");
    create(&store, "t");
    // The sync of the creation, and that of the seal.
    wait_until(|| gate.count(Op::Sync, "log/") == before + 2);
    (gate, store)
}

/// The threads of all syncs of the log from now on.
fn sync_threads(gate: &Gate) -> Arc<Mutex<Vec<ThreadId>>> {
    let threads = Arc::<Mutex<Vec<ThreadId>>>::default();
    let seen = Arc::clone(&threads);
    gate.observe(move |op, path| {
        if op == Op::Sync && path.starts_with("log/") {
            seen.lock().unwrap().push(std::thread::current().id());
        }
    });
    threads
}

fn wait_until(mut is_true: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < until, "it does not become true");
        std::thread::yield_now();
    }
}

/// Writes until this thread has committed a write. The commit thread may hold the committer for a
/// moment. Returns the number of writes.
fn write_inline(store: &Store, threads: &Mutex<Vec<ThreadId>>) -> usize {
    let own = std::thread::current().id();
    let mut writes = 0;
    wait_until(|| {
        writes += 1;
        let proposal = store.propose_inline(&[put("t", b"k", b"v")]).unwrap();
        let outcomes = proposal.wait().unwrap();
        assert!(outcomes.iter().all(|one| one.commit().is_some()));
        threads.lock().unwrap().contains(&own)
    });
    writes
}

#[test]
fn a_caller_that_waits_commits_on_its_own_thread() {
    let (gate, store) = sealed();
    let threads = sync_threads(&gate);
    let writes = write_inline(&store, &threads);
    assert_eq!(records(&store, "t").len(), 1 + writes);
    store.close().unwrap();
}

#[test]
fn a_caller_does_not_overtake_queued_work() {
    let gate = Gate::new(SimDisk::new());
    let store = open(gate.disk());
    create(&store, "t");
    gate.rule(Op::Sync, "log/", Rule::Hold);
    let first = store.propose(&[put("t", b"k", b"1")]).unwrap();
    gate.wait_held();
    let queued = store.propose(&[put("t", b"k", b"2")]).unwrap();
    let waits = store.propose_inline(&[put("t", b"k", b"3")]).unwrap();
    assert!(!waits.is_done(), "the commit thread commits");
    gate.release();
    for proposal in [first, queued, waits] {
        proposal.wait().unwrap();
    }
    let values: Vec<_> = records(&store, "t").into_iter().map(|r| r.value).collect();
    assert_eq!(values[1..], [b"1", b"2", b"3"]);
}

#[test]
fn callers_that_wait_and_callers_that_do_not_keep_the_order_of_their_clients() {
    const ROUNDS: u64 = 200;
    let store = Arc::new(open(Arc::new(SimDisk::new())));
    create(&store, "t");
    std::thread::scope(|threads| {
        for caller in 1..=4_u8 {
            let store = &store;
            threads.spawn(move || {
                let client = ClientId([caller; 16]);
                let mut sent = Vec::new();
                for nonce in 1..=ROUNDS {
                    let one = [put("t", b"k", b"v").under(client, nonce)];
                    // Each caller mixes the two in another pattern.
                    if nonce % (u64::from(caller) + 1) == 0 {
                        sent.push(store.propose(&one).unwrap());
                    } else {
                        sent.push(store.propose_inline(&one).unwrap());
                    }
                }
                for proposal in sent {
                    let outcomes = proposal.wait().unwrap();
                    assert!(
                        outcomes.iter().all(|o| o.commit().is_some()),
                        "{outcomes:?}"
                    );
                }
            });
        }
    });
    for caller in 1..=4_u8 {
        let found = records(&store, "t").into_iter();
        let own: Vec<_> = found
            .filter(|record| record.client == ClientId([caller; 16]))
            .map(|record| record.nonce)
            .collect();
        assert_eq!(own, (1..=ROUNDS).collect::<Vec<_>>());
    }
}

#[test]
fn the_log_is_sealed_after_the_write_of_a_caller() {
    let own = std::thread::current().id();
    wait_until(|| {
        let (gate, store) = sealed();
        let threads = sync_threads(&gate);
        // Otherwise, the commit thread knows of the first write.
        if write_inline(&store, &threads) > 1 {
            return false;
        }
        let is_sealed = || {
            threads
                .lock()
                .unwrap()
                .last()
                .is_some_and(|last| *last != own)
        };
        wait_until(is_sealed);
        true
    });
}

#[test]
fn the_write_of_a_caller_is_synced_after_the_interval() {
    let gate = Gate::new(SimDisk::new());
    let level = OpenOptions {
        durability: Durability::Interval(Duration::from_millis(1)),
        ..options()
    };
    let store = Store::open_disk(gate.disk(), &level).unwrap();
    create(&store, "t");
    store.sync().unwrap();
    for n in 0..20_u8 {
        let write = store.propose_inline(&[put("t", b"k", &[n])]);
        write.unwrap().wait().unwrap();
        wait_until(|| store.stats().durable_index == store.stats().applied_index);
    }
}

#[test]
fn the_writes_of_callers_start_checkpoints() {
    let small = OpenOptions {
        snapshot_log_bytes: 16 << 10,
        ..options()
    };
    let store = Store::open_disk(Arc::new(SimDisk::new()), &small).unwrap();
    create(&store, "t");
    let before = store.stats().snapshots;
    for n in 0..200_u32 {
        let write = store.propose_inline(&[put("t", b"k", &n.to_be_bytes().repeat(64))]);
        write.unwrap().wait().unwrap();
    }
    wait_until(|| store.stats().snapshots > before);
}

#[test]
fn a_refused_or_empty_call_leaves_nothing_in_the_batch() {
    let store = open(Arc::new(SimDisk::new()));
    create(&store, "t");
    let key = vec![b'k'; 1 << 16];
    let refused = store.propose_inline(&[put("t", b"k", b"v"), put("t", &key, b"v")]);
    let is_second = |error: &StoreError| matches!(error, StoreError::Refused { index: 1, .. });
    assert!(refused.as_ref().is_err_and(is_second), "{refused:?}");
    assert_eq!(store.propose_inline(&[]).unwrap().wait().unwrap().len(), 0);
    store
        .propose_inline(&[put("t", b"k", b"w")])
        .unwrap()
        .wait()
        .unwrap();
    let values: Vec<_> = records(&store, "t").into_iter().map(|r| r.value).collect();
    assert_eq!(values[1..], [b"w"]);
}

#[test]
fn the_failure_of_a_commit_is_the_result_of_the_caller() {
    let (gate, store) = sealed();
    gate.rule(Op::Sync, "log/", Rule::Fail(ENOSPC));
    let failed = store
        .propose_inline(&[put("t", b"k", b"v")])
        .unwrap()
        .wait();
    let code = failed.as_ref().map_err(StoreError::code);
    assert_eq!(code.err(), Some(ErrorCode::Indeterminate), "{failed:?}");
    gate.release();
    let later = store.propose_inline(&[put("t", b"k", b"w")]);
    let is_poisoned = |error: &StoreError| matches!(error, StoreError::Poisoned { .. });
    assert!(later.as_ref().is_err_and(is_poisoned), "{later:?}");
    assert!(store.close().is_err());
}

#[test]
fn a_panic_in_the_commit_of_a_caller_stops_the_store_and_not_the_caller() {
    let (gate, store) = sealed();
    let own = std::thread::current().id();
    gate.observe(move |op, path| {
        let is_write = op == Op::Write && path.starts_with("log/");
        assert!(!is_write || std::thread::current().id() != own, "requested");
    });
    let mut failure = None;
    wait_until(|| {
        let write = store.propose_inline(&[put("t", b"k", b"w")]);
        failure = write.and_then(Proposal::wait).err();
        failure.is_some()
    });
    let is_panic = |error: &StoreError| matches!(error.root(), StoreError::Panicked { .. });
    assert!(failure.as_ref().is_some_and(is_panic), "{failure:?}");
    for later in [
        store.propose(&[put("t", b"k", b"x")]),
        store.propose_inline(&[put("t", b"k", b"x")]),
    ] {
        let later = later.and_then(Proposal::wait);
        assert!(later.as_ref().is_err_and(is_panic), "{later:?}");
    }
    assert!(store.sync().is_err_and(|error| is_panic(&error)));
    assert!(!records(&store, "t").is_empty(), "reads continue");
    // The commit thread did not panic.
    let closed = store.close();
    let is_poisoned = |error: &StoreError| matches!(error, StoreError::Poisoned { .. });
    assert!(closed.as_ref().is_err_and(is_poisoned), "{closed:?}");
}

#[test]
fn a_store_that_is_closed_during_the_commit_of_a_caller_waits_for_it() {
    let (gate, store) = sealed();
    let store = Arc::new(store);
    gate.rule(Op::Sync, "log/", Rule::HoldOne);
    std::thread::scope(|threads| {
        let written = threads.spawn(|| {
            let write = store.propose_inline(&[put("t", b"k", b"v")]);
            write.and_then(Proposal::wait)
        });
        gate.wait_held();
        let closed = threads.spawn(|| store.shut_down());
        wait_until(|| store.propose(&[put("t", b"k", b"w")]).is_err());
        gate.release();
        assert_eq!(written.join().unwrap().unwrap().len(), 1);
        closed.join().unwrap().unwrap();
    });
    let later = store.propose_inline(&[put("t", b"k", b"w")]);
    assert!(matches!(later, Err(StoreError::Closed)), "{later:?}");
}

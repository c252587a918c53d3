//! Deferred cursors of groups: after an error, the store retains the newest cursor of each group and
//! writes it later.

use std::collections::VecDeque;
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use weir_core::group::GroupSetup;
use weir_core::{ConsequenceOffset, Effect, ErrorCode, GroupMode, GroupStep, Intention, Operation};
use weir_store::disk::{SimDisk, SimFailure, SimOp};
use weir_store::replica::{EntryId, IntentionLog, LatencyClass, ProposedBatch};
use weir_store::{OpenOptions, Store, StoreError};

use crate::disks::PATIENCE;
use crate::replica::{SingleNode, node};
use crate::world::{create, execute, options, put_many};

/// What the provider does with a batch instead of committing it.
type Reaction = Box<dyn FnOnce(ProposedBatch) + Send>;

/// A log provider that commits batches, after it has used up its reactions.
#[derive(Default)]
struct Provider {
    node: SingleNode,
    reactions: Mutex<VecDeque<Reaction>>,
}

impl Provider {
    fn react(&self, reaction: impl FnOnce(ProposedBatch) + Send + 'static) {
        self.reactions.lock().unwrap().push_back(Box::new(reaction));
    }
}

impl IntentionLog for Provider {
    fn propose(&self, batch: ProposedBatch) {
        let reaction = self.reactions.lock().unwrap().pop_front();
        match reaction {
            Some(reaction) => reaction(batch),
            None => self.node.propose(batch),
        }
    }

    fn latency_class(&self) -> LatencyClass {
        LatencyClass::Disk
    }

    fn purgeable(&self, id: EntryId) {
        self.node.purgeable(id);
    }
}

fn without_leader(batch: ProposedBatch) {
    batch.waiters.refuse(ErrorCode::NoLeader, "by the test");
}

fn on_a_full_disk(batch: ProposedBatch) {
    batch.waiters.refuse(ErrorCode::DiskFull, "by the test");
}

fn led_by_another_node(batch: ProposedBatch) {
    batch.waiters.redirect(2, "127.0.0.1:1");
}

/// Opens a node that has the group `g` of the topic `t`, which has 50 records.
fn open(cursor_flush: Duration) -> (Store, Arc<Provider>) {
    let provider = Arc::new(Provider::default());
    let disk = Arc::new(SimDisk::new());
    let options = OpenOptions {
        cursor_flush,
        ..options()
    };
    let opened = Store::open_node_disk(disk, &options, &node(), Arc::clone(&provider) as _);
    let (store, replica) = opened.unwrap();
    provider.node.follow(&replica);
    fill(&store);
    (store, provider)
}

/// Creates the group `g` of the topic `t`, which has 50 records.
fn fill(store: &Store) {
    create(store, "t");
    put_many(store, "t", (0..50).map(|n| (n.to_string(), "v")));
    let setup = GroupSetup::new(GroupMode::Exclusive);
    let opened = store.group_step("t", "g", GroupStep::Open(setup)).unwrap();
    assert_eq!(opened.effect, Effect::Valid, "{opened:?}");
}

fn move_cursor(store: &Store, offset: u64) {
    store
        .move_cursor("t", "g", 0, ConsequenceOffset(offset))
        .unwrap();
}

fn cursor(store: &Store) -> u64 {
    store.group("t", "g").unwrap().cursor.0
}

const NEVER: Duration = Duration::from_hours(1);

#[test]
fn a_flush_reports_its_error_and_the_next_flush_writes_the_cursor() {
    let (store, provider) = open(NEVER);
    let errors: [(fn(ProposedBatch), ErrorCode); 4] = [
        (without_leader, ErrorCode::NoLeader),
        (on_a_full_disk, ErrorCode::DiskFull),
        (led_by_another_node, ErrorCode::Redirect),
        (drop, ErrorCode::Indeterminate),
    ];
    for (offset, (reaction, code)) in (1..).zip(errors) {
        move_cursor(&store, offset);
        provider.react(reaction);
        assert_eq!(store.flush_cursors().unwrap_err().code(), code);
        assert_eq!(cursor(&store), offset - 1, "{code:?}");
        store.flush_cursors().unwrap();
        assert_eq!(cursor(&store), offset, "{code:?}");
    }
    // The close writes a cursor too, after it could not be written before.
    move_cursor(&store, 9);
    provider.react(without_leader);
    assert!(store.flush_cursor("t", "g").is_err());
    store.shut_down().unwrap();
    assert_eq!(cursor(&store), 9);
}

#[test]
fn a_cursor_that_was_not_written_is_written_without_a_request() {
    let (store, provider) = open(Duration::ZERO);
    provider.react(without_leader);
    provider.react(led_by_another_node);
    provider.react(drop);
    move_cursor(&store, 2);
    let until = Instant::now() + PATIENCE;
    while cursor(&store) < 2 {
        assert!(Instant::now() < until, "the cursor was not written");
        std::thread::yield_now();
    }
    assert!(provider.reactions.lock().unwrap().is_empty());
}

#[test]
fn a_cursor_that_is_moved_during_a_write_is_not_replaced_by_the_older_one() {
    let (store, provider) = open(NEVER);
    for (older, is_refused) in [(10, true), (20, false)] {
        let (sender, held) = mpsc::channel();
        provider.react(move |batch| sender.send(batch).unwrap());
        move_cursor(&store, older);
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| store.flush_cursors());
            let batch = held.recv_timeout(PATIENCE).unwrap();
            move_cursor(&store, older + 5);
            if is_refused {
                without_leader(batch);
            } else {
                provider.node.propose(batch);
            }
            assert_eq!(flush.join().unwrap().is_err(), is_refused);
        });
        store.flush_cursors().unwrap();
        assert_eq!(cursor(&store), older + 5);
    }
}

#[test]
fn a_cursor_that_is_moved_at_once_replaces_a_deferred_one_only_after_its_write() {
    let (store, provider) = open(NEVER);
    move_cursor(&store, 3);
    provider.react(without_leader);
    let moved = store.move_cursor_now("t", "g", 0, ConsequenceOffset(4));
    assert_eq!(moved.unwrap_err().code(), ErrorCode::NoLeader);
    store.flush_cursors().unwrap();
    assert_eq!(cursor(&store), 3);
}

#[test]
fn a_move_by_another_owner_does_not_discard_a_deferred_cursor() {
    let (store, _provider) = open(NEVER);
    move_cursor(&store, 3);
    let moved = store.move_cursor_now("t", "g", 99, ConsequenceOffset(4));
    assert_eq!(moved.unwrap().reason, Some(ErrorCode::NotOwner));
    store.flush_cursors().unwrap();
    assert_eq!(cursor(&store), 3);
}

#[test]
fn every_flush_of_a_poisoned_store_returns_the_error() {
    let disk = SimDisk::new();
    let options = OpenOptions {
        cursor_flush: Duration::ZERO,
        ..options()
    };
    let store = Store::open_disk(Arc::new(disk.clone()), &options).unwrap();
    create(&store, "t");
    let setup = GroupSetup::new(GroupMode::Exclusive);
    store.group_step("t", "g", GroupStep::Open(setup)).unwrap();
    disk.fail(SimOp::Sync, 1, SimFailure::Io);
    // The background thread writes the cursor, and the sync fails.
    move_cursor(&store, 1);
    let until = Instant::now() + PATIENCE;
    while !store.is_poisoned() {
        assert!(Instant::now() < until, "the cursor was not written");
        std::thread::yield_now();
    }
    for _ in 0..2 {
        assert!(store.flush_cursors().is_err());
    }
    // The close attempts to write the cursor once more, and ends.
    assert!(store.close().is_err());
}

#[test]
fn an_invalid_cursor_does_not_discard_the_others() {
    let (store, _provider) = open(NEVER);
    let invalid = "x".repeat(1_000);
    let offset = ConsequenceOffset(1);
    store.move_cursor("t", &invalid, 0, offset).unwrap();
    move_cursor(&store, 7);
    let refused = store.flush_cursors().unwrap_err();
    assert!(matches!(refused, StoreError::Refused { .. }), "{refused}");
    store.flush_cursors().unwrap();
    assert_eq!(cursor(&store), 7);
}

fn reset(group: &str) -> Intention<'_> {
    let step = GroupStep::Reset { offset: 5 };
    Intention::new("t", Operation::Cursor { group, step })
}

#[test]
fn a_deferred_cursor_does_not_undo_a_reset() {
    let (store, _provider) = open(NEVER);
    move_cursor(&store, 30);
    // A call that is not accepted changes nothing.
    let invalid = "x".repeat(1_000);
    assert!(store.propose(&[reset("g"), reset(&invalid)]).is_err());
    store.flush_cursors().unwrap();
    assert_eq!(cursor(&store), 30);
    move_cursor(&store, 40);
    store.propose(&[reset("g")]).unwrap().wait().unwrap();
    store.flush_cursors().unwrap();
    assert_eq!(cursor(&store), 5);
    // The cursor does not move in a new group of this name either.
    move_cursor(&store, 30);
    store.group_step("t", "g", GroupStep::Delete).unwrap();
    let setup = GroupSetup::new(GroupMode::Exclusive);
    store.group_step("t", "g", GroupStep::Open(setup)).unwrap();
    store.flush_cursors().unwrap();
    assert_eq!(cursor(&store), 0);
}

#[test]
fn a_cursor_that_is_being_written_does_not_undo_a_reset() {
    // The log provider of the other tests commits batches in any order.
    let options = OpenOptions {
        cursor_flush: NEVER,
        ..options()
    };
    let store = Store::open_disk(Arc::new(SimDisk::new()), &options).unwrap();
    fill(&store);
    // A flush copies all cursors before it queues them. Many cursors make this take long.
    let others: Vec<String> = (0..2_000).map(|n| format!("other-{n}")).collect();
    for round in 0..10 {
        for other in &others {
            let offset = ConsequenceOffset(1);
            store.move_cursor("t", other, 0, offset).unwrap();
        }
        move_cursor(&store, 30);
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| {
                start.wait();
                store.flush_cursors()
            });
            start.wait();
            execute(&store, &[reset("g")]);
            flush.join().unwrap().unwrap();
        });
        assert_eq!(cursor(&store), 5, "round {round}");
    }
}

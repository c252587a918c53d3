//! Jumps of the wall clock: no key expires, and no lease ends early or late (CL7, M21, EO1).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use weir_core::batch::BatchBuilder;
use weir_core::group::GroupSetup;
use weir_core::intention::{IntentionLimits, ONCE};
use weir_core::{ClientId, Effect, ErrorCode, GroupMode, GroupStep, Outcome};
use weir_store::clock::{ACCEPT_JUMP_AFTER, CLOSED_MS_MAX, Clock};
use weir_store::disk::SimDisk;
use weir_store::replica::{EntryBody, EntryId, IntentionLog, LatencyClass, ProposedBatch, Replica};
use weir_store::{ClaimRequest, OpenOptions, Store};

use crate::replica::{append, entry, node};
use crate::world::{CLIENT, create, execute, options, outcomes, put, records};

const START_MS: u64 = 1_790_000_000_000;
const HOUR_MS: u64 = 3_600_000;

/// Wall clock and monotonic clock, set by the test.
#[derive(Debug)]
struct ManualClock {
    wall_ms: AtomicU64,
    monotonic_ms: AtomicU64,
}

impl ManualClock {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            wall_ms: AtomicU64::new(START_MS),
            monotonic_ms: AtomicU64::new(0),
        })
    }

    fn advance(&self, ms: u64) {
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
        self.monotonic_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Moves only the wall clock forward.
    fn jump(&self, ms: u64) {
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
    }

    fn jump_back(&self, ms: u64) {
        self.wall_ms.fetch_sub(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.monotonic_ms.load(Ordering::SeqCst))
    }
}

fn settings(clock: &Arc<ManualClock>) -> OpenOptions {
    OpenOptions {
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        ..options()
    }
}

fn open(disk: &SimDisk, clock: &Arc<ManualClock>) -> Store {
    Store::open_disk(Arc::new(disk.clone()), &settings(clock)).unwrap()
}

/// Returns whether the store knows the key, so that a repeated call is not executed again.
fn is_repeat(store: &Store, key: ClientId) -> bool {
    let again = outcomes(store, &[put("t", b"k", b"v").under(key, ONCE)]);
    matches!(again[..], [Outcome::Replayed(_)])
}

#[test]
fn a_key_does_not_expire_after_a_jump_of_25_hours_and_back() {
    let (disk, clock) = (SimDisk::new(), ManualClock::new());
    let store = open(&disk, &clock);
    create(&store, "t");
    let key = ClientId([7; 16]);
    execute(&store, &[put("t", b"k", b"v").under(key, ONCE)]);
    clock.advance(1_000);
    clock.jump(25 * HOUR_MS);
    let other = ClientId([8; 16]);
    execute(&store, &[put("t", b"k", b"w").under(other, ONCE)]);
    assert!(is_repeat(&store, key), "during the jump");
    clock.jump_back(25 * HOUR_MS);
    assert!(is_repeat(&store, key));
    assert_eq!(store.now_ms(), START_MS + 1_000);
    // Also after a restart. An open cannot distinguish a jump from the time while closed.
    store.shut_down().unwrap();
    clock.jump(25 * HOUR_MS);
    let store = open(&disk, &clock);
    assert_eq!(store.report().clock.ahead_ms, 25 * HOUR_MS - CLOSED_MS_MAX);
    assert!(is_repeat(&store, key), "after a restart");
    store.shut_down().unwrap();
    clock.jump_back(25 * HOUR_MS);
    let store = open(&disk, &clock);
    assert!(is_repeat(&store, key), "after another restart");
    assert_eq!(records(&store, "t").len(), 3);
    // With `believe_clock`, an open trusts the wall clock. Then the key expires, as documented.
    store.shut_down().unwrap();
    clock.jump(50 * HOUR_MS);
    let trusting = OpenOptions {
        believe_clock: true,
        ..settings(&clock)
    };
    let store = Store::open_disk(Arc::new(disk.clone()), &trusting).unwrap();
    assert_eq!(store.report().clock.ahead_ms, 0);
    assert!(!is_repeat(&store, key));
}

#[test]
fn all_restarts_together_move_the_time_by_half_a_session() {
    let (disk, clock) = (SimDisk::new(), ManualClock::new());
    let store = open(&disk, &clock);
    create(&store, "t");
    let key = ClientId([7; 16]);
    execute(&store, &[put("t", b"k", b"v").under(key, ONCE)]);
    store.shut_down().unwrap();
    clock.jump(100 * HOUR_MS);
    for restart in 0..4_u64 {
        let store = open(&disk, &clock);
        assert_eq!(
            store.now_ms(),
            START_MS + CLOSED_MS_MAX,
            "restart {restart}"
        );
        assert!(is_repeat(&store, key), "restart {restart}");
        let other = ClientId([8 + u8::try_from(restart).unwrap(); 16]);
        execute(&store, &[put("t", b"k", b"w").under(other, ONCE)]);
        // Every second store is killed instead of closed.
        if restart % 2 == 0 {
            store.shut_down().unwrap();
        }
    }
    // If the file `clock` is unreadable, an open does not move the time.
    disk.put("clock", b"moved_ms=x\n".to_vec());
    let store = open(&disk, &clock);
    assert_eq!(store.now_ms(), START_MS + CLOSED_MS_MAX);
    store.shut_down().unwrap();
}

#[test]
fn a_long_run_with_a_steady_wall_clock_confirms_the_time() {
    let (disk, clock) = (SimDisk::new(), ManualClock::new());
    let mut number = 0;
    let mut write = |store: &Store| {
        number += 1;
        execute(store, &[put("t", b"k", b"v").under(CLIENT, number)]);
    };
    let store = open(&disk, &clock);
    create(&store, "t");
    store.shut_down().unwrap();
    let long = u64::try_from(ACCEPT_JUMP_AFTER.as_millis()).unwrap();
    for _ in 0..3 {
        clock.jump(11 * HOUR_MS);
        let store = open(&disk, &clock);
        assert_eq!(
            store.now_ms(),
            clock.wall_ms(),
            "the store was closed during the jump"
        );
        write(&store);
        clock.advance(long);
        write(&store);
        assert_eq!(store.now_ms(), clock.wall_ms());
        store.shut_down().unwrap();
    }
    // Without such a run, an open may move the time by only one more hour.
    clock.jump(11 * HOUR_MS);
    let store = open(&disk, &clock);
    write(&store);
    store.shut_down().unwrap();
    clock.jump(11 * HOUR_MS);
    let store = open(&disk, &clock);
    assert_eq!(store.report().clock.ahead_ms, 10 * HOUR_MS);
    // The wall clock runs steadily, so it is trusted again and this run confirms the time.
    write(&store);
    clock.advance(long);
    write(&store);
    assert_eq!(store.now_ms(), clock.wall_ms());
    write(&store);
    store.shut_down().unwrap();
    clock.jump(12 * HOUR_MS);
    assert_eq!(open(&disk, &clock).now_ms(), clock.wall_ms());
}

#[test]
fn jumps_of_the_wall_clock_do_not_change_the_length_of_a_lease() {
    let (disk, clock) = (SimDisk::new(), ManualClock::new());
    let store = open(&disk, &clock);
    create(&store, "t");
    let setup = GroupSetup::new(GroupMode::Shared);
    let opened = store.group_step("t", "g", GroupStep::Open(setup)).unwrap();
    assert_eq!(opened.effect, Effect::Valid, "{opened:?}");
    execute(&store, &[put("t", b"k", b"v")]);
    let claim = || {
        let request = ClaimRequest {
            member: b"m",
            max: 10,
            lease_ms: 1_000,
            bytes_max: usize::MAX,
        };
        store.claim("t", "g", &request).unwrap().deliveries.len()
    };
    clock.jump(25 * HOUR_MS);
    assert_eq!(claim(), 1);
    clock.jump_back(25 * HOUR_MS);
    clock.advance(999);
    assert_eq!(claim(), 0, "before the lease has ended");
    clock.advance(1);
    assert_eq!(claim(), 1, "after the lease has ended");
    // A jump does not end the lease early either.
    clock.jump(25 * HOUR_MS);
    assert_eq!(claim(), 0);
    clock.jump_back(50 * HOUR_MS);
    clock.advance(1_000);
    assert_eq!(claim(), 1);
}

/// A log provider that sends the stamp of each proposal to the test and refuses the proposal.
struct Stamps(mpsc::Sender<u64>);

impl IntentionLog for Stamps {
    fn propose(&self, batch: ProposedBatch) {
        let stamp_ms = batch.payload[8..16].try_into().unwrap();
        self.0.send(u64::from_le_bytes(stamp_ms)).unwrap();
        batch
            .waiters
            .refuse(ErrorCode::NoLeader, "refused by the test");
    }

    fn latency_class(&self) -> LatencyClass {
        LatencyClass::Disk
    }

    fn purgeable(&self, _: EntryId) {}
}

fn open_node(disk: &SimDisk, clock: &Arc<ManualClock>) -> (Store, Replica, mpsc::Receiver<u64>) {
    let (sender, stamps) = mpsc::channel();
    let (disk, provider) = (Arc::new(disk.clone()), Arc::new(Stamps(sender)));
    let opened = Store::open_node_disk(disk, &settings(clock), &node(), provider);
    let (store, replica) = opened.unwrap();
    (store, replica, stamps)
}

/// A leader may stamp a batch before it has applied the entries of its log. So the time while it
/// was closed is measured from the newest stamp of the log, because its state has no stamp yet.
#[test]
fn a_leader_that_has_applied_nothing_starts_after_the_newest_stamp_of_its_log() {
    let (disk, clock) = (SimDisk::new(), ManualClock::new());
    // The wall clock of a node is 0 until a majority has reported its time.
    clock.wall_ms.store(0, Ordering::SeqCst);
    let (store, replica, _stamps) = open_node(&disk, &clock);
    let mut batch = BatchBuilder::default();
    let limits = IntentionLimits::default();
    batch.push(&put("t", b"k", b"v"), &limits).unwrap();
    let (count, payload) = (1, batch.to_bytes(START_MS).into());
    let body = EntryBody::Batch { count, payload };
    append(&replica, vec![entry(7, 1, body)]).unwrap();
    store.close().unwrap();

    let (store, replica, stamps) = open_node(&disk, &clock);
    assert_eq!(replica.applied().last, None);
    clock.wall_ms.store(START_MS, Ordering::SeqCst);
    clock.jump(25 * HOUR_MS);
    let proposed = store.propose(&[put("t", b"k", b"v")]).unwrap();
    assert_eq!(stamps.recv(), Ok(START_MS + CLOSED_MS_MAX));
    assert_eq!(proposed.wait().unwrap_err().code(), ErrorCode::NoLeader);
}

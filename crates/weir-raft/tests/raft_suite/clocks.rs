//! Clusters in which wall clocks are days ahead (docs/operating/clocks.md).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_core::group::GroupSetup;
use weir_core::intention::{Intention, ONCE, Operation};
use weir_core::{ClientId, ErrorCode, GroupMode, GroupStep, Outcome};
use weir_store::ClaimRequest;
use weir_store::clock::{ACCEPT_JUMP_AFTER, CLOSED_MS_MAX, Clock};

use crate::cluster::{CLUSTER, Cluster};

const START_MS: u64 = 1_790_000_000_000;
const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAYS_MS: u64 = 3 * 24 * HOUR_MS;

/// The session of a client that writes in every round.
const BUSY: ClientId = ClientId([5; 16]);

/// The clocks of a node. `passed_ms` is shared by all nodes.
#[derive(Clone, Debug, Default)]
struct ManualClock {
    passed_ms: Arc<AtomicU64>,
    ahead_ms: Arc<AtomicU64>,
    /// Number of reads of the wall clock.
    reads: Arc<AtomicU64>,
}

impl Clock for ManualClock {
    fn wall_ms(&self) -> u64 {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let passed_ms = self.passed_ms.load(Ordering::SeqCst);
        START_MS + passed_ms + self.ahead_ms.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.passed_ms.load(Ordering::SeqCst))
    }
}

/// Starts three nodes, and returns the clock of each.
async fn cluster(ahead_ms: [u64; 3]) -> (Cluster, Vec<ManualClock>) {
    let mut cluster = Cluster::start(0, CLUSTER).await;
    let passed_ms: Arc<AtomicU64> = Arc::default();
    let mut clocks = Vec::new();
    for (node, ahead_ms) in (1..).zip(ahead_ms) {
        let clock = ManualClock {
            passed_ms: Arc::clone(&passed_ms),
            ahead_ms: Arc::new(AtomicU64::new(ahead_ms)),
            reads: Arc::default(),
        };
        clocks.push(clock.clone());
        cluster.clocks.insert(node, Arc::new(clock));
        cluster.add(node).await;
    }
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    (cluster, clocks)
}

/// Returns whether another attempt can succeed, because an election caused the error.
fn is_temporary(code: ErrorCode) -> bool {
    use ErrorCode::{Indeterminate, NoLeader, Redirect};
    matches!(code, Redirect | NoLeader | Indeterminate)
}

impl Cluster {
    /// The time of the store at the leader.
    async fn time_ms(&self) -> u64 {
        self.nodes[&self.leader().await].store().now_ms()
    }

    /// Writes and advances the clocks, minute by minute, until the time of the store reaches that
    /// of `clock`. If the clocks advance while a reply of a peer is in transit, the clock of the
    /// peer appears to be a minute behind, and the ten minutes start again.
    async fn follow(&self, clock: &ManualClock, nonce: &mut u64) {
        while self.time_ms().await < clock.wall_ms() {
            *nonce += 1;
            self.put(*nonce).await;
            clock.passed_ms.fetch_add(MINUTE_MS, Ordering::SeqCst);
        }
    }

    /// Sends an intention until a leader returns its outcome.
    async fn outcome(&self, client: ClientId, nonce: u64, operation: Operation<'_>) -> Outcome {
        let intention = Intention {
            client,
            nonce,
            ..Intention::new("orders", operation)
        };
        loop {
            let leader = self.leader().await;
            let result = match self.nodes[&leader].store().propose(&[intention]) {
                Ok(proposal) => proposal.await,
                Err(error) => Err(error),
            };
            match result {
                Ok(outcomes) => return outcomes.iter().next().unwrap(),
                Err(error) => assert!(is_temporary(error.code()), "{error}"),
            }
            tokio::task::yield_now().await;
        }
    }

    /// Commits an intention of a session.
    async fn commit(&self, client: ClientId, nonce: u64, operation: Operation<'_>) {
        let outcome = self.outcome(client, nonce, operation).await;
        let is_refused = matches!(outcome, Outcome::Refused { .. });
        assert!(!is_refused, "{outcome:?}");
    }

    /// Claims a record for a member; returns the offset of the record.
    async fn claim(&self, member: &'static [u8]) -> u64 {
        let request = ClaimRequest {
            member,
            max: 1,
            lease_ms: HOUR_MS,
            bytes_max: usize::MAX,
        };
        loop {
            let store = Arc::clone(self.nodes[&self.leader().await].store());
            let claim = move || store.claim("orders", "g", &request);
            match tokio::task::spawn_blocking(claim).await.unwrap() {
                Ok(claimed) => return claimed.deliveries[0].offset.0,
                Err(error) => assert!(is_temporary(error.code()), "{error}"),
            }
        }
    }
}

/// One clock is ahead from the start, for longer than the time after which a jump is accepted.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_leader_whose_clock_is_days_ahead_expires_nothing() {
    let (mut cluster, clocks) = cluster([0, 0, DAYS_MS]).await;
    let now_ms = || START_MS + clocks[0].passed_ms.load(Ordering::SeqCst);
    cluster.create().await;
    cluster.lead(1).await;
    let (key, value) = (&b"k"[..], &b"v"[..]);
    let put = Operation::Put { key, value };
    let (idle, once) = (ClientId([6; 16]), ClientId([7; 16]));
    cluster.commit(idle, 1, put).await;
    cluster.commit(once, ONCE, put).await;
    let setup = GroupSetup::new(GroupMode::Shared);
    let step = GroupStep::Open(setup);
    let open = Operation::Cursor { group: "g", step };
    cluster.commit(BUSY, 1, open).await;
    let mut nonce = 1;
    let leased = cluster.claim(b"a").await;

    let minutes = ACCEPT_JUMP_AFTER.as_secs() / 60 + 2;
    for round in 0..3 {
        cluster.lead(3).await;
        for _ in 0..minutes {
            clocks[0].passed_ms.fetch_add(MINUTE_MS, Ordering::SeqCst);
            nonce += 1;
            cluster.commit(BUSY, nonce, put).await;
        }
        assert_eq!(cluster.time_ms().await, now_ms(), "round {round}");
        let status = cluster.nodes[&3].status();
        assert!(status.clock_ahead_ms >= DAYS_MS, "{status:?}");
        match round {
            // The next open of the node also compares its clock with the newest stamp.
            0 => {
                cluster.lead(1).await;
                cluster.stop(3).await;
                cluster.restart(3).await;
            }
            // One other node with a right clock is enough.
            1 => cluster.stop(2).await,
            _ => {}
        }
    }
    let again = cluster.outcome(once, ONCE, put).await;
    assert!(matches!(again, Outcome::Replayed(_)), "{again:?}");
    cluster.commit(idle, 2, put).await;
    assert_ne!(cluster.claim(b"b").await, leased, "the lease has not ended");
    clocks[0].passed_ms.fetch_add(HOUR_MS, Ordering::SeqCst);
    assert_eq!(cluster.claim(b"b").await, leased);
    for node in [1, 3] {
        cluster.stop(node).await;
    }
}

/// The time of a majority is accepted: here, the nodes had no power for a week.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_time_follows_the_clocks_of_a_majority() {
    let (mut cluster, clocks) = cluster([0, 0, 0]).await;
    let advance = |ms| clocks[0].passed_ms.fetch_add(ms, Ordering::SeqCst);
    let wall_ms = || clocks[1].wall_ms();
    let long_ms = u64::try_from(ACCEPT_JUMP_AFTER.as_millis()).unwrap();
    cluster.create().await;
    assert_eq!(cluster.time_ms().await, START_MS);
    for node in 1..=3 {
        cluster.stop(node).await;
    }
    advance(7 * 24 * HOUR_MS);
    for node in 1..=3 {
        cluster.restart(node).await;
    }
    // The first stamp includes the time without power, up to the bound for a closed store.
    let mut nonce = 2;
    cluster.put(nonce).await;
    assert_eq!(cluster.time_ms().await, START_MS + CLOSED_MS_MAX);
    let restarted_ms = wall_ms();
    cluster.follow(&clocks[1], &mut nonce).await;
    assert!(
        wall_ms() - restarted_ms >= long_ms,
        "a jump is accepted only after this time"
    );

    // The clocks of two nodes jump while the cluster runs.
    cluster.lead(1).await;
    nonce += 1;
    cluster.put(nonce).await;
    for clock in &clocks[..2] {
        clock.ahead_ms.store(DAYS_MS, Ordering::SeqCst);
    }
    cluster.follow(&clocks[1], &mut nonce).await;
    for node in 1..=3 {
        cluster.stop(node).await;
    }
}

/// After a restart, a node may move its time by the time while it was stopped. An idle node also
/// measures this time when it first knows its wall clock, not at its first write.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_idle_node_does_not_follow_a_jump_before_its_first_write() {
    let mut cluster = Cluster::start(0, CLUSTER).await;
    let clock = ManualClock::default();
    cluster.clocks.insert(1, Arc::new(clock.clone()));
    cluster.add(1).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.create().await;
    cluster.stop(1).await;
    clock.passed_ms.fetch_add(HOUR_MS, Ordering::SeqCst);
    cluster.restart(1).await;
    cluster.leader().await;
    // A node without peers and clients reads its clock only to observe it. The second read begins
    // after the first value was observed.
    let before = clock.reads.load(Ordering::SeqCst);
    while clock.reads.load(Ordering::SeqCst) < before + 2 {
        tokio::task::yield_now().await;
    }
    clock.ahead_ms.store(10 * HOUR_MS, Ordering::SeqCst);
    cluster.put(2).await;
    assert_eq!(cluster.time_ms().await, START_MS + HOUR_MS);
    cluster.stop(1).await;
}

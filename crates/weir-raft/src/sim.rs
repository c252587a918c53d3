//! A node inside a simulation: one thread, a simulated disk, network and clock
//! (docs/decisions/0079). For tests only.
//!
//! Invariants: when a call returns, every thread of the store is idle; the actions of a node do not
//! depend on the speed of the machine.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use openraft::OptionalSend;
use openraft::async_runtime::{AsyncRuntime, Oneshot};
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use tokio::sync::mpsc;
use tokio::time::Instant;
use weir_store::disk::Disk;
use weir_store::replica::{NodeOptions, Replica};
use weir_store::{OpenOptions, Store, StoreError};

use crate::clocks::VotersClock;
use crate::error::NodeError;
use crate::join::fingerprint;
use crate::machine::{StateMachine, copy};
use crate::node::{Node, NodeConfig, Parts, proposals};
use crate::planted::is_planted;
pub use crate::planted::{Fault, plant};
use crate::runtime::{self, Runtime};
use crate::storage::{LogReader, LogStore};
pub use crate::transport::{Accepting, Acceptor, Connecting, Connection, Transport};
use crate::types::{Entry, LogId, Types, Vote};

/// The parts of a simulated node.
pub struct SimParts {
    /// The disk of the node.
    pub disk: Arc<dyn Disk>,
    /// The options for opening the store.
    pub options: OpenOptions,
    /// The identity of the node.
    pub config: NodeConfig,
    /// Opens connections to peers.
    pub transport: Arc<dyn Transport>,
    /// Accepts connections from peers.
    pub acceptor: Box<dyn Acceptor>,
    /// Returns how long the next sync of the disk takes.
    pub sync_time: Box<dyn FnMut() -> Duration + Send + Sync>,
}

/// From now on, the random numbers that the consensus draws on this thread follow from `seed`.
pub fn seed_thread(seed: u64) {
    runtime::seed_thread(seed);
}

impl Node {
    /// Opens a node of a simulation.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub async fn open_simulated(parts: SimParts) -> Result<Self, NodeError> {
        let NodeConfig {
            node,
            cluster,
            incarnation,
        } = parts.config;
        let config = parts.config;
        let (proposals, received) = proposals();
        let options = NodeOptions {
            node,
            cluster,
            incarnation,
            allow_gaps: false,
        };
        let clock = Arc::new(VotersClock::new(node, Arc::clone(&parts.options.clock)));
        let engine = fingerprint(&parts.options);
        let open = OpenOptions {
            clock: Arc::clone(&clock) as _,
            ..parts.options
        };
        let (store, replica) = Store::open_node_disk(parts.disk, &open, &options, proposals)?;
        let log = SteppedLog::new(replica.clone(), parts.sync_time);
        let parts = Parts {
            clock,
            machine: StateMachine::inline(replica.clone()),
            transport: parts.transport,
            tls: None,
            acceptor: parts.acceptor,
            disk_space: Arc::default(),
            engine,
            // A simulation that does not sync plants a fault, which leaders must not heal.
            may_lose_entries: false,
        };
        Self::start(store, replica, received, config, log, parts).await
    }

    /// Waits until the threads of the store are idle: every earlier call has then reached the
    /// consensus.
    pub fn step(&self) {
        step(self.replica());
    }

    /// Replaces the state of this node with that of another node after the same entry: a fault that
    /// the nodes of a cluster must find. Returns the topics that differ. Blocks.
    ///
    /// # Errors
    /// An error of a disk.
    pub fn copy_state_of(&self, other: &Self) -> io::Result<Vec<String>> {
        let from = other.replica();
        from.checkpoint().map_err(io::Error::other)?;
        let shipped = from.ship().map_err(io::Error::other)?;
        let missing = || io::Error::other("the new snapshot is missing");
        let staged = copy(&shipped.ok_or_else(missing)?, self.replica())?;
        self.replica().restore(staged).map_err(io::Error::other)
    }

    /// Writes a snapshot of the state. The log may be purged after it.
    ///
    /// # Errors
    /// An error of the disk.
    pub fn checkpoint_simulated(&self) -> Result<(), StoreError> {
        self.replica().checkpoint().map(drop)
    }

    /// Ends a node. Remaining writes go to its disk; for a crash, the caller has replaced the disk
    /// before.
    pub async fn end_simulated(&self) {
        self.abort_tasks();
        // Shutdown fails if the core has already ended.
        drop(self.consensus().shutdown().await);
        // Shutdown fails if the disk is off.
        drop(self.store().shut_down());
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks the thread, and so the whole simulation, until another thread has finished its work.
fn block_on<F: Future>(future: F) -> F::Output {
    // Without this, tokio pauses a task that has used up its budget, and the thread would wait for
    // it.
    let mut future = pin!(tokio::task::unconstrained(future));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn step(replica: &Replica) {
    let (sender, receiver) = std::sync::mpsc::channel();
    replica.step(Box::new(move |result| drop(sender.send(result))));
    // A closed store drops the sender, so the receive fails.
    drop(receiver.recv());
}

/// Receives the result of a sync.
type Flushed = <<Runtime as AsyncRuntime>::Oneshot as Oneshot>::Receiver<io::Result<()>>;

/// When an append is synced, whom to call then, and the result.
type Completion = (Instant, IOFlushed<Types>, Flushed);

/// The log of a node whose writer thread runs only while the simulation waits for it. It syncs an
/// append some time after the append has returned; a power cut before may remove the entries.
struct SteppedLog {
    inner: LogStore,
    replica: Replica,
    sync_time: Box<dyn FnMut() -> Duration + Send + Sync>,
    completions: mpsc::UnboundedSender<Completion>,
}

impl SteppedLog {
    fn new(replica: Replica, sync_time: Box<dyn FnMut() -> Duration + Send + Sync>) -> Self {
        let (completions, mut due) = mpsc::unbounded_channel::<Completion>();
        replica.sync_in_steps();
        let stepped = replica.clone();
        tokio::spawn(async move {
            while let Some((at, callback, flushed)) = due.recv().await {
                tokio::time::sleep_until(at).await;
                // Another call may have synced the entries already.
                step(&stepped);
                let closed = || Err(io::Error::other("the store is closed"));
                callback.io_completed(block_on(flushed).unwrap_or_else(|_| closed()));
            }
        });
        Self {
            inner: LogStore::new(replica.clone()),
            replica,
            sync_time,
            completions,
        }
    }
}

impl RaftLogStorage<Types> for SteppedLog {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        self.inner.get_log_state().await
    }

    async fn get_log_reader(&mut self) -> LogReader {
        self.inner.get_log_reader().await
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        tokio::time::sleep((self.sync_time)()).await;
        if is_planted(Fault::VoteNotSaved) {
            return Ok(());
        }
        let saved = block_on(self.inner.save_vote(vote));
        step(&self.replica);
        saved
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.inner.save_committed(committed).await
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        self.inner.read_committed().await
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let (sender, flushed) = <Runtime as AsyncRuntime>::Oneshot::channel();
        let written = block_on(self.inner.append(entries, IOFlushed::signal(sender)));
        let at = Instant::now() + (self.sync_time)();
        let callback = if is_planted(Fault::SyncReportedEarly) {
            callback.io_completed(Ok(()));
            IOFlushed::noop()
        } else {
            callback
        };
        drop(self.completions.send((at, callback, flushed)));
        written
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let truncated = block_on(self.inner.truncate_after(last));
        step(&self.replica);
        truncated
    }

    async fn purge(&mut self, id: LogId) -> Result<(), io::Error> {
        let purged = block_on(self.inner.purge(id));
        step(&self.replica);
        purged
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{Ipv4Addr, SocketAddr};

    use weir_store::LogIndex;
    use weir_store::disk::SimDisk;
    use weir_store::replica::{EntryBody, EntryId, ReplicaEntry};

    use super::*;
    use crate::convert::entry;
    use crate::types::Member;

    const CONFIG: NodeConfig = NodeConfig {
        node: 1,
        cluster: [7; 16],
        incarnation: 1,
    };

    fn options() -> OpenOptions {
        OpenOptions {
            log_segment_bytes: 4 << 10,
            ..OpenOptions::default()
        }
    }

    fn open(disk: &SimDisk) -> (Store, Replica) {
        let node = NodeOptions {
            node: CONFIG.node,
            cluster: CONFIG.cluster,
            incarnation: CONFIG.incarnation,
            allow_gaps: false,
        };
        let (log, _) = proposals();
        Store::open_node_disk(Arc::new(disk.clone()), &options(), &node, log).unwrap()
    }

    /// Whether some power cut removes the entry.
    fn can_lose(disk: &SimDisk, id: EntryId) -> bool {
        (0..32).any(|seed| {
            let (_store, replica) = open(&disk.power_cut(seed));
            replica.log_state().last < Some(id)
        })
    }

    fn millisecond() -> Box<dyn FnMut() -> Duration + Send + Sync> {
        Box::new(|| Duration::from_millis(1))
    }

    /// The consensus saves a committed index when the entries are appended, before they are synced.
    #[tokio::test(start_paused = true)]
    async fn a_power_cut_can_remove_an_append_until_it_is_reported_as_synced() {
        let disk = SimDisk::new();
        let (_store, replica) = open(&disk);
        let id = EntryId {
            term: 1,
            index: LogIndex(1),
        };
        let body = EntryBody::Blank;
        let blank = entry(ReplicaEntry { id, body }).unwrap();
        let mut log = SteppedLog::new(replica, millisecond());
        let (sender, flushed) = <Runtime as AsyncRuntime>::Oneshot::channel();
        let appended = log.append([blank], IOFlushed::signal(sender)).await;
        appended.unwrap();
        assert!(can_lose(&disk, id));
        flushed.await.unwrap().unwrap();
        assert!(!can_lose(&disk, id));
    }

    /// The network of a node without peers.
    #[derive(Debug)]
    struct Alone;

    impl Transport for Alone {
        fn connect<'a>(&'a self, _: &'a str) -> Connecting<'a> {
            Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
        }
    }

    impl Acceptor for Alone {
        fn accept(&mut self) -> Accepting<'_> {
            Box::pin(std::future::pending())
        }

        fn address(&self) -> io::Result<SocketAddr> {
            Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_power_cut_does_not_remove_a_cluster_that_was_reported_as_formed() {
        let disk = SimDisk::new();
        let parts = SimParts {
            disk: Arc::new(disk.clone()),
            options: options(),
            config: CONFIG,
            transport: Arc::new(Alone),
            acceptor: Box::new(Alone),
            sync_time: millisecond(),
        };
        let node = Node::open_simulated(parts).await.unwrap();
        let members = BTreeMap::from([(CONFIG.node, Member::default())]);
        node.initialize(members).await.unwrap();
        let first = EntryId {
            term: 0,
            index: LogIndex(1),
        };
        assert!(!can_lose(&disk, first));
        node.end_simulated().await;
    }
}

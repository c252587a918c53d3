//! Finds an older copy of the directory of a node: a restored backup, a cloned disk, a snapshot of a
//! virtual machine (docs/formats/cluster.md, "An older copy of a directory").
//!
//! Each node reports the progress of its directory to all others, which save the report on disk.
//! With its own report, each side sends the newest report that it has seen of the other side. If
//! another node has seen a newer report than the node has, the node has lost votes or entries that
//! it acknowledged.
//!
//! Invariant: a node that knows that its directory is an older copy answers no request, and sends
//! none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use weir_store::LogIndex;
use weir_store::replica::{DirectoryReport, EntryId, Replica};

use crate::convert::decode_members;
use crate::machine::blocking;
use crate::members::was_removed;
use crate::types::Membership;

/// The reports that this node has seen of the others, and whether another node has seen a newer
/// report of this node.
pub(crate) struct Reports {
    replica: Replica,
    seen: Arc<Mutex<SeenReports>>,
    /// Held from the removal of records from `seen` until they are on disk.
    saving: Arc<tokio::sync::Mutex<()>>,
    /// Why this directory is an older copy; `None` while no node has reported it.
    older: watch::Sender<Option<String>>,
    /// Whether a member has reported that this node was removed. Never reset: a number is used once.
    is_removed: AtomicBool,
    /// Wakes the task in [`Reports::removed`].
    removal: Notify,
}

#[derive(Default)]
struct SeenReports {
    nodes: BTreeMap<u64, DirectoryReport>,
    /// Nodes that have confirmed, since the open, that they have seen no later state of this
    /// directory.
    checked_by: BTreeSet<u64>,
    /// Whether some change is not saved yet.
    is_changed: bool,
    /// Nodes that have restarted since their report was saved. The next save must be synced.
    new_runs: BTreeSet<u64>,
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reports").finish_non_exhaustive()
    }
}

/// Whether a simulation plants the fault that nodes do not compare reports.
pub(crate) fn is_ignored() -> bool {
    #[cfg(feature = "sim")]
    if crate::planted::is_planted(crate::planted::Fault::ReportsIgnored) {
        return true;
    }
    false
}

impl Reports {
    pub(crate) fn new(replica: Replica) -> Self {
        let nodes = replica.seen().into_iter().collect();
        let seen = SeenReports {
            nodes,
            ..SeenReports::default()
        };
        Self {
            replica,
            seen: Arc::new(Mutex::new(seen)),
            saving: Arc::default(),
            older: watch::Sender::new(None),
            is_removed: AtomicBool::new(false),
            removal: Notify::new(),
        }
    }

    /// Why this directory is an older copy, if it is known to be one.
    pub(crate) fn older(&self) -> Option<String> {
        self.older.borrow().clone()
    }

    /// Receives a message when this directory is found to be an older copy.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<String>> {
        self.older.subscribe()
    }

    /// Records that a member has refused this node, with this reason.
    pub(crate) fn record_refusal(&self, why: &str) {
        let is_removal = why.contains(&was_removed(self.node()));
        if is_removal && !self.is_removed.swap(true, Ordering::Relaxed) {
            self.removal.notify_one();
        }
    }

    /// Whether a member has refused this node because it was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }

    /// Waits until a member has refused this node because it was removed. For one task.
    pub(crate) async fn removed(&self) {
        while !self.is_removed() {
            // Returns at once if the refusal arrived after the check.
            self.removal.notified().await;
        }
    }

    /// See [`Replica::observe_clock`].
    pub(crate) fn observe_clock(&self) {
        self.replica.observe_clock();
    }

    /// Number of this node.
    pub(crate) fn node(&self) -> u64 {
        self.replica.node()
    }

    /// The members, as they were last applied.
    pub(crate) fn members(&self) -> Option<Membership> {
        let (_, body) = self.replica.applied().membership?;
        decode_members(&body).ok()
    }

    /// The newest entry of the log of this node.
    pub(crate) fn last(&self) -> LogIndex {
        let last = self.replica.log_state().last;
        last.map_or(LogIndex::ZERO, |last| last.index)
    }

    /// The report of this node, and the newest report that it has seen of `node`. The first report
    /// to a node is empty: if this directory is an older copy, no node may record it as a later
    /// state.
    pub(crate) fn for_peer(&self, node: u64) -> (DirectoryReport, DirectoryReport) {
        let seen = self.seen.lock();
        let is_checked = seen.checked_by.contains(&node);
        let of_node = seen.nodes.get(&node).copied().unwrap_or_default();
        drop(seen);
        let own = if is_checked {
            self.replica.report()
        } else {
            DirectoryReport::default()
        };
        (own, of_node)
    }

    /// Processes the report of another node, and the newest report that it has seen of this node.
    pub(crate) fn record(
        &self,
        node: u64,
        report: &DirectoryReport,
        of_this_node: &DirectoryReport,
    ) {
        if is_ignored() {
            return;
        }
        let is_older = self.replica.is_older_than(of_this_node);
        let mut seen = self.seen.lock();
        if report.run != 0 {
            let known = seen.nodes.entry(node).or_default();
            let before = *known;
            known.observe(report);
            let after = *known;
            seen.is_changed |= before != after;
            if before.run != after.run {
                seen.new_runs.insert(node);
            }
        }
        if !is_older {
            seen.checked_by.insert(node);
        }
        drop(seen);
        if is_older {
            let why = older_copy(self.replica.node(), node, of_this_node);
            self.older.send_if_modified(|older| {
                let is_first = older.is_none();
                older.get_or_insert(why);
                is_first
            });
        }
    }

    /// Whether an acknowledged entry is on disk. At other durability levels, a power cut may lose
    /// it.
    pub(crate) fn acknowledges_durable(&self) -> bool {
        self.replica.is_synced() && !is_ignored()
    }

    /// Records that a node has acknowledged a committed entry.
    pub(crate) fn record_acknowledged(&self, node: u64, id: EntryId) {
        if !self.acknowledges_durable() {
            return;
        }
        let mut seen = self.seen.lock();
        let known = seen.nodes.entry(node).or_default();
        if known.newest < Some(id) {
            known.newest = Some(id);
            seen.is_changed = true;
        }
    }

    /// Saves the report of `node` if that node has restarted. It must be saved before the reply: a
    /// node that has received the reply relies on this node to detect an earlier copy of its
    /// directory.
    ///
    /// # Errors
    /// The report is not on disk.
    pub(crate) async fn save_new_run(&self, node: u64) -> io::Result<()> {
        self.save_if(|seen| seen.new_runs.contains(&node)).await
    }

    /// Saves the reports that changed since the last save. The next call repeats a failed save.
    pub(crate) async fn save(&self) {
        if let Err(error) = self.save_if(|seen| seen.is_changed).await {
            tracing::warn!(%error, "the reports of the other nodes were not saved");
        }
    }

    /// Saves if `is_due` is true after the current save has ended.
    async fn save_if(&self, is_due: impl Fn(&SeenReports) -> bool) -> io::Result<()> {
        let saving = Arc::clone(&self.saving).lock_owned().await;
        if !is_due(&self.seen.lock()) {
            return Ok(());
        }
        let (replica, seen) = (self.replica.clone(), Arc::clone(&self.seen));
        // The caller may be aborted meanwhile. This task still runs to its end, and holds the lock
        // until then.
        let saved = blocking(move || {
            let (nodes, new_runs) = seen.lock().take_unsaved();
            let saved = replica.save_seen(nodes, !new_runs.is_empty());
            if saved.is_err() {
                let mut seen = seen.lock();
                seen.is_changed = true;
                seen.new_runs.extend(new_runs);
            }
            drop(saving);
            saved.map_err(io::Error::other)
        });
        saved.await
    }
}

impl SeenReports {
    /// The records, and the nodes that have restarted since the last save. Marks all as saved.
    fn take_unsaved(&mut self) -> (Vec<(u64, DirectoryReport)>, BTreeSet<u64>) {
        self.is_changed = false;
        let nodes = self.nodes.iter().map(|(node, report)| (*node, *report));
        (nodes.collect(), std::mem::take(&mut self.new_runs))
    }
}

fn older_copy(node: u64, by: u64, seen: &DirectoryReport) -> String {
    let newest = seen.newest.map_or(0, |id| id.index.0);
    format!(
        "the directory of node {node} is an older copy: node {by} has seen a later state of it, up to \
         entry {newest}; it has forgotten its votes and what it acknowledged; remove the node (`weir \
         cluster rm {node} --yes`), then join with an empty directory, under a new number"
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::net::TcpListener;
    use weir_store::OpenOptions;

    use super::*;
    use crate::node::{Node, NodeConfig};

    #[cfg(feature = "sim")]
    #[tokio::test]
    async fn a_failed_save_is_reported_and_repeated() {
        use weir_store::disk::{SimDisk, SimFailure, SimOp};
        let disk = SimDisk::new();
        let options = OpenOptions {
            log_segment_bytes: 1 << 20,
            ..OpenOptions::default()
        };
        let identity = weir_store::replica::NodeOptions {
            node: 1,
            cluster: [7; 16],
            incarnation: 0,
            allow_gaps: false,
        };
        let (proposals, _received) = crate::node::proposals();
        let opened = weir_store::Store::open_node_disk(
            Arc::new(disk.clone()),
            &options,
            &identity,
            proposals,
        );
        let (_store, replica) = opened.unwrap();
        let reports = Reports::new(replica.clone());
        let report = DirectoryReport {
            incarnation: 9,
            generation: 1,
            run: 1,
            newest: None,
        };
        reports.record(2, &report, &DirectoryReport::default());
        for _ in 0..2 {
            disk.fail(SimOp::Write, 1, SimFailure::Io);
            reports.save_new_run(2).await.unwrap_err();
            // Node 3 has not restarted.
            reports.save_new_run(3).await.unwrap();
        }
        assert_eq!(replica.seen(), []);
        reports.save_new_run(2).await.unwrap();
        assert_eq!(replica.seen(), [(2, report)]);
    }

    /// The reports of other nodes are saved at the same time.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_report_of_a_new_run_is_saved_before_it_is_answered() {
        let directory = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = NodeConfig {
            node: 1,
            cluster: [7; 16],
            incarnation: 0,
        };
        let node = Node::open(directory.path(), &OpenOptions::default(), config, listener).await;
        let node = node.unwrap();
        let reports = Arc::new(Reports::new(node.replica.clone()));
        let others = Arc::clone(&reports);
        let others = tokio::spawn(async move {
            loop {
                others.save().await;
                tokio::task::yield_now().await;
            }
        });
        for run in 1..=100 {
            let report = DirectoryReport {
                incarnation: 9,
                generation: run,
                run,
                newest: None,
            };
            reports.record(2, &report, &DirectoryReport::default());
            tokio::task::yield_now().await;
            reports.save_new_run(2).await.unwrap();
            assert_eq!(node.replica.seen(), [(2, report)]);
        }
        others.abort();
        node.close().await.unwrap();
    }
}

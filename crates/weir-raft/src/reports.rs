//! Finds an older copy of the directory of a node: a restored backup, a cloned disk, a snapshot of a
//! virtual machine (docs/formats/cluster.md, "An older copy of a directory").
//!
//! Each node reports to all others how far its directory is, and they keep it on their disks. With
//! its own report each side sends the newest one that it has seen of the other. A node that is
//! behind what another one has seen of it has forgotten votes or entries that it acknowledged.
//!
//! Invariant: a node that has found out that its directory is an older copy answers no request,
//! and asks for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use weir_store::replica::{DirectoryReport, EntryId, Replica};

use crate::convert::decode_members;
use crate::machine::blocking;
use crate::types::Membership;

/// What this node has seen of the others, and whether they have seen more of it than it has.
pub(crate) struct Reports {
    replica: Replica,
    seen: Arc<Mutex<Seen>>,
    /// Held from the moment when records are taken from `seen` until they are on the disk.
    saving: Arc<tokio::sync::Mutex<()>>,
    /// Why this directory is an older copy; `None` as long as nobody has said so.
    older: watch::Sender<Option<String>>,
}

#[derive(Default)]
struct Seen {
    nodes: BTreeMap<u64, DirectoryReport>,
    /// Nodes that have seen no later state of this directory, since it was opened.
    checked_by: BTreeSet<u64>,
    /// Something is not saved yet.
    is_changed: bool,
    /// Another node was started again since the last save: this is synced.
    has_new_run: bool,
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reports").finish_non_exhaustive()
    }
}

/// Whether a simulation plants nodes that do not compare what they have seen.
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
        let seen = Seen {
            nodes,
            ..Seen::default()
        };
        Self {
            replica,
            seen: Arc::new(Mutex::new(seen)),
            saving: Arc::default(),
            older: watch::Sender::new(None),
        }
    }

    /// Why this directory is an older copy, if it is known to be one.
    pub(crate) fn older(&self) -> Option<String> {
        self.older.borrow().clone()
    }

    /// Hears when this directory is known to be an older copy.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<String>> {
        self.older.subscribe()
    }

    /// Number of this node.
    pub(crate) fn node(&self) -> u64 {
        self.replica.node()
    }

    /// The members as they were applied last.
    pub(crate) fn members(&self) -> Option<Membership> {
        let (_, body) = self.replica.applied().membership?;
        decode_members(&body).ok()
    }

    /// The report of this node, and what it has seen of `node`. The first report to a node is
    /// empty: if this directory is an older copy, nobody is to take it for a later state.
    pub(crate) fn ours(&self, node: u64) -> (DirectoryReport, DirectoryReport) {
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

    /// Takes the report of another node, and what that node has seen of this one.
    pub(crate) fn received(&self, node: u64, report: &DirectoryReport, of_us: &DirectoryReport) {
        if is_ignored() {
            return;
        }
        let is_older = self.replica.is_older_than(of_us);
        let mut seen = self.seen.lock();
        if report.run != 0 {
            let known = seen.nodes.entry(node).or_default();
            let before = *known;
            known.observe(report);
            let after = *known;
            seen.is_changed |= before != after;
            seen.has_new_run |= before.run != after.run;
        }
        if !is_older {
            seen.checked_by.insert(node);
        }
        drop(seen);
        if is_older {
            let why = older_copy(self.replica.node(), node, of_us);
            self.older.send_if_modified(|older| {
                let is_first = older.is_none();
                older.get_or_insert(why);
                is_first
            });
        }
    }

    /// Whether an entry that was acknowledged is on a disk. Otherwise a power cut may take it: that
    /// is what the level says.
    pub(crate) fn counts_acknowledged(&self) -> bool {
        self.replica.is_synced() && !is_ignored()
    }

    /// Takes note that a node has acknowledged an entry which is committed.
    pub(crate) fn acknowledged(&self, node: u64, id: EntryId) {
        if !self.counts_acknowledged() {
            return;
        }
        let mut seen = self.seen.lock();
        let known = seen.nodes.entry(node).or_default();
        if known.newest < Some(id) {
            known.newest = Some(id);
            seen.is_changed = true;
        }
    }

    /// Saves a report of a node that was started again, before it is answered: from then on that node
    /// takes part, and a copy of its directory from before is to be found out.
    pub(crate) async fn save_new_run(&self) {
        self.save_if(|seen| seen.has_new_run).await;
    }

    /// Saves what was seen since the last time.
    pub(crate) async fn save(&self) {
        self.save_if(|seen| seen.is_changed).await;
    }

    /// Saves if this holds after the save that is under way.
    async fn save_if(&self, is_due: fn(&Seen) -> bool) {
        let saving = Arc::clone(&self.saving).lock_owned().await;
        if !is_due(&self.seen.lock()) {
            return;
        }
        let (replica, seen) = (self.replica.clone(), Arc::clone(&self.seen));
        // The caller may be aborted meanwhile: this ends by itself, and holds the lock until then.
        let saved = blocking(move || {
            let (nodes, is_synced) = seen.lock().take_unsaved();
            let saved = replica.save_seen(nodes, is_synced);
            if saved.is_err() {
                let mut seen = seen.lock();
                seen.is_changed = true;
                seen.has_new_run |= is_synced;
            }
            drop(saving);
            saved.map_err(io::Error::other)
        });
        if let Err(error) = saved.await {
            tracing::warn!(%error, "what was seen of the other nodes was not saved");
        }
    }
}

impl Seen {
    /// The records, and whether they are to be synced. Counts them as saved.
    fn take_unsaved(&mut self) -> (Vec<(u64, DirectoryReport)>, bool) {
        let is_synced = std::mem::take(&mut self.has_new_run);
        self.is_changed = false;
        let nodes = self.nodes.iter().map(|(node, report)| (*node, *report));
        (nodes.collect(), is_synced)
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

    /// The reports of other nodes are saved meanwhile.
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
            reports.received(2, &report, &DirectoryReport::default());
            tokio::task::yield_now().await;
            reports.save_new_run().await;
            assert_eq!(node.replica.seen(), [(2, report)]);
        }
        others.abort();
        node.close().await.unwrap();
    }
}

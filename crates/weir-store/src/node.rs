//! The state of a directory that is a node of a cluster: its number, its vote, and the files that
//! the writer thread updates (docs/decisions/0064).

pub(crate) mod files;

use parking_lot::Mutex;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;

use self::files::{CommittedFile, PeerReportsFile, VoteFile};
use crate::disk::Disk;
use crate::error::StoreError;
use crate::log_index::EntryId;
use crate::permit::Exclusive;
use crate::provider::IntentionLog;
use crate::replay::Appended;

/// The vote of a node. A node votes once in a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The term.
    pub term: u64,
    /// Number of the node that got the vote.
    pub voted_for: u64,
    /// Whether this node knows that a majority granted the vote. Then `voted_for` leads the term.
    pub is_committed: bool,
}

/// A report of a node about its directory. The other nodes use it to detect that the directory was
/// replaced by an older copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryReport {
    /// Identifies the disk of the directory.
    pub incarnation: u64,
    /// Number of writes of the vote file so far. Each open writes the file once.
    pub generation: u64,
    /// Random number that each open chooses anew.
    pub run: u64,
    /// The newest entry that is committed and on the disk of the node. Every later state of the
    /// directory has this entry.
    pub newest: Option<EntryId>,
}

impl DirectoryReport {
    /// Updates this report with a later one of the same node. Ignores a report of an older copy.
    pub fn observe(&mut self, report: &Self) {
        let newest = self.newest.max(report.newest);
        if self.incarnation == 0 {
            // So far, only `newest` is known.
            *self = *report;
            self.newest = newest;
        } else if self.incarnation != report.incarnation {
            *self = *report;
        } else if self.run == report.run {
            self.generation = self.generation.max(report.generation);
            self.newest = newest;
        } else if self.generation < report.generation {
            *self = *report;
            self.newest = newest;
        }
    }
}

/// The log position of the machine of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedState {
    /// The newest applied entry; `None` if there is none.
    pub last: Option<EntryId>,
    /// The newest applied membership entry, and its body; `None` if there is none.
    pub membership: Option<(EntryId, Bytes)>,
}

/// Options to open a directory as a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Number of the node. The open fails if the directory belongs to a node with another number.
    pub node: u64,
    /// Id of the cluster. A store that the open creates gets this id.
    pub cluster: [u8; 16],
    /// Identifies the disk of the directory. An empty directory gets this incarnation; any
    /// other directory must already have it. With 0, an empty directory gets a random
    /// incarnation, and any other directory may have any incarnation.
    pub incarnation: u64,
    /// Whether the log may begin at any entry, and entries that the log lacks may be applied.
    /// Only for the storage suite of openraft, which does both. The server sets `false`.
    #[doc(hidden)]
    pub allow_gaps: bool,
}

/// State that the writer thread and its callers share.
pub(crate) struct Shared {
    pub(crate) node: u64,
    pub(crate) incarnation: u64,
    pub(crate) allow_gaps: bool,
    pub(crate) vote: Mutex<Option<Vote>>,
    pub(crate) committed: Mutex<CommittedFile>,
    /// The log position of the machine: a copy of that of the applier, which an apply and an
    /// installation hold.
    pub(crate) applied: Mutex<AppliedState>,
    pub(crate) seen: Mutex<PeerReportsFile>,
    /// Random number that this open chose.
    pub(crate) run: u64,
    /// Generation of the vote file after this open; `generation` is the present one.
    pub(crate) opened_generation: u64,
    pub(crate) generation: AtomicU64,
    /// Index up to which the log is synced.
    pub(crate) synced: AtomicU64,
    /// The permit to receive a snapshot of another node; one snapshot at a time.
    pub(crate) staging: Arc<Exclusive>,
}

/// A callback that the writer thread calls with the result of an operation.
pub type Callback = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// State of the writer thread in a cluster, besides the log.
pub(crate) struct ReplicaWriter {
    pub(crate) provider: Arc<dyn IntentionLog>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) vote: VoteFile,
    /// Callbacks to call after the next sync.
    pub(crate) flushes: Vec<Callback>,
    /// Whether appended entries wait for a step of a simulation, instead of being synced at once.
    pub(crate) is_stepped: bool,
    /// The newest stamp that this node appended or proposed, in milliseconds.
    pub(crate) stamp_ms: u64,
    /// Compiles the modules in the entries that this node appended.
    pub(crate) appended: Appended,
}

impl ReplicaWriter {
    /// Returns the stamp for a batch: `now_ms`, or the newest stamp so far if that is later.
    pub(crate) fn stamp(&mut self, now_ms: u64) -> u64 {
        self.stamp_ms = self.stamp_ms.max(now_ms);
        self.stamp_ms
    }

    pub(crate) fn observe_stamp(&mut self, payload: &[u8]) {
        let stamp = payload
            .get(8..16)
            .and_then(|stamp| stamp.first_chunk::<8>());
        if let Some(stamp) = stamp {
            self.stamp_ms = self.stamp_ms.max(u64::from_le_bytes(*stamp));
        }
    }
}

/// The files of a node that an open found or created beside the store.
pub(crate) struct NodeFiles {
    pub(crate) vote: VoteFile,
    pub(crate) committed: CommittedFile,
    pub(crate) seen: PeerReportsFile,
}

/// The error for an open that does not name the node of the directory.
pub(crate) fn node_refused(node: u64) -> StoreError {
    let why = format!(
        "this directory is node {node} of a cluster: open it as that node; `weir verify` checks its \
         files"
    );
    StoreError::NodeRefused { why }
}

/// Returns a random incarnation, never 0, so that practically no other directory has the same.
#[must_use]
pub fn new_incarnation() -> u64 {
    loop {
        let incarnation = RandomState::new().build_hasher().finish();
        if incarnation != 0 {
            return incarnation;
        }
    }
}

/// Opens the files of a node, or creates them if the store is empty.
pub(crate) fn node_files(
    disk: &Arc<dyn Disk>,
    store_id: [u8; 16],
    options: &NodeOptions,
    is_empty: bool,
) -> Result<NodeFiles, StoreError> {
    if store_id != options.cluster {
        let why = "this directory belongs to another cluster".to_owned();
        return Err(StoreError::NodeRefused { why });
    }
    let vote = match VoteFile::open(&**disk, store_id)? {
        Some(vote) => vote,
        None if is_empty => {
            let incarnation = match options.incarnation {
                0 => new_incarnation(),
                wanted => wanted,
            };
            VoteFile::create(&**disk, store_id, options.node, incarnation, None)?
        }
        None => {
            let why = "this directory is a store with data, and not a node; `weir cluster init` \
                       makes it the first node of a cluster";
            let why = why.to_owned();
            return Err(StoreError::NodeRefused { why });
        }
    };
    if vote.node != options.node {
        return Err(node_refused(vote.node));
    }
    if ![0, vote.incarnation].contains(&options.incarnation) {
        let why = format!(
            "this directory belongs to another incarnation of node {}",
            vote.node
        );
        return Err(StoreError::NodeRefused { why });
    }
    let committed = CommittedFile::open(&**disk, store_id)?;
    let seen = PeerReportsFile::open(&**disk, store_id)?;
    Ok(NodeFiles {
        vote,
        committed,
        seen,
    })
}

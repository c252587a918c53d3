//! A directory that is a node of a cluster: its number, its vote, and what the writer thread keeps of
//! it (docs/decisions/0064).

pub(crate) mod files;

use parking_lot::Mutex;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use self::files::{CommittedFile, SeenFile, VoteFile};
use crate::disk::Disk;
use crate::error::StoreError;
use crate::log_index::EntryId;
use crate::permit::Exclusive;
use crate::provider::IntentionLog;
use crate::replay::Appended;

/// The vote of a node: in one term it votes once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The term.
    pub term: u64,
    /// The node that was voted for.
    pub voted_for: u64,
    /// Whether a majority is known to have granted it: that node leads the term.
    pub is_committed: bool,
}

/// What a node reports of its directory to the others, by which an older copy of it is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryReport {
    /// Which disk it is on.
    pub incarnation: u64,
    /// Writes of its vote file so far, one of them by each open.
    pub generation: u64,
    /// Random, made by each open.
    pub run: u64,
    /// The newest entry that is both committed and on its disk: no later state of the directory
    /// lacks it.
    pub newest: Option<EntryId>,
}

impl DirectoryReport {
    /// Takes a later report of the same node into account. One of an older copy is ignored.
    pub fn observe(&mut self, report: &Self) {
        let newest = self.newest.max(report.newest);
        if self.incarnation == 0 {
            // Nothing but entries was seen so far.
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

/// How a directory is opened as a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Number of the node. A directory that is a node already has to be this one.
    pub node: u64,
    /// Id of the cluster, which becomes the id of a store that is made.
    pub cluster: [u8; 16],
    /// Which disk of the node a directory is on: an empty directory gets this
    /// incarnation, any other one must have it. 0: a random one, and any.
    pub incarnation: u64,
    /// Whether the log may begin at any entry, and entries may be applied that
    /// the log lacks. Only for openraft's storage suite, which does both; default
    /// no.
    #[doc(hidden)]
    pub holes: bool,
}

/// What the writer thread and its callers share.
pub(crate) struct Shared {
    pub(crate) node: u64,
    pub(crate) incarnation: u64,
    pub(crate) holes: bool,
    pub(crate) vote: Mutex<Option<Vote>>,
    pub(crate) committed: Mutex<CommittedFile>,
    pub(crate) seen: Mutex<SeenFile>,
    /// Random, made by this open.
    pub(crate) run: u64,
    /// Generation of the vote file after this open, and now.
    pub(crate) opened_generation: u64,
    pub(crate) generation: AtomicU64,
    /// Index up to which the log is synced.
    pub(crate) synced: AtomicU64,
    /// Held while a snapshot of another node is received.
    pub(crate) staging: Arc<Exclusive>,
}

/// Called with the result of an operation, on the writer thread.
pub type Done = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// What the writer thread needs beyond the log.
pub(crate) struct ReplicaWriter {
    pub(crate) provider: Arc<dyn IntentionLog>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) vote: VoteFile,
    /// Who hears of the next sync.
    pub(crate) flushes: Vec<Done>,
    /// The newest stamp that was appended or proposed here.
    pub(crate) stamp_ms: u64,
    /// Compiles the modules of what was appended here.
    pub(crate) appended: Appended,
}

impl ReplicaWriter {
    /// A stamp that is not before any that was appended.
    pub(crate) fn stamp(&mut self, now_ms: u64) -> u64 {
        self.stamp_ms = self.stamp_ms.max(now_ms);
        self.stamp_ms
    }

    pub(crate) fn saw(&mut self, payload: &[u8]) {
        let stamp = payload
            .get(8..16)
            .and_then(|stamp| stamp.first_chunk::<8>());
        if let Some(stamp) = stamp {
            self.stamp_ms = self.stamp_ms.max(u64::from_le_bytes(*stamp));
        }
    }
}

/// What an open of a node found beside the store.
pub(crate) struct NodeFiles {
    pub(crate) vote: VoteFile,
    pub(crate) committed: CommittedFile,
    pub(crate) seen: SeenFile,
}

/// Why a directory is not opened.
pub(crate) fn refuse_node(node: u64) -> StoreError {
    let why = format!(
        "this directory is node {node} of a cluster; open it as that node, or read it with \
         `weir verify`"
    );
    StoreError::NodeRefused { why }
}

/// An incarnation that no other directory has: random, never 0.
#[must_use]
pub fn new_incarnation() -> u64 {
    loop {
        let incarnation = RandomState::new().build_hasher().finish();
        if incarnation != 0 {
            return incarnation;
        }
    }
}

/// Opens or makes the files of a node.
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
            let why = "this directory is a store of its own with data; it becomes a node only on \
                       command";
            let why = why.to_owned();
            return Err(StoreError::NodeRefused { why });
        }
    };
    if vote.node != options.node {
        return Err(refuse_node(vote.node));
    }
    if ![0, vote.incarnation].contains(&options.incarnation) {
        let why = format!("this directory is another disk of node {}", vote.node);
        return Err(StoreError::NodeRefused { why });
    }
    let committed = CommittedFile::open(&**disk, store_id)?;
    let seen = SeenFile::open(&**disk, store_id)?;
    Ok(NodeFiles {
        vote,
        committed,
        seen,
    })
}

//! The storage engine of Weir: writes intentions durably and reads records back.
//!
//! A store is a directory. Its log is the truth; topic segments and snapshots are derived from the
//! log. One thread at a time appends, syncs, applies and returns verdicts, in this order. The store
//! uses the model of `weir-core` and knows nothing of networks or consensus.
//!
//! Invariants:
//! - A write is acknowledged only after it is as durable as its level promises.
//! - Nothing is written after a failed sync.
//! - Bytes are returned only after their checksum was checked.
#![forbid(unsafe_code)]

mod agreement;
mod background_tasks;
mod checkpoint;
mod claim_locks;
pub mod clock;
mod clock_moves;
mod commit;
mod compact;
mod dead_letters;
pub mod disk;
mod engine;
pub mod error;
mod fair_lock;
mod finding;
mod groups;
mod history;
mod history_files;
mod identity;
mod install;
mod key_order;
mod latest;
pub mod lock;
pub mod log;
mod log_index;
mod maintain;
mod maintenance_handle;
mod node;
mod nonblocking;
mod options;
mod permit;
mod position;
mod proposal;
mod provider;
mod purge;
mod queue;
mod read_back;
mod read_only;
mod reader;
mod recovery;
mod replay;
pub mod replica;
mod retention;
mod salvage;
mod scan;
mod scrub;
mod ship;
mod snapshot;
mod store;
mod topic;
pub mod units;
mod verify;

pub use compact::TopicCompactReport;
pub use error::StoreError;
pub use finding::{Finding, Severity};
pub use groups::{ClaimRequest, Claimed, Delivery, GroupInfo};
pub use history::{Agreement, History, OwnedRecord, Replayed};
pub use history_files::HistoryPath;
pub use identity::Identity;
pub use latest::Latest;
pub use lock::{LockHolder, OnLocked};
pub use log::LogIndex;
pub use maintain::{BackupReport, CompactReport};
pub use nonblocking::Current;
pub use options::{Durability, OnProgress, OpenOptions, OpenProgress, Scrub};
pub use position::{PositionError, ReadFrom};
pub use proposal::{Answer, Proposal, Wake};
pub use reader::wire::PageBuilder;
pub use reader::{Changed, Page, Records, TopicReader};
pub use recovery::OpenReport;
pub use retention::RetainReport;
pub use salvage::{MissingRange, SalvageReport, SalvagedTopic, salvage, salvage_dry_run};
pub use scan::{KeyEntry, SCAN_KEYS_MAX, TopicState, key_after};
pub use scrub::ScrubReport;
pub use store::{ProgramInfo, ProgramTally, Stats, Store, TopicInfo};
pub use verify::{FINDINGS_MAX, VerifyProgress, VerifyReport, verify, verify_disk, verify_with};

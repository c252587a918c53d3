//! The public API of an event store, in this process or at a server.
//!
//! ```
//! use weir::{Expect, ReadFrom, Weir};
//!
//! # fn main() -> Result<(), weir::WeirError> {
//! # let dir = tempfile::tempdir().unwrap();
//! let weir = Weir::open(dir.path())?;
//! let orders = weir.topic("orders")?;
//! orders.ensure()?;
//!
//! let first = orders.put("4711", r#"{"state":"open"}"#)?;
//! assert!(first.is_valid());
//!
//! // A conditional write: it succeeds only if no other write came first.
//! let seen = first.offset().unwrap();
//! let paid = orders.put_if("4711", r#"{"state":"paid"}"#, &[Expect::KeyOffset(None, seen.0)])?;
//! let late = orders.put_if("4711", r#"{"state":"void"}"#, &[Expect::KeyOffset(None, seen.0)])?;
//! assert!(paid.is_valid() && !late.is_valid());
//!
//! for page in orders.pages(ReadFrom::Start)? {
//!     for record in &page? {
//!         let record = record?;
//!         println!("{} {}", record.offset, record.kind.name());
//!     }
//! }
//! assert_eq!(orders.get("4711")?.unwrap().value(), br#"{"state":"paid"}"#);
//! weir.close()
//! # }
//! ```
//!
//! Reads have asynchronous forms for any runtime. Writes have one too, because a [`Proposal`] is a
//! future. A local store returns values in memory immediately, and reads values on disk on a thread
//! pool of this crate. The response of a server wakes the task.
//!
//! ```
//! use std::time::Duration;
//! use weir::{ConnectOptions, ReadFrom, Weir, WeirError};
//!
//! async fn watch(url: &str) -> Result<(), WeirError> {
//!     let weir = Weir::connect_async(url, &ConnectOptions::default()).await?;
//!     // Reads through this handle fail after a second.
//!     let orders = weir.within(Duration::from_secs(1)).topic("orders")?;
//!     if let Some(order) = orders.get_async("4711").await? {
//!         println!("{}", order.record().offset);
//!     }
//!     let mut reader = orders.listener_async(ReadFrom::Start).await?;
//!     loop {
//!         for record in &reader.next().await? {
//!             println!("{}", record?.offset);
//!         }
//!     }
//! }
//! ```
//!
//! A verdict other than VALID is a value, not an error: the store understood the write and rejected
//! it. An error means that the outcome is unknown, or that nothing was tried.
//!
//! Invariants:
//! - This crate adds no semantics: it offers names and tracks nonces. The rules are in `weir-core`,
//!   the disk is in `weir-store`.
//! - Only the methods of one private enum distinguish local from remote (`backend.rs`).
#![forbid(unsafe_code)]

mod backend;
mod blocking_pool;
mod clock;
mod error;
mod group;
mod latest;
mod query_topics;
mod remote;
mod reply;
mod session;
mod status;
mod topic;
mod value;
mod verdict;
mod weir;
mod work;

pub use backend::TopicReader;
pub use error::WeirError;
pub use group::{Group, Settle, Works};
pub use latest::{Current, Latest};
pub use query_topics::options::{TopicEnd, TopicQueryOptions, TopicView, pattern_matches};
pub use query_topics::{TopicQuery, TopicQueryCanceller, TopicQueryNews, TopicStep};
pub use remote::{AddressError, ConnectOptions};
pub use reply::{Reply, interruptible};
pub use session::{Pending, Session};
pub use status::{BudgetStatus, ClusterStatus, MemberStatus, ServerStatus, Status};
pub use topic::{Pages, Topic};
pub use value::Value;
pub use verdict::Verdict;
pub use weir::{Weir, salvage, salvage_dry_run, verify, verify_watched, with_engine};
pub use work::{Claim, Work};

/// Checks and tests programs.
#[cfg(feature = "programs")]
pub use weir_program as program;

pub use weir_core::error_code::{Class as ErrorClass, Fault as ErrorFault, Retry as ErrorRetry};
pub use weir_core::group::Offsets as GroupOffsets;
pub use weir_core::intention::{
    Expect, Intention, IntentionError, IntentionLimits, Operation, TxnOp,
};
pub use weir_core::{
    ClientId, CodeHash, Commit, Compaction, ConsequenceOffset, Detail, Digest, Effect, ErrorCode,
    GroupMode, GroupName, GroupSetup, GroupStep, IntentionOffset, NameError, Outcome, OutcomeRun,
    Outcomes, ProgramCounts, ProgramHost, ProgramOptions, Record, RecordFlags, RecordKind,
    Retention, StateMode, TopicId, TopicName, TopicOptions, limits,
};
pub use weir_protocol::Consistency;
/// Queries over pages of JSON from any source.
pub use weir_query as query;
pub use weir_store::disk::{FileSystem, Survival, file_system, volatile_kind};
pub use weir_store::lock::SOCKET_FILE;
pub use weir_store::units;
pub use weir_store::{
    Agreement, BackupReport, CompactReport, Durability, Finding, GroupInfo, History, Identity,
    KeyEntry, LockHolder, LogIndex, MissingRange, OnLocked, OnProgress, OpenOptions, OpenProgress,
    OpenReport, OwnedRecord, Page, PositionError, ProgramInfo, Proposal, ReadFrom, Records,
    Replayed, RetainReport, SCAN_KEYS_MAX, SalvageReport, SalvagedTopic, Severity, Stats, Store,
    StoreError, TopicCompactReport, TopicInfo, VerifyProgress, VerifyReport,
};

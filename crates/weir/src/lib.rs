//! The front door: one API for an event store, near or far.
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
//! // A conditional write: only if nobody was faster.
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
//! A verdict that is not VALID is a value, not an error: the store understood
//! and said no. An error means that nobody knows, or that nothing was tried.
//!
//! What must never happen here: a semantic of its own. This crate names things
//! and keeps nonces; the rules are in `weir-core`, the disk in `weir-store`; near and far are told apart
//! in one private place.
#![forbid(unsafe_code)]

mod error;
mod far;
mod group;
mod latest;
mod place;
mod query_topics;
mod reader;
mod session;
mod topic;
mod value;
mod verdict;
mod weir;

pub use error::WeirError;
pub use far::{AddressError, ConnectOptions};
pub use group::{Claim, Group, Settle, Work, Works};
pub use latest::{Current, Latest};
pub use query_topics::options::{TopicEnd, TopicQueryOptions, TopicView, pattern_matches};
pub use query_topics::{TopicQuery, TopicQueryCanceller, TopicStep};
pub use reader::TopicReader;
pub use session::{Pending, Session};
pub use topic::{Pages, ReadFrom, Topic};
pub use value::Value;
pub use verdict::Verdict;
pub use weir::{Weir, verify};

/// Checking and testing programs.
#[cfg(feature = "programs")]
pub use weir_program as program;

pub use weir_core::error_code::{Class as ErrorClass, Fault as ErrorFault, Retry as ErrorRetry};
pub use weir_core::group::Offsets as GroupOffsets;
pub use weir_core::intention::{
    Expect, Intention, IntentionError, IntentionLimits, Operation, TxnOp,
};
/// Queries over pages of JSON, from anywhere.
pub use weir_core::query;
pub use weir_core::{
    ClientId, CodeHash, Commit, Compaction, ConsequenceOffset, Detail, Digest, Effect, ErrorCode,
    GroupMode, GroupName, GroupSetup, GroupStep, IntentionOffset, NameError, Outcome, OutcomeRun,
    Outcomes, ProgramCounts, ProgramHost, ProgramOptions, Record, RecordFlags, RecordKind,
    Retention, StateMode, TopicId, TopicName, TopicOptions, limits,
};
pub use weir_store::lock::SOCKET_FILE;
pub use weir_store::{
    Agreement, BackupReport, CompactReport, Durability, Finding, GroupInfo, History, Identity,
    KeyEntry, LogIndex, OpenOptions, OpenReport, OwnedRecord, Page, ProgramInfo, Proposal, Records,
    Replayed, RetainReport, SCAN_KEYS_MAX, Severity, Stats, Store, StoreError, TopicCompactReport,
    TopicInfo, VerifyReport,
};

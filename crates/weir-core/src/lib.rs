//! The deterministic model of Weir: it decides the outcome of every intention.
//!
//! `weir-core` contains the model (topics, intentions, consequences, effects, sessions), the
//! encoding of a batch, and the [`Machine`] that applies batches. Equal batches in equal order give
//! equal state, equal records and equal digests on every node.
//!
//! This crate has no I/O, clock, randomness, floating point or threads, and no outcome depends on
//! the order of a hash table. Time and the seed of the hash tables are arguments.
#![forbid(unsafe_code)]

pub mod batch;
pub mod call_context;
mod code;
pub mod codec;
pub mod digest;
pub mod effect;
#[allow(clippy::match_same_arms, reason = "generated, one arm for each code")]
pub mod error_code;
pub mod exact;
pub mod group;
mod ids;
mod image;
pub mod intention;
pub mod keys;
pub mod kv;
pub mod limits;
pub mod machine;
pub mod options;
pub mod program;
pub mod record;
pub mod session;
pub mod snapshot;

pub use batch::{Batch, BatchBuilder, BatchError, Item};
pub use digest::Digest;
pub use effect::{Commit, Detail, Effect, Outcome, OutcomeRun, Outcomes};
pub use error_code::ErrorCode;
pub use group::{GroupMode, GroupName, GroupSetup, GroupStep};
pub use ids::{ClientId, ConsequenceOffset, IntentionOffset, NameError, TopicId, TopicName};
pub use intention::{Expect, Intention, Operation, TxnOp};
pub use machine::{Applied, ApplyError, Machine};
pub use options::{Compaction, ProgramOptions, Retention, TopicOptions};
pub use program::{
    CodeHash, Facts, Program, ProgramCounts, ProgramHost, ProgramView, Refusal, Setup, StateMode,
    Trap, TrapKind, Verdicts,
};
pub use record::{ConsequenceSink, Record, RecordFlags, RecordKind};
pub use snapshot::{SnapshotError, SnapshotSink, SnapshotSource};

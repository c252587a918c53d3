//! The records of topics on disk and in memory, for listeners and key reads.
//!
//! The apply adds records in order. Closed blocks are written to segment files in large pieces and
//! without a sync, because topics can be derived again from the log. Readers never wait for the
//! writer, and the writer never waits for a reader: blocks are immutable and shared, and only the
//! tail of the newest block is copied.
//!
//! Invariants:
//!
//! - No record is returned before it is published.
//! - No record is returned if its checksum does not match.

pub(crate) mod block;
pub(crate) mod cache;
pub(crate) mod files;
pub(crate) mod signal;
pub(crate) mod writer;

//! Topics on disk and in memory: what listeners and key reads see.
//!
//! Records come from apply, in order; closed blocks go to segment files in
//! large pieces and without a sync, because everything here can be derived
//! again from the log. Readers never wait for the writer and the writer never
//! waits for a reader: blocks are immutable and shared, and only the tail of
//! the newest block is copied.
//!
//! Invariants: no record is returned before it is published, nor if its
//! checksum does not match.

pub(crate) mod block;
pub(crate) mod cache;
pub(crate) mod files;
pub(crate) mod signal;
pub(crate) mod writer;

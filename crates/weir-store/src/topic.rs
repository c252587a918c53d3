//! Topics on disk and in memory: what listeners and key reads see.
//!
//! Records come from apply, in order; closed blocks go to segment files in
//! large pieces and without a sync, because everything here can be derived
//! again from the log. Readers never wait for the writer and the writer never
//! waits for a reader: blocks are immutable and shared, and only the tail of
//! the newest block is copied.
//!
//! What must never happen here: a record handed to a reader before it was
//! published, or after a checksum that did not match.

pub(crate) mod block;
pub(crate) mod cache;
pub(crate) mod files;
pub(crate) mod signal;
pub(crate) mod writer;

//! Tests of the machine through its public interface: a model, transcripts, and the bytes of
//! batches and snapshots.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

mod batch;
mod groups;
mod model;
mod portions;
mod snapshot;
mod transcripts;

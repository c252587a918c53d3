//! The encoding of batches: vectors, limits at one below, at and one above, and bytes that no
//! builder wrote.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod broken;
mod limits;
mod text;
mod vectors;

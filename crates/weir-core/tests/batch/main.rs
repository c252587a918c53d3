//! The bytes of batches: vectors, limits at one below, at and one above, and
//! bytes that nobody wrote.
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

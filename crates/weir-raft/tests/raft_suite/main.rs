//! Consensus over real directories and real connections.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    reason = "a failed expectation is what a test is for"
)]

mod clocks;
mod cluster;
#[cfg(feature = "sim")]
mod divergence;
mod processes;
mod storage;
mod unauthenticated;

//! Consensus over real directories and real connections.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    reason = "a failed expectation is what a test is for"
)]

mod cluster;
mod processes;
mod storage;

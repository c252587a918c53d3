//! The native port of a real server, with sockets, bytes and packets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

mod bad;
#[path = "../shared/hold.rs"]
mod hold;
mod hostile;
mod listen;
mod peer;
mod read;
mod sessions;
mod slow;
mod write;

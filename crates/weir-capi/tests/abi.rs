//! Calls that violate the rules of the header, and the return of loans in every case.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    reason = "a test of an interface for C calls it as C does, and may fail by panicking"
)]

#[cfg(unix)]
#[path = "abi/events.rs"]
mod events;
#[cfg(debug_assertions)]
#[path = "abi/full.rs"]
mod full;
#[path = "abi/kit.rs"]
mod kit;
#[path = "abi/loans.rs"]
mod loans;
#[path = "abi/panics.rs"]
mod panics;
#[path = "abi/pointers.rs"]
mod pointers;
#[path = "abi/races.rs"]
mod races;
#[path = "abi/sequences.rs"]
mod sequences;
#[path = "abi/threads.rs"]
mod threads;
#[path = "abi/topics.rs"]
mod topics;
#[cfg(unix)]
#[path = "abi/unread.rs"]
mod unread;
#[path = "abi/waits.rs"]
mod waits;

//! The native module of the Node package `weir`: thin over the front door.
//!
//! The API of programs is in JavaScript (`index.js`), with types in `index.d.ts`; this crate has
//! what needs the engine.
//!
//! Invariants:
//! - Calls that may wait run on threads of this crate, never on the thread of the event loop nor in
//!   the pool of libuv, which file systems need.
//! - A wait is short, so that many calls share the threads.
//! - JavaScript never shares memory with the engine: bytes are copied once in and once out.
//! - The crate adds no semantics and has no unsafe code.
#![deny(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "only Node calls it, and its tests are in JavaScript"
    )
)]
#![allow(
    clippy::needless_pass_by_value,
    clippy::trivially_copy_pass_by_ref,
    clippy::too_many_arguments,
    unreachable_pub,
    reason = "signatures and visibility are what the macros of napi want"
)]

mod error;
mod frames;
mod group;
mod input;
mod pool;
mod query;
mod reader;
mod records;
mod session;
mod store;
mod topic_query;
mod verdict;

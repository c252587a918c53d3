//! The native module of the Node package `weir`: a thin layer over the public API.
//!
//! Programs use the JavaScript API (`index.js`), whose types are in `index.d.ts`. This crate has
//! the parts that need the engine.
//!
//! Invariants:
//! - Calls that may wait run on threads of this crate, never on the thread of the event loop or in
//!   the pool of libuv, which file systems need.
//! - A wait is short, so that many calls share the threads.
//! - JavaScript never shares memory with the engine: bytes are copied once in each direction.
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
    reason = "the macros of napi require these signatures and this visibility"
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

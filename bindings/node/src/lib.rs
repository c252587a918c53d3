//! The native module of the Node package `weir`: thin over the front door.
//!
//! What a program sees is in JavaScript (`index.js`) and its types in `index.d.ts`; here is what
//! needs the engine. Invariants: what may wait runs on threads of ours, never on the thread of the
//! event loop and never in the pool of libuv, which file systems need; a wait is short, so that
//! many take turns; memory that JavaScript may write is its own: bytes are copied once in and once
//! out. What must never happen here: a semantic of its own, unsafe code.
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

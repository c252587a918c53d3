//! Serves a store: the native port and the HTTP edge of one process.
//!
//! A [`Server`] owns its sockets, its threads and nothing else: the store comes
//! from outside and stays with whoever opened it. It reads no environment
//! variable, and no files but those of identities, certificates and keys that
//! its [`ServerConfig`] names; the wall clock only for their expiry, for that of
//! streams, and for the audit.
//!
//! What must never happen here: a rule of the store (they are in
//! `weir-core`), an answer before the store has answered, a payload that is
//! parsed or written anew, a buffer or a queue without a limit, or a store call
//! that makes the reactor wait for a disk (README, "What may block").
#![forbid(unsafe_code)]

mod access;
mod claiming;
mod config;
mod error;
mod http;
mod limits;
mod listing;
mod local;
pub mod logs;
mod metrics;
mod native;
mod opening;
mod resources;
#[allow(dead_code, reason = "some of it is for tests and tools")]
pub mod security;
mod server;
mod service;
mod sessions;
mod shared;
mod turns;
pub mod units;

pub use config::{Address, Key, KeyError, Rate, ServerConfig, Size};
pub use error::{Missing, ServerError};
pub use limits::descriptors::raise_descriptor_limit;
pub use server::{Bound, Opening, Server};

/// For fuzzers and tests; no part of the interface.
#[doc(hidden)]
pub use http::{pieces, stack};

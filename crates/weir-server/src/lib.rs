//! Serves a store: the native port and the HTTP edge of one process.
//!
//! A [`Server`] owns only its sockets and threads: the caller opens the store and closes it. The
//! server reads no environment variable. It reads only the files of identities, certificates and
//! keys that its [`ServerConfig`] names. It uses the wall clock only for the audit, and for the
//! expiry of identities, certificates and streams.
//!
//! Invariants:
//! - The crate implements no rule of the store (they are in `weir-core`).
//! - The server responds only after the store does.
//! - It neither parses nor rewrites a payload.
//! - Every buffer and queue has a limit.
//! - No store call on the reactor waits for a disk (README, "What may block").
//!
//! The modules form layers; a module imports only modules of the layers before its own (checked by
//! `tests/edge/layers.rs`):
//!
//! 1. `config`, `phase`: settings, and the phases of a shutdown
//! 2. `limits`, `metrics`: constants and budgets; counters
//! 3. `http`, `security`: transport, which knows no topic; principals and rights
//! 4. `error`, `logs`, `sessions`, `wake_batches`
//! 5. `cluster`, `descriptors`, `local`, `opening`: the node of a cluster; open
//!    files; the Unix socket; responses before the store is open
//! 6. `connections`: the table of open connections
//! 7. `shared`: the state of the process
//! 8. `claiming`, `listing`, `scrape`, `status`: what both ports use
//! 9. `native`, `resources`: the native port; the resources of the HTTP API,
//!    each with its table of paths, methods, rights, limits, schemas and handlers
//! 10. `service`: the router, which walks the tables
//! 11. `server`: start and shutdown
#![forbid(unsafe_code)]

mod claiming;
pub mod cluster;
mod config;
mod connections;
mod descriptors;
mod error;
mod http;
mod limits;
mod listing;
mod local;
pub mod logs;
mod metrics;
mod native;
mod opening;
mod phase;
mod queued_write;
mod resources;
mod scrape;
#[allow(dead_code, reason = "a part of it is only for tests and tools")]
pub mod security;
mod server;
mod service;
mod sessions;
mod shared;
mod status;
mod wake_batches;

pub use config::{Address, Key, KeyError, MissingProtection, Rate, ServerConfig, Size};
pub use descriptors::raise_descriptor_limit;
pub use error::ServerError;
pub use server::{Bound, Opening, Server};

/// For fuzzers and tests; not part of the interface.
#[doc(hidden)]
pub use http::{pieces, stack};

/// For the command, so that it accepts texts in the same form.
#[doc(hidden)]
pub use http::base64;

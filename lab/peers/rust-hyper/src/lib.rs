//! Shared parts of the HTTP contenders of the lab: the load client, the server that it starts, the
//! counters of the kernel, and the endpoints of the contenders in Rust.
//!
//! Invariants: every late request counts as late; every response is checked.
#![forbid(unsafe_code)]

pub mod bench;
pub mod body;
pub mod client;
mod error;
pub mod http;
pub mod machine;
pub mod params;
pub mod respond;
pub mod server;

pub use error::{Error, fnv, io};

/// Version of crate `name` in this workspace's lock file.
pub fn locked(name: &str) -> &'static str {
    include_str!("../Cargo.lock")
        .split_once(&format!("name = \"{name}\"\nversion = \""))
        .and_then(|(_, rest)| rest.split('"').next())
        .unwrap_or("unknown")
}

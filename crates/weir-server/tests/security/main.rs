//! Security of a real server, over sockets: certificates, tokens, rights, rates and the audit log.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

mod audit;
#[path = "../shared/hold.rs"]
mod hold;
mod http;
mod peer;
mod reload;
mod remote;
mod rights;
mod secrets;
mod sessions;
mod shares;
mod start;
mod streams;
mod tls;
mod world;

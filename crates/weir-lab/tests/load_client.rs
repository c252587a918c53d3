//! The tests of the load client of the HTTP experiments. The client is a part of the peers, whose
//! workspace no test builds, so this file includes its modules.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation
)] // the peers have their own lints

#[path = "../../../lab/peers/rust-hyper/src/bench.rs"]
mod bench;
#[path = "../../../lab/peers/rust-hyper/src/body.rs"]
mod body;
#[path = "../../../lab/peers/rust-hyper/src/client.rs"]
mod client;
#[path = "../../../lab/peers/rust-hyper/src/error.rs"]
mod error;
#[path = "../../../lab/peers/rust-hyper/src/http.rs"]
mod http;
#[path = "../../../lab/peers/rust-hyper/src/machine.rs"]
mod machine;
#[path = "../../../lab/peers/rust-hyper/src/params.rs"]
mod params;

use error::{Error, fnv, io};
// The client uses it.
use mio as _;

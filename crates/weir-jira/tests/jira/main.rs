//! The client against the simulator, over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on says where"
)]

mod faults;
mod pull;
mod world;

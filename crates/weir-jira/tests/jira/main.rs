//! Tests of the client against the simulator, over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may fail by panicking"
)]

mod accounts;
mod chaos;
mod contract;
mod data_center;
mod faults;
mod jql;
mod notes;
mod outbox;
mod project;
mod pull;
mod push;
mod push_faults;
mod random_pull;
mod sim_data;
mod world;
mod zones;

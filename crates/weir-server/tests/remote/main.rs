//! The front door over a connection to a real server: the same answers as in
//! process, whatever happens to the connection.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

mod alike;
mod awaited;
mod cuts;
mod deadlines;
mod follow;
mod groups;
mod history;
mod latest;
mod paced;
mod proxy;
mod query;
mod redirect;
mod series;
mod world;

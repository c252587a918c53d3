//! The `weir` API over a connection to a real server: results equal those of a local store, even if
//! the connection breaks.
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
mod hostile;
mod latest;
mod paced;
mod proxy;
mod query;
mod redirect;
mod series;
mod world;

//! Compares queries with an oracle that parses, sorts, filters and cuts all items: random
//! items in random pages, in every mode, in any order of arrival, stopped and resumed after
//! every result.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

#[path = "query/drive.rs"]
mod drive;
#[path = "query/engine.rs"]
mod engine;
#[path = "query/groups.rs"]
mod groups;
#[path = "query/keys.rs"]
mod keys;
#[path = "query/oracle.rs"]
mod oracle;
#[path = "query/projection.rs"]
mod projection;
#[path = "query/properties.rs"]
mod properties;
#[path = "query/script.rs"]
mod script;
#[path = "query/splits.rs"]
mod splits;
#[path = "query/stops.rs"]
mod stops;
#[path = "query/transcripts.rs"]
mod transcripts;

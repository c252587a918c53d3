//! The HTTP edge over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::format_push_string,
    clippy::cast_possible_truncation,
    clippy::too_many_lines,
    clippy::format_collect,
    clippy::range_plus_one,
    clippy::single_match_else,
    unreachable_pub,
    missing_docs,
    reason = "a test may fail by panicking"
)]

mod body;
mod client;
mod compile;
mod counts;
mod drain;
mod ds;
mod ds_kill;
mod exact;
mod flood;
mod greedy;
mod groups;
mod guarded;
mod h2;
#[path = "../shared/hold.rs"]
mod hold;
mod layers;
mod live;
mod many;
mod module;
mod once;
mod opening;
mod pieces;
mod reference;
mod strict;
mod vectors;
mod world;

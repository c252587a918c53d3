//! Tests of the public API: the shared vectors, a comparison with a naive parser, properties.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "tests may fail loudly and say how many cases they ran"
)]

mod containers;
mod feed;
mod generate;
mod helpers;
mod oracle;
mod packets;
mod properties;
mod render;
mod vectors;

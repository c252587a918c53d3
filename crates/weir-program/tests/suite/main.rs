//! Tests programs on both engines. A script runs four times on each engine: unchanged, with a
//! restart after each command, with each write sent twice, and with both. The outcomes, the
//! digests and the bytes of the state must be equal.
#![allow(
    clippy::unwrap_used,
    clippy::too_many_lines,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::format_collect,
    clippy::many_single_char_names,
    clippy::range_plus_one,
    reason = "tests"
)]

mod bounds;
mod clock;
mod compiled;
mod depth;
mod fuzz;
mod life;
mod meter;
mod money;
mod quota;
mod revert;
mod rules;
mod saved;
mod store;
mod work;
mod world;

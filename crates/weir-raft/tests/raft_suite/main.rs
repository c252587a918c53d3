//! Consensus over real directories and real connections.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    reason = "a failed expectation is what a test is for"
)]

mod clocks;
mod cluster;
#[cfg(feature = "sim")]
mod divergence;
mod processes;
mod storage;
mod unauthenticated;

/// docs/decisions/0066: an exact version, without a command line parser.
#[test]
fn the_version_and_features_of_openraft_match_the_decision() {
    let manifest = include_str!("../../Cargo.toml");
    let mut lines = manifest.lines();
    let line = lines.find(|line| line.starts_with("openraft = ")).unwrap();
    for part in [
        "version = \"=0.10.0-alpha.37\"",
        "default-features = false",
        "features = [\"tokio-rt\", \"type-alias\"]",
    ] {
        assert!(line.contains(part), "{line}");
    }
}

//! Fuzz targets: one entry function for each parser of bytes from strangers.
//!
//! A target panics when it finds a fault. cargo-fuzz runs a target with coverage
//! (`fuzz_targets/`); the test `short` runs every target without it, over seeds
//! and mutations of them ([`mutate`]).
#![forbid(unsafe_code)]
#![allow(clippy::expect_used, reason = "a panic is how a target reports")]
#![allow(clippy::missing_panics_doc, reason = "a panic is how a target reports")]

pub mod adf;
pub mod batch;
pub mod http;
pub mod mutate;
pub mod native;
pub mod packets;
pub mod peer;
pub mod program;
pub mod query_token;
pub mod scan;
pub mod scan_path;
pub mod snapshot;

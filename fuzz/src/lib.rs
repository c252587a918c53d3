//! Fuzz targets: one entry function for each parser of untrusted bytes.
//!
//! A target panics when it finds a fault. cargo-fuzz runs a target with coverage (`fuzz_targets/`).
//! The test `short` runs every target without coverage, on seeds and on mutations of them
//! ([`mutate`]).
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

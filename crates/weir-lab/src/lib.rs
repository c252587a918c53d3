//! Measures contenders side by side, and reports how certain each result is.
//!
//! An *experiment* is a TOML file that names contenders, workloads and
//! claims. The runner checks that the contenders give equal answers, measures
//! them in random interleaved *blocks*, keeps every raw sample, and decides each claim from these
//! blocks. This crate implements the program `weir-lab`; `docs/guide/lab.md` is its manual.
//!
//! Invariants:
//! - Answers are compared before any time is measured.
//! - Every number in a report can be recomputed from the files of its result set.
//! - Equal result sets give equal reports, byte for byte: every random draw comes from the seed of
//!   the experiment.
//! - Every figure is stored with its circumstances.
//! - No figure comes from an unoptimised build.
//! - A block that lacks a sample never counts as complete.
#![deny(unsafe_code)]

pub mod alloc;
pub mod canary;
pub mod child;
pub mod claim;
pub mod clock;
pub mod command;
pub mod compare;
pub mod contender;
pub mod error;
pub mod experiment;
pub mod figures;
pub mod fingerprint;
pub mod inputs;
pub mod machine;
pub mod profile;
pub mod protocol;
pub mod report;
pub mod results;
pub mod rng;
pub mod runner;
pub mod stats;
pub mod summary;
pub mod verify;

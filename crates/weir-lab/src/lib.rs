//! The lab: runs contenders side by side and says how sure it is.
//!
//! An *experiment* is a TOML file that names contenders, workloads and
//! claims. The runner checks that the contenders give equal answers, measures
//! them in random interleaved *blocks*, keeps every raw sample, and decides
//! each claim by a bootstrap interval over paired blocks. `docs/guide/lab.md`
//! is the manual; this crate is the mechanism behind the `weir-lab` program.
//!
//! Invariants:
//! - no time is taken before the answers were compared;
//! - every number in a report can be computed again from the files of its
//!   result set;
//! - the same result set gives the same report, byte for byte: every random
//!   draw comes from the seed of the experiment.
//!
//! Invariants:
//! - Every figure is stored with its circumstances.
//! - No figure is of an unoptimised build.
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

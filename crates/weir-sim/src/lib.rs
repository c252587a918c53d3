//! Whole clusters in one process, under a simulated network, disk and clock.
//!
//! [`run`] executes one history that follows from its seed. The nodes are those of `weir-raft` over
//! stores of `weir-store`, and exchange the bytes that they would send over TCP. A safety phase
//! injects faults. A liveness phase without faults follows, in which every client must make
//! progress and all nodes must agree. See docs/decisions/0079.
//!
//! Invariants: one thread runs at a time; nothing depends on the wall clock, on the random
//! source of the system or on addresses in memory.
#![forbid(unsafe_code)]

mod change;
mod client;
mod clock;
mod cluster;
mod invariants;
mod listener;
mod nemesis;
mod network;
mod random;
mod report;
mod run;
mod scenario;
mod trace;
mod worker;

pub use report::{DiskFault, Planted, Report, Violation};
pub use run::{run, run_with_disk_fault};
pub use scenario::{Scenario, run_scenario};

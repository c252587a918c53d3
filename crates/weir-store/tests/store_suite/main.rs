//! Tests of the durable store through its API: commits, listeners, crashes, faults,
//! snapshots, compaction, old formats. The modules `log_…` test the log alone.
//!
//! No test sleeps to wait for an event. Where order matters, a test disk holds an operation
//! until the test releases it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::case_sensitive_file_extension_comparisons,
    clippy::cast_possible_truncation,
    clippy::similar_names,
    clippy::needless_pass_by_value,
    unreachable_pub,
    reason = "a failed expectation is what a test is for"
)]

mod background_tasks;
mod clock;
mod commit;
mod concurrent_crashes;
mod crash;
mod damage;
mod deferred_cursors;
mod disks;
mod faults;
mod fixture;
mod groups;
mod history;
mod inline;
mod install;
mod kill;
mod limits;
mod listen;
mod log_basic;
mod log_crash;
mod log_damage;
mod log_faults;
mod log_fixture;
mod log_lock;
mod log_sim;
mod model;
mod read_only;
mod replay_cost;
mod replica;
mod retention;
mod salvage;
mod scrub;
mod slow_lane;
mod topic_options;
mod verify;
mod world;

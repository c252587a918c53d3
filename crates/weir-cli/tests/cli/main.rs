//! Runs the real command, as people and scripts do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is a failed test"
)]

mod chat;
mod daily;
mod errors;
mod examples;
mod formats;
mod groups;
mod health;
mod help;
mod import;
mod jira;
mod pages;
mod place;
#[path = "../support/ports.rs"]
mod ports;
mod program;
mod query;
mod run;
mod security;
mod served;
mod tools;
mod workload;

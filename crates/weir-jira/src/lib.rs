//! A durable replica of a Jira site in topics, queries over it without a request, and simulated
//! servers for tests and measurements.
//!
//! Invariants:
//! - A token is in no topic, log or message.
//! - A query without a condition is never sent.
//! - An edit is durable before the function that queues it returns, and the site executes it
//!   exactly once.
#![forbid(unsafe_code)]

pub mod access;

pub mod client;
pub mod contract;
pub mod error;
pub mod index;
pub mod jql;
mod keyring;
pub mod meta;
pub mod notes;
pub mod offline;
pub mod op;
pub mod outbox;
pub mod overlay;
mod plan;
pub mod project;
pub mod pull;
pub mod push;
pub mod replica;
pub mod rich;
mod search;
pub mod sim;
pub mod site_query;
mod stored_ops;
pub mod time;
mod values;
mod wiki;
mod wire;

pub use error::{JiraError, Result};

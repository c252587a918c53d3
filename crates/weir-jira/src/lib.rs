//! A durable replica of a Jira site in topics, queries over it without a request, and a simulator of
//! Jira for tests.
//!
//! Invariants:
//! - A token is in no topic, log or message.
//! - A query without a condition is never sent.
#![forbid(unsafe_code)]

pub mod access;
pub mod client;
pub mod error;
pub mod jql;
pub mod offline;
pub mod pull;
pub mod replica;
pub mod sim;
pub mod time;

pub use error::{JiraError, Result};

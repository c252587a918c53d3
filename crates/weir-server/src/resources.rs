//! Resources of the HTTP API, one module for each, and what they share.
//!
//! | module | holds |
//! |---|---|
//! | `route`, `openapi` | paths, methods and parameters of all resources, and the document made of them |
//! | `condition`, `session`, `propose` | conditions, sessions and the way to the store |
//! | `meta`, `cloudevents`, `records` | representations of records |
//! | `events`, `batch`, `topics`, `programs`, `groups`, `ds`, `ops` | the resources |
//!
//! The rules for users are in docs/api/http.md.

pub(crate) mod batch;
pub(crate) mod cloudevents;
pub(crate) mod condition;
pub(crate) mod ds;
pub(crate) mod events;
pub(crate) mod groups;
pub(crate) mod meta;
pub(crate) mod openapi;
pub(crate) mod ops;
pub(crate) mod programs;
pub(crate) mod propose;
pub(crate) mod records;
pub(crate) mod route;
pub(crate) mod session;
pub(crate) mod topics;

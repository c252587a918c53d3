//! Resources of the HTTP API, one module for each, and their shared code.
//!
//! | module | contents |
//! |---|---|
//! | `route`, `openapi` | paths, methods and parameters of all resources, and the generated document |
//! | `context`, `condition`, `session`, `propose`, `problems`, `hub`, `live`, `reading`, `consistency` | the state of the port, conditions, sessions, writing to and reading from the store |
//! | `meta`, `cloudevents`, `records` | representations of records |
//! | `bounded` | arrays and objects of JSON, up to a limit |
//! | `streams` | descriptions and shared state of Durable Streams |
//! | `events`, `batch`, `topics`, `programs`, `groups`, `ds`, `ops` | the resources |
//!
//! The rules for users are in docs/api/http.md.

pub(crate) mod batch;
pub(crate) mod bounded;
pub(crate) mod cloudevents;
pub(crate) mod compile;
pub(crate) mod condition;
pub(crate) mod consistency;
pub(crate) mod context;
pub(crate) mod ds;
pub(crate) mod events;
pub(crate) mod execute;
pub(crate) mod framing;
pub(crate) mod groups;
pub(crate) mod hub;
pub(crate) mod live;
pub(crate) mod meta;
pub(crate) mod openapi;
pub(crate) mod ops;
pub(crate) mod problems;
pub(crate) mod programs;
pub(crate) mod propose;
pub(crate) mod reading;
pub(crate) mod records;
pub(crate) mod route;
pub(crate) mod session;
pub(crate) mod streams;
pub(crate) mod table;
pub(crate) mod topics;

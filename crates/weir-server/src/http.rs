//! HTTP as transport: connections, heads, bodies, codings and responses.
//!
//! | module | contents |
//! |---|---|
//! | `h1`, `h2`, `responder` | connections, and the service that responds to them |
//! | `head`, `query`, `accept`, `prefer`, `origin` | parts of a request |
//! | `coding`, `json`, `base64`, `date` | encodings |
//! | `exchange`, `problem`, `reply` | bodies and responses |
//! | `offload` | work that would block the reactor |
//! | `stack` | only the connections, for the lab |

pub(crate) mod accept;
pub mod base64;
pub(crate) mod coding;
pub(crate) mod date;
pub(crate) mod exchange;
pub(crate) mod h1;
pub(crate) mod h2;
pub(crate) mod head;
pub(crate) mod json;
pub(crate) mod offload;
pub(crate) mod origin;
pub(crate) mod prefer;
pub(crate) mod problem;
pub(crate) mod query;
pub(crate) mod reply;
pub(crate) mod responder;
#[cfg(test)]
pub(crate) mod self_signed;
#[doc(hidden)]
pub mod stack;

#[doc(hidden)]
pub use self::h1::pieces;

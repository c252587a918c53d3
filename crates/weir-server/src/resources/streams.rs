//! The part of Durable Streams that no handler is needed for: descriptions of streams, positions,
//! shared state. The handlers are in [`ds`](super::ds).
//!
//! | module | room |
//! |---|---|
//! | `place` | positions, as tokens |
//! | `config` | what a stream was made with |
//! | `state` | what requests share |
//! | `terms` | keys, limits, media types and names |

pub(crate) mod config;
pub(crate) mod place;
pub(crate) mod state;
pub(crate) mod terms;

//! The part of Durable Streams that needs no handler: descriptions of streams, positions, shared
//! state. The handlers are in [`ds`](super::ds).
//!
//! | module | purpose |
//! |---|---|
//! | `position` | positions, and their tokens |
//! | `config` | descriptions of streams, and the parameters of a PUT |
//! | `state` | state that requests share |
//! | `terms` | keys, limits, media types and names |

pub(crate) mod config;
pub(crate) mod position;
pub(crate) mod state;
pub(crate) mod terms;

//! Orders the batches of a store by consensus over openraft.
//!
//! A [`Node`] is a store in a directory, a task of openraft, and a port for the other nodes. It is
//! a log provider for `weir-store` (docs/decisions/0064): openraft decides the order of the
//! entries, the log of the store persists them, and the machine of the store applies them.
//! docs/formats/cluster.md specifies the bytes on disk and between nodes; docs/decisions/0066 gives
//! the settings.
//!
//! Invariants: no other crate sees openraft; an index of openraft is the index of the log minus
//! one, and only `convert.rs` converts between them; a proposal is answered once.
#![forbid(unsafe_code)]

mod agreement;
mod announce;
mod client;
mod clocks;
mod connections;
mod convert;
mod disk_space;
mod error;
mod exchange;
mod frame;
mod fuzzed;
mod gate;
mod join;
mod machine;
mod members;
mod node;
mod peer;
#[cfg(feature = "sim")]
mod planted;
mod repair;
mod reports;
#[cfg(feature = "sim")]
mod runtime;
mod secure;
mod settings;
#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod sim;
mod storage;
mod throttle;
mod transport;
mod types;
mod wire;

pub use error::NodeError;
pub use join::{JoinRequest, fingerprint, join, join_by};
pub use node::{Node, NodeConfig, Role, Status};
pub use secure::{PeerConfigs, PeerTls};
pub use types::Member;

/// Functions for the fuzz target of the peer port; for tests only.
#[doc(hidden)]
pub use fuzzed::{is_join, peer_frame, peer_hello, read_as_peer};

/// Types for openraft's storage suite; for tests only.
#[doc(hidden)]
pub mod suite {
    pub use crate::machine::{StateMachine, StateMachineSnapshot};
    pub use crate::storage::LogStore;
    pub use crate::types::Types;
}

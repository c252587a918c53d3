//! Runs the programs of topics.
//!
//! A program is a WebAssembly core module with the interface `weir1` (README of this crate).
//! [`WasmtimeHost`] compiles and runs modules. The interpreter `WasmiHost` (feature `wasmi`) checks
//! that outcomes do not depend on the engine.
//!
//! Invariants:
//! - The crate has no clock, randomness or I/O.
//! - Every pointer of a guest is checked before use.
//! - State of an earlier call remains in an instance only in state mode `memory`.
#![forbid(unsafe_code)]

mod abi;
mod fault;
mod host;
mod initial_memory;
mod instance_fuel;
#[cfg(feature = "wasmi")]
mod interpreted;
mod lines;
mod native;
mod report;
mod rewrite;
pub mod script;
mod substitute;
pub mod trace;
mod validate;
mod work;
mod worker;
mod writes;

pub use host::limits;
#[cfg(feature = "wasmi")]
pub use interpreted::WasmiHost;
pub use lines::{
    HOST_LINES_PER_SECOND, LINE_BYTES_MAX, LINE_TOPICS_MAX, LINES_PER_SECOND, Level, LogLine,
    PRINCIPAL_LINES_PER_SECOND, TOPIC_LINE_BYTES_MAX, TOPIC_LINES_MAX,
};
pub use native::WasmtimeHost;
pub use report::Report;
pub use substitute::SubstituteHost;
pub use validate::{default_setup, inspect, largest_setup};
pub use weir_core::program::Refusal;

//! Programs of topics, run.
//!
//! A program is a WebAssembly core module that speaks the interface `weir1`
//! (this crate's README). [`WasmtimeHost`] compiles and runs modules; the
//! interpreter `WasmiHost` (feature `wasmi`) is there to check that an
//! outcome does not depend on the engine.
//!
//! What must never happen in this crate: a clock, randomness, I/O, a pointer
//! of a guest that is used unchecked, or an instance that remembers an earlier
//! call outside of state mode `memory`.
#![forbid(unsafe_code)]

mod abi;
mod host;
#[cfg(feature = "wasmi")]
mod interpreted;
mod native;
mod rewrite;
pub mod script;
mod validate;

pub use host::limits;
#[cfg(feature = "wasmi")]
pub use interpreted::WasmiHost;
pub use native::WasmtimeHost;
pub use validate::{Report, inspect, widest};
pub use weir_core::program::Refusal;

//! The C interface of Weir.
//!
//! The headers are `include/weir.h` and `include/weir_psyc.h`; `docs/formats/abi.md` has the
//! complete rules. This crate checks the arguments of the caller, calls the crate `weir`, and
//! writes the results into the caller's memory.
//!
//! Invariants:
//! - A handle is looked up, never dereferenced.
//! - A call returns a positive or a negative number, never 0.
//! - A panic does not leave the entry point in which it occurs.
//! - An accepted loan is returned exactly once.
//! - A page outlives the object that created it.
//! - No pointer of the caller is retained after the call, except a loan.
//! - The crate adds no semantics. Only `handle`, and the attribute that names an entry, use unsafe
//!   code.
//!
//! | module | purpose |
//! |---|---|
//! | `entry` | the list of all functions |
//! | `raw` | the structures of the header |
//! | `handle` | every access to memory of the caller |
//! | `registry`, `guard` | handles; panics |
//! | `error` | errors, in the form of the caller |
//! | `page` | results: pages of spans |
//! | `store`, `write`, `read`, `group` | a store |
//! | `deadline` | deadlines and cancellation of calls |
//! | `query`, `source`, `loan`, `buffer` | queries, and their input pages |
//! | `descriptor` | queries in event loops |
//! | `psyc`, `parser_state` | the codec, `weir_psyc.h`: allocates nothing |
//! | `about` | versions, and descriptions of errors |
//!
#![deny(unsafe_code)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("weir.h is laid out for targets with 64-bit pointers");
#[cfg(panic = "abort")]
compile_error!(
    "weir-capi catches panics at its entry points, which `panic = \"abort\"` makes impossible"
);

mod about;
mod buffer;
mod deadline;
#[cfg(unix)]
mod descriptor;
mod entry;
mod error;
mod group;
mod guard;
mod handle;
mod loan;
mod page;
mod parser_state;
mod psyc;
mod query;
pub mod raw;
mod read;
mod registry;
mod source;
mod store;
mod write;

pub use entry::*;
#[cfg(debug_assertions)]
pub use guard::{PanicPoint, full_table, panic_at};
pub use psyc::entry::*;

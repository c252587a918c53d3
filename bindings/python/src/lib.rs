//! The native module of the Python package `weir`: a thin layer over the public API.
//!
//! Asynchronous forms, iterators that fetch pages and the classes of errors are in Python
//! (`python/weir`).
//!
//! Invariants:
//! - Calls that may wait, and scans of more than 32 KiB, release the interpreter lock.
//! - No thread waits for another lock while it owns the interpreter lock.
//! - A wait checks for signals at least every 50 ms.
//! - If one thread uses an object, calls of other threads fail with `HANDLE_BUSY`.
//! - The crate adds no semantics. Only `buffer.rs` has unsafe code.
#![deny(unsafe_code)]
#![allow(
    clippy::doc_markdown,
    clippy::needless_pass_by_value,
    clippy::too_many_arguments,
    clippy::unused_self,
    clippy::fn_params_excessive_bools,
    reason = "the signatures and docs are those of Python methods"
)]

mod buffer;
mod data;
mod error;
mod exclusive;
mod frames;
mod group;
mod intention;
mod notify;
mod options;
mod pending;
mod query;
mod reader;
mod record;
mod result;
mod session;
mod store;
mod store_handle;
mod topic;
mod topic_query;
mod value;
mod verdict;
mod wait;

use pyo3::prelude::*;

/// The native part of the package; use `weir` instead.
#[pymodule]
#[pyo3(name = "_weir")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add(
        "build_profile",
        if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        },
    )?;
    module.add_function(wrap_pyfunction!(store::open, module)?)?;
    module.add_function(wrap_pyfunction!(store::connect, module)?)?;
    module.add_class::<buffer::Buffer>()?;
    module.add_class::<group::Group>()?;
    module.add_class::<group::GroupInfo>()?;
    module.add_class::<group::Work>()?;
    module.add_class::<intention::Alter>()?;
    module.add_class::<intention::Create>()?;
    module.add_class::<intention::Delete>()?;
    module.add_class::<intention::Destroy>()?;
    module.add_class::<intention::Expect>()?;
    module.add_class::<intention::Put>()?;
    module.add_class::<intention::Transaction>()?;
    module.add_class::<pending::Pending>()?;
    module.add_class::<query::Need>()?;
    module.add_class::<query::Query>()?;
    module.add_class::<query::Source>()?;
    module.add_class::<reader::Latest>()?;
    module.add_class::<reader::Reader>()?;
    module.add_class::<record::Record>()?;
    module.add_class::<record::RecordPage>()?;
    module.add_class::<result::Item>()?;
    module.add_class::<result::Page>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<store::Store>()?;
    module.add_class::<topic::Topic>()?;
    module.add_class::<topic::TopicInfo>()?;
    module.add_class::<topic_query::TopicQuery>()?;
    module.add_class::<verdict::Verdict>()?;
    Ok(())
}

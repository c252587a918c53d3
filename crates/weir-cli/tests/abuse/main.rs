//! Abuse tests: the effect of abusive clients on a server of 256 MiB and 1,024 descriptors.
//!
//! Each test starts `weir serve` in a memory control group of 256 MiB if it can create one (as
//! root). Otherwise it checks the peak of the memory. The limit of 1,024 descriptors always
//! applies. `make abuse` runs this suite alone.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs,
    reason = "a test may fail by panicking, and prints its measurements"
)]

mod background_writer;
mod descriptors;
mod limited_server;
mod memory;

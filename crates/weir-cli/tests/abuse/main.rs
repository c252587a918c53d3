//! The abuse list: what one client may do to a server of 256 MiB and 1,024 descriptors.
//!
//! Each test starts `weir serve` in a memory control group of 256 MiB where one can be made
//! (as root), else without it and with a look at its peak, always under a limit of 1,024
//! descriptors. `make abuse` runs this suite alone.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs,
    reason = "a test may fail by panicking, and says what it measured"
)]

mod descriptors;
mod memory;
mod neighbour;
mod world;

//! The programs are in `examples/`, one file each; this library is empty.
#![no_std]

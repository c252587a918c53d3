//! weir-store
#![forbid(unsafe_code)]

pub mod disk;

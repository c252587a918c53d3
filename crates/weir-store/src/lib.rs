//! weir-store
#![forbid(unsafe_code)]

pub mod disk;
pub mod error;
pub mod lock;
pub mod log;

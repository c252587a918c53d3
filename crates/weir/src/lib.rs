//! weir
#![forbid(unsafe_code)]

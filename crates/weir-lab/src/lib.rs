//! weir-lab
#![forbid(unsafe_code)]

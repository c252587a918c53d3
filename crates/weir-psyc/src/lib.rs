//! weir-psyc
#![forbid(unsafe_code)]

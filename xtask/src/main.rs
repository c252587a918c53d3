//! Checks and generators of the project.
#![forbid(unsafe_code)]
fn main() {}

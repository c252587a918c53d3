//! Nothing: see the manifest.
#![forbid(unsafe_code)]

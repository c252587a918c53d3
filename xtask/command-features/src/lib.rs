//! Empty: the manifest has the purpose of this package.
#![forbid(unsafe_code)]

//! [`fuzz::peer`] for cargo-fuzz.
#![no_main]
#![forbid(unsafe_code)]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::peer::run(bytes));

//! Any bytes as a stream of HTTP/1.1 requests, cut anywhere: nothing panics, and
//! neither the requests nor the end of the stream depend on the cut. The first
//! bytes say where the pieces end and which limits hold.
#![no_main]
#![forbid(unsafe_code)]
#![allow(clippy::expect_used, reason = "a panic is how a target reports")]

use libfuzzer_sys::fuzz_target;
use weir_server::pieces::{Limits, read};

fuzz_target!(|input: (u8, u16, &[u8])| {
    let (low, cut, bytes) = input;
    let mut limits = Limits::default();
    if low != 0 {
        // Heads that are about as long as is allowed are short this way.
        limits.line = 16 + usize::from(low);
        limits.head = 16 + usize::from(low);
        limits.fields = 1 + usize::from(low % 8);
    }
    let whole = read(bytes, [], limits);
    assert_eq!(whole.heads.len(), whole.bodies.len());
    let cut = usize::from(cut) % bytes.len().max(1);
    assert_eq!(whole, read(bytes, [cut], limits));
    assert_eq!(whole, read(bytes, 0..bytes.len(), limits));
});

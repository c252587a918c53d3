//! Any bytes as the state of a machine: loading never panics and takes only
//! what `save` would have written.
#![no_main]
#![forbid(unsafe_code)]
#![allow(clippy::expect_used, reason = "a panic is how a target reports")]

use libfuzzer_sys::fuzz_target;
use weir_core::Machine;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    if let Ok(machine) = Machine::load(&mut rest, 1) {
        let mut saved = Vec::new();
        machine.save(&mut saved).expect("memory takes all");
        assert_eq!(saved, &bytes[..bytes.len() - rest.len()]);
        let _ = machine.digest();
    }
});

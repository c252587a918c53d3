//! Any bytes as the state of a machine. Loading never panics, and accepts only bytes that `save`
//! could have written.

use weir_core::Machine;

/// The fuzz target.
pub fn run(bytes: &[u8]) {
    let mut rest = bytes;
    if let Ok(machine) = Machine::load(&mut rest, 1) {
        let mut saved = Vec::new();
        machine.save(&mut saved).expect("memory takes all");
        assert_eq!(saved, &bytes[..bytes.len() - rest.len()]);
        let _ = machine.digest();
    }
}

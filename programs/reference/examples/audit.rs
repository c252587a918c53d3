//! `audit`: emits each write unchanged, then a record under the key `.audit` with its time (u64,
//! big-endian), client id and principal.
#![no_std]
#![forbid(unsafe_code)]

use weir_guest::{Input, Outcome, emit_input, emit_put};

weir_guest::program!(apply);

fn apply(input: &Input) -> Outcome {
    let mut entry = [0; 24 + 255];
    entry[..8].copy_from_slice(&input.time_ms().to_be_bytes());
    entry[8..24].copy_from_slice(&input.client());
    let len = input.principal(&mut entry[24..]).len();
    emit_input();
    emit_put(b".audit", &entry[..24 + len]);
    Ok(())
}

//! `unique`: only the first PUT of a key is accepted. Keys of at most 1,024 bytes.
#![no_std]
#![forbid(unsafe_code)]

use weir_guest::{Input, Op, Outcome, emit_input, keys, reject};

weir_guest::program!(apply);

fn apply(input: &Input) -> Outcome {
    let mut key = [0; 1024];
    if input.op() != Op::Put || input.key_len() == 0 || input.key_len() > key.len() {
        return reject(1, "a PUT with a key of at most 1,024 bytes");
    }
    if keys::offset(input.key(&mut key)) != 0 {
        return reject(2, "taken");
    }
    emit_input();
    Ok(())
}

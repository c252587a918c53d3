//! `vanilla` with copies through guest memory: reads key and value and emits them again. For
//! measurements of the copies; at most 1 KiB of key and 4 KiB of value.
#![no_std]
#![forbid(unsafe_code)]

use weir_guest::{Input, Op, Outcome, emit_delete, emit_put, reject};

weir_guest::program!(apply);

fn apply(input: &Input) -> Outcome {
    let (mut key, mut value) = ([0; 1024], [0; 4096]);
    if input.key_len() > key.len() || input.value_len() > value.len() {
        return reject(1, "at most 1,024 bytes of key and 4,096 bytes of value");
    }
    let key = input.key(&mut key);
    match input.op() {
        Op::Put => emit_put(key, input.value(&mut value)),
        _ => emit_delete(key),
    }
    Ok(())
}

//! `counter`: a value is the number to add (i64, big-endian); the record has the sum.
#![no_std]
#![forbid(unsafe_code)]

use weir_guest::{Input, Op, Outcome, be_i64, emit_put, reject, state};

weir_guest::program!(apply);

fn apply(input: &Input) -> Outcome {
    let (mut key, mut value) = ([0; 1024], [0; 8]);
    let right_size = input.value_len() == 8 && (1..=key.len()).contains(&input.key_len());
    if input.op() != Op::Put || !right_size {
        return reject(1, "a key, and a value of 8 bytes");
    }
    let key = input.key(&mut key);
    let add = be_i64(input.value(&mut value), 0).unwrap_or(0);
    let now = state::get_array(key).map_or(0, i64::from_be_bytes);
    let Some(sum) = now.checked_add(add) else {
        return reject(2, "the sum overflows");
    };
    state::put(key, &sum.to_be_bytes());
    emit_put(key, &sum.to_be_bytes());
    Ok(())
}

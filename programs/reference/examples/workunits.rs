//! `workunits`: workers compete for numbered units of work. Each number is assigned once, in order.
//! The value of a PUT is the number, 4 bytes, big-endian.
#![no_std]
#![forbid(unsafe_code)]

use weir_guest::{Input, Op, Outcome, be_i32, emit_put, reject, state};

weir_guest::program!(apply);

const NEXT: &[u8] = b"next";

fn apply(input: &Input) -> Outcome {
    let mut value = [0; 4];
    if input.op() != Op::Put || input.value_len() != 4 {
        return reject(1, "the value is the number of a unit, 4 bytes");
    }
    let unit = be_i32(input.value(&mut value), 0).unwrap_or(0);
    let next = state::get_array(NEXT).map_or(1, i32::from_be_bytes);
    if unit != next {
        return reject(2, "not the next unit");
    }
    let Some(after) = next.checked_add(1) else {
        return reject(3, "no units left");
    };
    state::put(NEXT, &after.to_be_bytes());
    emit_put(&[0; 32], &value);
    Ok(())
}

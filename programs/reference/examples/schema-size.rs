//! `schema-size`: the smallest useful check. Arguments: the maximum size of a
//! value (u32, big-endian), then optionally the byte with which each value must
//! start.
#![no_std]
#![forbid(unsafe_code)]

use weir_guest::{Input, Op, Outcome, be_u32, emit_input, reject};

weir_guest::program!(apply);

fn apply(input: &Input) -> Outcome {
    let (mut args, mut first) = ([0; 5], [0; 1]);
    let args = input.args(&mut args);
    if input.op() == Op::Put {
        if input.value_len() > be_u32(args, 0).unwrap_or(0) as usize {
            return reject(1, "the value is too large");
        }
        let first = input.value(&mut first);
        if args.len() == 5 && first.first() != args.last() {
            return reject(2, "the value starts with another byte");
        }
    }
    emit_input();
    Ok(())
}

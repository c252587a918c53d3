//! `stutter`: emits each PUT twice and each DELETE once.
#![no_std]
#![forbid(unsafe_code)]

use weir_guest::{Input, Op, Outcome, emit_input};

weir_guest::program!(apply);

fn apply(input: &Input) -> Outcome {
    emit_input();
    if input.op() == Op::Put {
        emit_input();
    }
    Ok(())
}

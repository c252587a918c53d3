//! `deployment`: counts. Its start emits 0 under the key in its arguments. Each write emits the
//! next number, modulo 256, under the written key.
#![no_std]
#![forbid(unsafe_code)]

use weir_guest::{Input, Outcome, emit_put, reject, state};

weir_guest::program!(apply, init = init);

const NEXT: &[u8] = b"n";

fn init(input: &Input) -> Outcome {
    let mut key = [0; 1024];
    if input.args_len() > key.len() {
        return reject(1, "a key of at most 1,024 bytes");
    }
    emit_put(input.args(&mut key), &[0]);
    state::put(NEXT, &[1]);
    Ok(())
}

fn apply(input: &Input) -> Outcome {
    let mut key = [0; 1024];
    if input.key_len() > key.len() {
        return reject(1, "a key of at most 1,024 bytes");
    }
    let [n] = state::get_array(NEXT).unwrap_or([0]);
    emit_put(input.key(&mut key), &[n]);
    state::put(NEXT, &[n.wrapping_add(1)]);
    Ok(())
}

//! `even`: accepts the writes at even offsets. At an odd offset it changes its state
//! and emits a record before it rejects. If a store does not undo both, the next call
//! fails.
#![no_std]
#![forbid(unsafe_code)]

use weir_guest::{Input, Outcome, emit_input, emit_put, reject, state, trap};

weir_guest::program!(apply);

const BEFORE: &[u8] = b"before";

fn apply(input: &Input) -> Outcome {
    let before = state::get_array(BEFORE).map_or(0, u64::from_le_bytes);
    if before % 2 == 1 {
        trap();
    }
    let now = input.intention_offset();
    state::put(BEFORE, &now.to_le_bytes());
    let odd = now % 2 == 1;
    if odd {
        emit_put(&[0; 32], &[42]);
    }
    emit_input();
    if odd {
        return reject(1, "odd offset");
    }
    Ok(())
}

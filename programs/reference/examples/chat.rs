//! `chat`: a room with rules. Key: the name of the user. Value: the last offset that the user has
//! seen (u64, big-endian), then the text. Arguments, all big-endian: max_lag, min_interval_ms,
//! max_text (u32 each), own_name (u8).
//!
//! A text has at most 4,088 bytes, even if max_text is larger. The stored time of a user's last
//! text remains when the name of the user is deleted.
#![no_std]
#![forbid(unsafe_code)]

use weir_guest::{Input, Op, Outcome, be_u32, be_u64, emit_input, emit_value, reject, state};

weir_guest::program!(apply, init = init);

fn init(input: &Input) -> Outcome {
    if input.args_len() != 13 {
        return reject(1, "arguments of 13 bytes");
    }
    Ok(())
}

fn apply(input: &Input) -> Outcome {
    let (mut args, mut user, mut who, mut value) = ([0; 13], [0; 64], [0; 255], [0; 4096]);
    let args = input.args(&mut args);
    let number = |at| be_u32(args, at).unwrap_or(0);
    let (max_lag, pause_ms, max_text) = (number(0), number(4), number(8) as usize);
    if input.key_len() == 0 || input.key_len() > 64 {
        return reject(1, "a name of 1 to 64 bytes");
    }
    let user = input.key(&mut user);
    if core::str::from_utf8(user).is_err() {
        return reject(1, "a name in UTF-8");
    }
    if args[12] == 1 && user != input.principal(&mut who) {
        return reject(4, "under your own name only");
    }
    if input.op() == Op::Delete {
        emit_input();
        return Ok(());
    }
    let bytes = input.value_len();
    if bytes > value.len() || bytes < 9 || bytes - 8 > max_text {
        return reject(1, "8 bytes of offset, then a text that is not too long");
    }
    let value = input.value(&mut value);
    if core::str::from_utf8(&value[8..]).is_err() {
        return reject(1, "a text in UTF-8");
    }
    let seen = be_u64(value, 0).unwrap_or(0);
    let last = input.next_offset() - 1;
    if max_lag > 0 && last.saturating_sub(seen) > u64::from(max_lag) {
        return reject(2, "read first what the others wrote");
    }
    let now = input.time_ms();
    let before = state::get_array(user).map(u64::from_be_bytes);
    if before.is_some_and(|before| now.saturating_sub(before) < u64::from(pause_ms)) {
        return reject(3, "too fast");
    }
    state::put(user, &now.to_be_bytes());
    emit_value(user, 8, bytes - 8);
    Ok(())
}

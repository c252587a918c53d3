//! `surface`: calls every function of the interface and emits the results. It exists in each
//! language, and one script tests them all.
#![no_std]
#![forbid(unsafe_code)]

use weir_guest::json::{self, Fault};
use weir_guest::{
    Input, Level, Op, Outcome, blake3, emit_delete, emit_input, emit_put, emit_value, keys, log,
    reject, sha256, state,
};

weir_guest::program!(apply, init = init, upgrade = upgrade);

fn init(input: &Input) -> Outcome {
    let mut args = [0; 64];
    emit_put(b"args", input.args(&mut args));
    Ok(())
}

fn upgrade(input: &Input) -> Outcome {
    let replaced = input.replaced_code().map_or(0, |_| 32);
    emit_put(b"replaced", &[replaced]);
    Ok(())
}

/// The header in big-endian order.
fn header(input: &Input) -> [u8; 88] {
    let op: u32 = match input.op() {
        Op::Init => 0,
        Op::Put => 1,
        Op::Delete => 2,
        Op::Upgrade => 3,
    };
    let flags = u32::from(input.in_transaction()) | u32::from(input.has_principal()) << 1;
    let mut bytes = [0; 88];
    let mut at = 0;
    let mut put = |field: &[u8]| {
        bytes[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    };
    put(&op.to_be_bytes());
    put(&flags.to_be_bytes());
    for number in [
        input.intention_offset(),
        input.next_offset(),
        input.term(),
        input.time_ms(),
        input.nonce(),
    ] {
        put(&number.to_be_bytes());
    }
    put(&input.client());
    for size in [
        input.key_len(),
        input.value_len(),
        input.args_len(),
        input.principal_len(),
    ] {
        put(&u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes());
    }
    put(&input.step().to_be_bytes());
    put(&input.steps().to_be_bytes());
    bytes
}

/// Kind, position and length of the value and of its `a`, one byte each; one byte if it is not
/// JSON.
fn shape(bytes: &mut [u8; 6]) -> &[u8] {
    match json::find::<2>(b"$\n$.a") {
        Ok(found) => {
            for (to, value) in bytes.chunks_exact_mut(3).zip(found) {
                to.copy_from_slice(&[value.kind as u8, value.at as u8, value.len as u8]);
            }
            bytes
        }
        Err(Fault::NotJson(at)) => {
            bytes[0] = at as u8;
            &bytes[..1]
        }
        Err(Fault::Paths) => &[],
    }
}

fn apply(input: &Input) -> Outcome {
    let (mut key, mut value, mut who) = ([0; 64], [0; 64], [0; 64]);
    let key = input.key(&mut key);
    if input.op() == Op::Delete {
        state::delete(key);
        emit_delete(key);
        return Ok(());
    }
    let value = input.value(&mut value);
    if value.is_empty() {
        return reject(9, "nothing to look at");
    }
    log(Level::Info, "looking");
    emit_put(b"header", &header(input));
    emit_put(b"who", input.principal(&mut who));
    let mut bytes = [0; 64];
    let before = state::get(key, &mut bytes).map_or(&b"-"[..], |(bytes, _)| bytes);
    emit_put(b"before", before);
    state::put(key, value);
    let mut bytes = [0; 64];
    let first = state::next(b"", &mut bytes).map_or(&b"-"[..], |(bytes, _)| bytes);
    emit_put(b"first", first);
    let mut bytes = [0; 64];
    let seen = keys::get_from(key, 1, &mut bytes).map_or(&b"-"[..], |(bytes, _)| bytes);
    emit_put(b"seen", seen);
    emit_put(b"at", &keys::offset(key).to_be_bytes());
    emit_put(b"sha", &sha256(value));
    emit_put(b"blake", &blake3(value));
    let mut bytes = [0; 6];
    emit_put(b"json", shape(&mut bytes));
    emit_value(b"tail", 1, value.len() - 1);
    emit_input();
    Ok(())
}

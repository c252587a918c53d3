//! `balance`: accounts that cannot be overdrawn. The balances are the values of the topic's own
//! keys, so all readers of the topic see them.
//!
//! Key: source, 32 bytes; 32 zero bytes are the bank. Value, big-endian: destination (32), amount
//! (i64), and the offsets at which the client saw both balances (u64 each, 0: any). Optional
//! arguments: byte 1 and the name of the only principal who may transfer money from the bank. An
//! empty name means clients without a principal. Without arguments, everyone may.
#![no_std]
#![forbid(unsafe_code)]

use weir_guest::{Input, Op, Outcome, be_i64, be_u64, emit_put, keys, reject};

weir_guest::program!(apply);

const BANK: [u8; 32] = [0; 32];

fn balance(account: &[u8]) -> i64 {
    let mut bytes = [0; 8];
    keys::get(account, &mut bytes).map_or(0, |(bytes, _)| be_i64(bytes, 0).unwrap_or(0))
}

fn may_mint(input: &Input) -> bool {
    let (mut args, mut name) = ([0; 256], [0; 256]);
    let args = input.args(&mut args);
    args.first() != Some(&1) || &args[1..] == input.principal(&mut name)
}

fn apply(input: &Input) -> Outcome {
    let (mut key, mut value) = ([0; 32], [0; 56]);
    if input.op() != Op::Put || input.key_len() != 32 || input.value_len() != 56 {
        return reject(1, "key of 32 bytes, value of 56");
    }
    let source = input.key(&mut key);
    let value = input.value(&mut value);
    let destination = &value[..32];
    let amount = be_i64(value, 32).unwrap_or(0);
    if amount <= 0 {
        return reject(2, "the amount must be positive");
    }
    if source == destination {
        return reject(3, "source and destination are the same");
    }
    for (account, at) in [(source, 40), (destination, 48)] {
        let seen = be_u64(value, at).unwrap_or(0);
        if seen != 0 && keys::offset(account) != seen {
            return reject(4, "an account has changed since");
        }
    }
    if source == BANK {
        if !may_mint(input) {
            return reject(8, "only one principal may use the bank");
        }
    } else {
        let has = balance(source);
        if has < amount {
            return reject(6, "not enough");
        }
        emit_put(source, &(has - amount).to_be_bytes());
    }
    if destination != BANK {
        let Some(gets) = balance(destination).checked_add(amount) else {
            return reject(7, "the destination overflows");
        };
        emit_put(destination, &gets.to_be_bytes());
    }
    emit_put(&BANK, &amount.to_be_bytes());
    Ok(())
}

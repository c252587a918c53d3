//! `lease`: resources with one holder at a time, until a time of the log.
//!
//! Key: the resource. PUT value: action (1 acquire, 2 renew, 3 release), time to live in ms
//! (u32, big-endian), holder. A PUT record has the fencing token (the offset of the acquiring
//! write) and the end in ms (u64 each), and the holder. A release deletes the key of the
//! resource.
#![no_std]
#![forbid(unsafe_code)]

use weir_guest::{Input, Op, Outcome, be_u32, be_u64, emit_delete, emit_put, reject, state};

weir_guest::program!(apply);

fn apply(input: &Input) -> Outcome {
    let (mut key, mut value, mut held) = ([0; 256], [0; 133], [0; 144]);
    let sizes = (1..=256).contains(&input.key_len()) && (6..=133).contains(&input.value_len());
    if input.op() != Op::Put || !sizes {
        return reject(1, "action, time to live, holder of at most 128 bytes");
    }
    let key = input.key(&mut key);
    let value = input.value(&mut value);
    let (ttl_ms, holder) = (u64::from(be_u32(value, 1).unwrap_or(0)), &value[5..]);
    let now = input.time_ms();
    let lease = state::get(key, &mut held).map(|(bytes, _)| bytes);
    let alive = lease.filter(|lease| be_u64(lease, 8).unwrap_or(0) > now);
    let own = alive.is_some_and(|lease| &lease[16..] == holder);
    let token = match value[0] {
        1 if alive.is_some() && !own => return reject(2, "held by another"),
        2 | 3 if !own => return reject(3, "not held"),
        1 if !own => input.intention_offset(),
        1 | 2 => alive.and_then(|lease| be_u64(lease, 0)).unwrap_or(0),
        3 => {
            state::delete(key);
            emit_delete(key);
            return Ok(());
        }
        _ => return reject(1, "actions are 1, 2 and 3"),
    };
    let mut lease = [0; 144];
    lease[..8].copy_from_slice(&token.to_be_bytes());
    lease[8..16].copy_from_slice(&now.saturating_add(ttl_ms).to_be_bytes());
    lease[16..16 + holder.len()].copy_from_slice(holder);
    let lease = &lease[..16 + holder.len()];
    state::put(key, lease);
    emit_put(key, lease);
    Ok(())
}

//! Seats of one show: the first booking wins, until the seat is released.
//!
//! A key is a seat such as `12A`. Its value is the name of the person who booked
//! it. A DELETE releases the seat.
#![no_std]
#![forbid(unsafe_code)]

use weir_guest::{Input, Op, Outcome, emit_input, keys, reject};

weir_guest::program!(apply);

/// A row from 1 to 99 and a letter from A to F.
fn is_seat(seat: &[u8]) -> bool {
    match seat {
        [row @ .., b'A'..=b'F'] => {
            matches!(row, [b'1'..=b'9'] | [b'1'..=b'9', b'0'..=b'9'])
        }
        _ => false,
    }
}

/// Validates one write. The emitted record is stored.
fn apply(input: &Input) -> Outcome {
    let mut key = [0; 4];
    let seat = input.key(&mut key);
    if !is_seat(seat) {
        return reject(1, "a seat is a row from 1 to 99 and a letter from A to F");
    }
    let taken = keys::offset(seat) != 0;
    if input.op() == Op::Delete {
        if !taken {
            return reject(3, "nobody has this seat");
        }
    } else if taken {
        return reject(2, "the seat is taken");
    } else if !(1..=64).contains(&input.value_len()) {
        return reject(4, "a name of 1 to 64 bytes");
    }
    emit_input();
    Ok(())
}

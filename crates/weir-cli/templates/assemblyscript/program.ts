// Seats of one show: the first booking wins, until the seat is released.
//
// A key is a seat such as `12A`. Its value is the name of the person who booked
// it. A DELETE releases the seat.

import { ABI, Bytes, Op, bytes, emitInput, input, keys, reject } from "./weir_guest";

export function weir_abi(): i32 {
  return ABI;
}

const ZERO: u8 = 48;
const A: u8 = 65;

function isDigit(byte: u8): bool {
  return byte >= ZERO && byte <= ZERO + 9;
}

// A row from 1 to 99 and a letter from A to F.
function isSeat(seat: Bytes): bool {
  if (seat.length < 2 || seat.length > 3) return false;
  if (seat[0] == ZERO || !isDigit(seat[0])) return false;
  if (seat.length == 3 && !isDigit(seat[1])) return false;
  const letter = seat[seat.length - 1];
  return letter >= A && letter <= A + 5;
}

// Validates one write. The emitted record is stored.
export function weir_apply(): i32 {
  input.read();
  const seat = input.key(bytes(4));
  if (!isSeat(seat)) {
    return reject(1, "a seat is a row from 1 to 99 and a letter from A to F");
  }
  const taken = keys.offset(seat) != 0;
  if (input.op() == Op.Delete) {
    if (!taken) return reject(3, "nobody has this seat");
  } else if (taken) {
    return reject(2, "the seat is taken");
  } else if (input.valueLength() < 1 || input.valueLength() > 64) {
    return reject(4, "a name of 1 to 64 bytes");
  }
  emitInput();
  return 0;
}

// `broken`: accepts each write, except for values that trigger a fault in it. It exists in each
// language, and shows the trace of a call that fails.
//
// The value `assert` fails an assertion, and `index` reads after the end of the value. A value of
// more than 16 bytes is rejected with a computed text.

import { ABI, Bytes, Level, bytes, emitInput, emitPut, input, log, reject } from "./index";

export function weir_abi(): i32 {
  return ABI;
}

function checkedLength(value: Bytes): u32 {
  assert(!value.equals(bytes(8).text("assert")), "the value is not `assert`");
  return value.length;
}

function byteAfter(value: Bytes, length: u32): u8 {
  return value[length];
}

export function weir_apply(): i32 {
  input.read();
  if (input.valueLength() > 16) {
    const text = bytes(64).addNumber(input.valueLength()).addText(" bytes, at most 16");
    log(Level.Info, text);
    return reject(1, text);
  }
  const value = input.value(bytes(16));
  const length = checkedLength(value);
  if (value.equals(bytes(8).text("index"))) {
    emitPut(bytes(8).text("after"), bytes(1).addByte(byteAfter(value, length)));
  }
  emitInput();
  return 0;
}

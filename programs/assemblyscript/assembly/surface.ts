// `surface`: calls every function of the interface and emits the results. It exists in each
// language, and one script tests them all.

import {
  ABI, Bytes, Level, Op, blake3, bytes, emitDelete, emitInput, emitPut, emitValue, input, json, keys,
  log, reject, sha256, state,
} from "./index";

export function weir_abi(): i32 {
  return ABI;
}

export function weir_init(): i32 {
  input.read();
  emitPut(name("args"), input.args(bytes(64)));
  return 0;
}

export function weir_upgrade(): i32 {
  input.read();
  const length = input.replacedCode(bytes(32)).length;
  emitPut(name("replaced"), bytes(1).addByte(<u8>length));
  return 0;
}

function name(text: string): Bytes {
  return bytes(16).text(text);
}

// The header in big-endian order.
function header(): Bytes {
  const flags = <u32>input.inTransaction() | (<u32>input.hasPrincipal() << 1);
  return bytes(88)
    .add<u32>(input.op()).add<u32>(flags)
    .add<u64>(input.intentionOffset()).add<u64>(input.nextOffset())
    .add<u64>(input.term()).add<u64>(input.timeMs()).add<u64>(input.nonce())
    .addBytes(input.client(bytes(16)))
    .add<u32>(input.keyLength()).add<u32>(input.valueLength())
    .add<u32>(input.argsLength()).add<u32>(input.principalLength())
    .add<u32>(input.step()).add<u32>(input.steps());
}

// Emits a result, or a dash if there is none.
function emitFound(what: string, found: Bytes, length: i32): void {
  emitPut(name(what), length < 0 ? bytes(1).text("-") : found);
}

// Kind, position and length of the value and of its `a`, one byte each; one byte if it is not JSON.
function shape(): Bytes {
  const found = json.room(2);
  const shown = bytes(6);
  const answer = json.find(bytes(8).text("$\n$.a"), found);
  if (answer == -1) return shown.addByte(<u8>json.fault(found));
  if (answer < 0) return shown;
  for (let path: u32 = 0; path < 2; path++) {
    const kind: u32 = json.kind(found, path);
    shown.addByte(<u8>(kind - u32(kind > 2)));
    shown.addByte(<u8>json.at(found, path)).addByte(<u8>json.length(found, path));
  }
  return shown;
}

export function weir_apply(): i32 {
  input.read();
  const key = input.key(bytes(64));
  if (input.op() == Op.Delete) {
    state.remove(key);
    emitDelete(key);
    return 0;
  }
  const value = input.value(bytes(64));
  const found = bytes(64);
  if (value.length == 0) return reject(9, "nothing to look at");
  log(Level.Info, "looking");
  emitPut(name("header"), header());
  emitPut(name("who"), input.principal(bytes(64)));
  emitFound("before", found, state.get(key, found));
  state.put(key, value);
  emitFound("first", found, state.next(bytes(1), found));
  emitFound("seen", found, keys.get(key, found, 1));
  const offset = keys.offset(key);
  emitPut(name("at"), bytes(8).add<u64>(offset));
  emitPut(name("sha"), sha256(value, bytes(32)));
  emitPut(name("blake"), blake3(value, bytes(32)));
  emitPut(name("json"), shape());
  emitValue(name("tail"), 1, value.length - 1);
  emitInput();
  return 0;
}

// `balance`: accounts that cannot be overdrawn. The balances are the values of the topic's own
// keys, so all readers of the topic see them.
//
// Key: source, 32 bytes; 32 zero bytes are the bank. Value, big-endian: destination (32), amount
// (i64), and the offsets at which the client saw both balances (u64 each, 0: any). Optional
// arguments: byte 1 and the name of the only principal who may transfer money from the bank. An
// empty name means clients without a principal. Without arguments, everyone may.

import { ABI, Bytes, Op, bytes, emitPut, input, keys, reject } from "./index";

const ACCOUNT: u32 = 32;
const VALUE: u32 = 56;

export function weir_abi(): i32 {
  return ABI;
}

function balance(account: Bytes): i64 {
  const number = bytes(8);
  return keys.get(account, number) < 8 ? 0 : number.get<i64>(0);
}

function setBalance(account: Bytes, amount: i64): void {
  emitPut(account, bytes(8).add<i64>(amount));
}

function mayMint(): bool {
  const args = input.args(bytes(256));
  if (args.length == 0 || args[0] != 1) return true;
  return args.endsWith(1, input.principal(bytes(256)));
}

function hasChanged(account: Bytes, seen: u64): bool {
  return seen != 0 && keys.offset(account) != seen;
}

export function weir_apply(): i32 {
  input.read();
  if (input.op() != Op.Put || input.keyLength() != ACCOUNT || input.valueLength() != VALUE) {
    return reject(1, "key of 32 bytes, value of 56");
  }
  const source = input.key(bytes(ACCOUNT));
  const value = input.value(bytes(VALUE));
  const destination = bytes(ACCOUNT).copy(value, 0, ACCOUNT);
  const bank = bytes(ACCOUNT).zeros(ACCOUNT);
  const amount = value.get<i64>(32);
  if (amount <= 0) return reject(2, "the amount must be positive");
  if (source.equals(destination)) return reject(3, "source and destination are the same");
  if (hasChanged(source, value.get<u64>(40)) || hasChanged(destination, value.get<u64>(48))) {
    return reject(4, "an account has changed since");
  }
  if (source.equals(bank)) {
    if (!mayMint()) return reject(8, "only one principal may use the bank");
  } else {
    const has = balance(source);
    if (has < amount) return reject(6, "not enough");
    setBalance(source, has - amount);
  }
  if (!destination.equals(bank)) {
    const had = balance(destination);
    if (had > i64.MAX_VALUE - amount) return reject(7, "the destination overflows");
    setBalance(destination, had + amount);
  }
  setBalance(bank, amount);
  return 0;
}

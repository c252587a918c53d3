/**
 * The interface for a program of a topic of Weir: its input, its records, its state.
 *
 * A program exports `weir_abi` and `weir_apply`. `weir_apply` checks one write and
 * returns 0 (VALID) or, by `reject`, a code from 1 to 65,535. A program may also
 * export `weir_init`, `weir_upgrade` and `weir_state`. `weir_state` returns a
 * literal: the version of the layout of the state (default 0). A program with
 * another version can replace this one only if it exports `weir_upgrade`. If a call
 * is rejected or traps, none of its records and changes of the state remain. A
 * failed `assert` or a `throw` is a trap. It first writes its message and position
 * to the log of the operator, which `weir program trace` and `weir program logs`
 * show.
 *
 * There is no garbage collector and no heap of the language. Bytes are in `Bytes`,
 * and `input.read` at the start of each call frees all of them. Data that must
 * remain must be in the state. String literals work; build a computed text in
 * `Bytes`, with `addText` and `addNumber`. Globals must be constants. A global that
 * is computed at the start, and `new`, would need a start function, which a topic
 * rejects.
 */

@external("weir1", "input_info")
declare function host_input_info(ptr: usize): void;
@external("weir1", "input_read")
declare function host_input_read(what: u32, from: usize, ptr: usize, cap: usize): usize;
@external("weir1", "emit_put")
declare function host_emit_put(key: usize, keyLen: usize, value: usize, valueLen: usize): void;
@external("weir1", "emit_delete")
declare function host_emit_delete(key: usize, keyLen: usize): void;
@external("weir1", "emit_input")
declare function host_emit_input(): void;
@external("weir1", "emit_value")
declare function host_emit_value(key: usize, keyLen: usize, from: usize, len: usize): void;
@external("weir1", "reject_text")
declare function host_reject_text(ptr: usize, len: usize): void;
@external("weir1", "state_get")
declare function host_state_get(key: usize, keyLen: usize, from: usize, ptr: usize, cap: usize): i32;
@external("weir1", "state_put")
declare function host_state_put(key: usize, keyLen: usize, value: usize, valueLen: usize): void;
@external("weir1", "state_delete")
declare function host_state_delete(key: usize, keyLen: usize): void;
@external("weir1", "state_next")
declare function host_state_next(key: usize, keyLen: usize, ptr: usize, cap: usize): i32;
@external("weir1", "key_get")
declare function host_key_get(key: usize, keyLen: usize, from: usize, ptr: usize, cap: usize): i32;
@external("weir1", "key_offset")
declare function host_key_offset(key: usize, keyLen: usize): i64;
@external("weir1", "hash")
declare function host_hash(algorithm: u32, ptr: usize, len: usize, out: usize): void;
@external("weir1", "json_find")
declare function host_json_find(what: u32, flags: u32, paths: usize, len: usize, out: usize): i32;
@external("weir1", "log")
declare function host_log(level: u32, ptr: usize, len: usize): void;

/** Version of the interface: what `weir_abi` returns. */
export const ABI: i32 = 1;

/** The operation of the call. */
export enum Op {
  /** The topic is created. */
  Init = 0,
  /** Sets the value of a key. */
  Put = 1,
  /** Deletes a key. */
  Delete = 2,
  /** The program replaces another one. */
  Upgrade = 3,
}

/**
 * A piece of memory with a fixed capacity, of which the first `length` bytes are used. Create it
 * with `bytes`.
 */
@final
@unmanaged
export class Bytes {
  /** Number of used bytes. */
  length: u32;
  /** Number of bytes that fit. */
  capacity: u32;

  /** Address of the first byte. */
  @inline
  get ptr(): usize {
    return changetype<usize>(this) + offsetof<Bytes>();
  }

  /** The byte at an index; traps at an index after the end. */
  @operator("[]")
  at(index: u32): u8 {
    if (index >= this.length) trap();
    return load<u8>(this.ptr + index);
  }

  /** Whether `other` has the same bytes. */
  equals(other: Bytes): bool {
    return this.length == other.length && memory.compare(this.ptr, other.ptr, this.length) == 0;
  }

  /** Whether the bytes from index `from` on are those of `other`. */
  endsWith(from: u32, other: Bytes): bool {
    if (from > this.length || this.length - from != other.length) return false;
    return memory.compare(this.ptr + from, other.ptr, other.length) == 0;
  }

  /** Replaces the contents by bytes of `other` from an index on, as many as fit. */
  copy(other: Bytes, from: u32, length: u32): Bytes {
    if (from > other.length || other.length - from < length) trap();
    this.length = min(length, this.capacity);
    memory.copy(this.ptr, other.ptr + from, this.length);
    return this;
  }

  /** Replaces the contents by a text in UTF-8; traps if it does not fit. */
  text(text: string): Bytes {
    const length = String.UTF8.byteLength(text);
    if (<u32>length > this.capacity) trap();
    String.UTF8.encodeUnsafe(changetype<usize>(text), text.length, this.ptr);
    this.length = length;
    return this;
  }

  /** Appends a text in UTF-8; traps if it does not fit. */
  addText(text: string): Bytes {
    const length = <u32>String.UTF8.byteLength(text);
    if (this.capacity - this.length < length) trap();
    String.UTF8.encodeUnsafe(changetype<usize>(text), text.length, this.ptr + this.length);
    this.length += length;
    return this;
  }

  /** Appends an integer in decimal digits; traps if it does not fit. */
  addNumber(number: i64): Bytes {
    let rest: u64 = number < 0 ? 0 - <u64>number : <u64>number;
    if (number < 0) this.addByte(0x2d);
    let digits: u32 = 1;
    for (let left = rest / 10; left > 0; left /= 10) digits++;
    if (this.capacity - this.length < digits) trap();
    for (let at = digits; at > 0; at--) {
      store<u8>(this.ptr + this.length + at - 1, <u8>(0x30 + rest % 10));
      rest /= 10;
    }
    this.length += digits;
    return this;
  }

  /** Replaces the contents by `count` zero bytes, as many as fit. */
  zeros(count: u32): Bytes {
    this.length = min(count, this.capacity);
    memory.fill(this.ptr, 0, this.length);
    return this;
  }

  /** Removes all bytes. */
  clear(): Bytes {
    this.length = 0;
    return this;
  }

  /** The big-endian number at an index; traps after the end. */
  get<T extends number>(at: u32): T {
    if (at > this.length || this.length - at < sizeof<T>()) trap();
    return bswap<T>(load<T>(this.ptr + at));
  }

  /** Appends a big-endian number; traps if it does not fit. */
  add<T extends number>(number: T): Bytes {
    if (this.capacity - this.length < sizeof<T>()) trap();
    store<T>(this.ptr + this.length, bswap<T>(number));
    this.length += sizeof<T>();
    return this;
  }

  /** Appends one byte. */
  addByte(byte: u8): Bytes {
    if (this.length == this.capacity) trap();
    store<u8>(this.ptr + this.length, byte);
    this.length += 1;
    return this;
  }

  /** Appends all bytes of `other`. */
  addBytes(other: Bytes): Bytes {
    if (this.capacity - this.length < other.length) trap();
    memory.copy(this.ptr + this.length, other.ptr, other.length);
    this.length += other.length;
    return this;
  }
}

// First free byte; the compiler places nothing after __heap_base.
let free: usize = 0;

/**
 * Returns an empty piece of memory with this capacity. It is valid until the next `input.read`.
 * Traps if the memory is full.
 */
export function bytes(capacity: u32): Bytes {
  const size = (offsetof<Bytes>() + <u64>capacity + 7) & ~7;
  if (free == 0 || free + size > <u64>memory.size() << 16) trap();
  const piece = changetype<Bytes>(free);
  free += <usize>size;
  piece.length = 0;
  piece.capacity = capacity;
  return piece;
}

const HEADER: usize = memory.data(128, 8);

/** The write of this call, and facts about it. */
export namespace input {
  /** Frees the bytes of the call before and reads the header; must be first in each call. */
  export function read(): void {
    free = (__heap_base + 7) & ~7;
    host_input_info(HEADER);
  }
  /** The operation of the call. */
  export function op(): Op {
    return load<u32>(HEADER);
  }
  /** Whether the write is a step of a transaction. */
  export function inTransaction(): bool {
    return (load<u32>(HEADER, 4) & 1) != 0;
  }
  /** Whether the store knows the principal of the write; `principal` returns it. */
  export function hasPrincipal(): bool {
    return (load<u32>(HEADER, 4) & 2) != 0;
  }
  /** Position of the write in the order of the whole store. */
  export function intentionOffset(): u64 {
    return load<u64>(HEADER, 8);
  }
  /** Offset of the next emitted record. */
  export function nextOffset(): u64 {
    return load<u64>(HEADER, 16);
  }
  /** Term of the leader that ordered the write; 1 without a cluster. */
  export function term(): u64 {
    return load<u64>(HEADER, 24);
  }
  /** Milliseconds since 1970; equal on every node. */
  export function timeMs(): u64 {
    return load<u64>(HEADER, 32);
  }
  /** The client's nonce of the write; 0 without a session. */
  export function nonce(): u64 {
    return load<u64>(HEADER, 40);
  }
  /** The client id of the write: 16 bytes. */
  export function client(into: Bytes): Bytes {
    into.length = min<u32>(16, into.capacity);
    memory.copy(into.ptr, HEADER + 48, into.length);
    return into;
  }
  /** Length of the key in bytes. */
  export function keyLength(): u32 {
    return load<u32>(HEADER, 64);
  }
  /** Length of the value in bytes. */
  export function valueLength(): u32 {
    return load<u32>(HEADER, 68);
  }
  /** Length of the arguments in bytes. */
  export function argsLength(): u32 {
    return load<u32>(HEADER, 72);
  }
  /** Length of the name of the authenticated principal in bytes; 0 without one. */
  export function principalLength(): u32 {
    return load<u32>(HEADER, 76);
  }
  /** Index of the write in its transaction, from 0. */
  export function step(): u32 {
    return load<u32>(HEADER, 80);
  }
  /** Number of steps of the transaction; 1 outside of a transaction. */
  export function steps(): u32 {
    return load<u32>(HEADER, 84);
  }
  /** The key from byte `from` on, as much as fits. */
  export function key(into: Bytes, from: usize = 0): Bytes {
    return part(0, from, into);
  }
  /** The value from byte `from` on, as much as fits. */
  export function value(into: Bytes, from: usize = 0): Bytes {
    return part(1, from, into);
  }
  /** The arguments from byte `from` on, as much as fits. */
  export function args(into: Bytes, from: usize = 0): Bytes {
    return part(2, from, into);
  }
  /** The name of the authenticated principal, as much as fits. */
  export function principal(into: Bytes): Bytes {
    return part(3, 0, into);
  }
  /** SHA-256 of the code that this program replaces; empty except in an upgrade. */
  export function replacedCode(into: Bytes): Bytes {
    return part(4, 0, into);
  }
}

function part(what: u32, from: usize, into: Bytes): Bytes {
  into.length = <u32>host_input_read(what, from, into.ptr, into.capacity);
  return into;
}

/** Emits a PUT record. */
export function emitPut(key: Bytes, value: Bytes): void {
  host_emit_put(key.ptr, key.length, value.ptr, value.length);
}

/** Emits a DELETE record. */
export function emitDelete(key: Bytes): void {
  host_emit_delete(key.ptr, key.length);
}

/** Emits the write itself as a record, without a copy of its bytes. */
export function emitInput(): void {
  host_emit_input();
}

/** Emits a PUT record with a part of the written value, without a copy of its bytes. */
export function emitValue(key: Bytes, from: u32, length: u32): void {
  host_emit_value(key.ptr, key.length, from, length);
}

/**
 * Rejects the call, with a text for the caller: a string, or `Bytes` in UTF-8. At most 256 bytes of
 * it are kept. Code 0 is a trap, because it means VALID.
 */
export function reject<T>(code: u16, text: T): i32 {
  if (code == 0) trap();
  const words = spoken<T>(text);
  host_reject_text(words.ptr, min<u32>(words.length, TEXT_MAX));
  return code;
}

/** Maximum size of a text for the caller, in bytes. */
const TEXT_MAX: u32 = 256;

// Converts a text into bytes.
function spoken<T>(text: T): Bytes {
  if (isString<T>()) {
    const words = changetype<string>(text);
    return bytes(String.UTF8.byteLength(words)).text(words);
  }
  return changetype<Bytes>(text);
}

// Sets the length to the copied part of a value; returns the whole length, or -1.
function found(into: Bytes, from: u32, length: i32): i32 {
  into.length = length > <i32>from ? min<u32>(<u32>length - from, into.capacity) : 0;
  return length;
}

/** State of mode `kv`: a map of bytes, ordered by key. */
export namespace state {
  /** Copies the value of a key from byte `from` on, as much as fits; returns its whole length, or -1. */
  export function get(key: Bytes, into: Bytes, from: u32 = 0): i32 {
    return found(into, from, host_state_get(key.ptr, key.length, from, into.ptr, into.capacity));
  }
  /** Sets the value of a key. */
  export function put(key: Bytes, value: Bytes): void {
    host_state_put(key.ptr, key.length, value.ptr, value.length);
  }
  /** Removes a key. */
  export function remove(key: Bytes): void {
    host_state_delete(key.ptr, key.length);
  }
  /** Copies the smallest key after `key` (empty: the first); returns its whole length, or -1. */
  export function next(key: Bytes, into: Bytes): i32 {
    return found(into, 0, host_state_next(key.ptr, key.length, into.ptr, into.capacity));
  }
}

/** The topic's own keys as its readers see them, including the records of this call. */
export namespace keys {
  /** Copies the value of a key from byte `from` on, as much as fits; returns its whole length, or -1. */
  export function get(key: Bytes, into: Bytes, from: u32 = 0): i32 {
    return found(into, from, host_key_get(key.ptr, key.length, from, into.ptr, into.capacity));
  }
  /** Offset of the record with the value of the key; 0 if it has none. */
  export function offset(key: Bytes): u64 {
    return <u64>host_key_offset(key.ptr, key.length);
  }
}

/** The type of a JSON value. */
export enum Kind {
  /** There is no value. */
  None = 0,
  Null = 1,
  False = 2,
  True = 3,
  Number = 4,
  String = 5,
  Array = 6,
  Object = 7,
}

/** Finds values in JSON; the store parses it. */
export namespace json {
  /** Creates `Bytes` with room for the results of this number of paths. */
  export function room(paths: u32): Bytes {
    return bytes(12 * paths);
  }
  /**
   * Finds values in the written value by their paths (names and indexes of JSONPath, RFC 9535), one
   * on each line. Checks the whole value. Returns the number of found values. Returns -1 if the
   * value is not JSON; `fault` is then the first wrong byte. Returns -2 if a path is invalid, or if
   * there are more paths than fit or than 64.
   */
  export function find(paths: Bytes, into: Bytes): i32 {
    let count: u32 = 1;
    for (let i: u32 = 0; i < paths.length; i++) count += u32(paths.at(i) == 0x0a);
    into.length = 0;
    if (into.capacity < 12 * count) return -2;
    const answer = host_json_find(1, 1, paths.ptr, paths.length, into.ptr);
    into.length = answer >= 0 ? 12 * count : answer == -1 ? 4 : 0;
    return answer;
  }
  /** Index of the first wrong byte of a value that is not JSON. */
  export function fault(found: Bytes): u32 {
    return word(found, 0);
  }
  /** Type of the value at a path; paths are counted from 0. */
  export function kind(found: Bytes, path: u32): Kind {
    return word(found, 12 * path);
  }
  /** Index of the first byte of its literal in the written value. */
  export function at(found: Bytes, path: u32): u32 {
    return word(found, 12 * path + 4);
  }
  /** Length of its literal in bytes. */
  export function length(found: Bytes, path: u32): u32 {
    return word(found, 12 * path + 8);
  }
}

// The little-endian number at an index; traps after the end.
function word(found: Bytes, at: u32): u32 {
  if (at > found.length || found.length - at < 4) trap();
  return load<u32>(found.ptr + at);
}

function digest(algorithm: u32, bytes: Bytes, into: Bytes): Bytes {
  if (into.capacity < 32) trap();
  host_hash(algorithm, bytes.ptr, bytes.length, into.ptr);
  into.length = 32;
  return into;
}

/** SHA-256, into a capacity of at least 32 bytes. */
export function sha256(bytes: Bytes, into: Bytes): Bytes {
  return digest(1, bytes, into);
}

/** BLAKE3, into a capacity of at least 32 bytes. */
export function blake3(bytes: Bytes, into: Bytes): Bytes {
  return digest(2, bytes, into);
}

/** The severity of a line of `log`. */
export enum Level {
  Error = 1,
  Warn = 2,
  Info = 3,
  Debug = 4,
  Trace = 5,
}

/**
 * Writes a line to the log of the operator, a string or `Bytes`. The line is not part of the
 * outcome.
 */
export function log<T>(level: Level, text: T): void {
  const words = spoken<T>(text);
  host_log(level, words.ptr, words.length);
}

/** Called by a failed `assert` or a `throw`: `asconfig.json` names it. */
export function aborted(message: string | null, file: string | null, line: u32, column: u32): void {
  // The memory of the program is no longer needed, because the call ends.
  free = (__heap_base + 7) & ~7;
  const words = bytes(ABORT_MAX);
  words.addText("aborted");
  if (file) add(words.addText(" at "), file).addText(":").addNumber(line).addText(":").addNumber(column);
  if (message) add(words.addText(": "), message);
  host_log(Level.Error, words.ptr, words.length);
  trap();
}

/** Maximum size of the message of an abort, in bytes. */
const ABORT_MAX: u32 = 1024;

// Appends the beginning of a text: 300 units of UTF-16 always fit.
function add(words: Bytes, text: string): Bytes {
  const length = min(text.length, 300);
  const bytes = String.UTF8.encodeUnsafe(changetype<usize>(text), length, words.ptr + words.length);
  words.length += <u32>bytes;
  return words;
}

/** Ends the call as a trap: for states that cannot occur. */
export function trap(): void {
  unreachable();
}

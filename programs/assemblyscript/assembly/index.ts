/**
 * What a program of a topic of Weir needs: its input, its records, its state.
 *
 * A program exports `weir_abi` and `weir_apply`, which looks at one write and
 * returns 0 (VALID) or, by `reject`, a code from 1 to 65,535; `weir_init` and
 * `weir_upgrade` may be there too, and `weir_state`, which returns a literal: the
 * version of the layout of the state (0 without it). A program of another version
 * takes the place of this one only if it has `weir_upgrade`. Everything is kept or taken back as a
 * whole: records and state of a call that is rejected, or that traps, never
 * were. An `assert` or `throw` that fails writes its message and place to the
 * log of the operator, which `weir program trace` and `weir program logs`
 * show, and is a trap.
 *
 * There is no collector and no heap of the language: bytes live in `Bytes`, all
 * of which are forgotten when the next call begins with `input.read`; what
 * shall last belongs into the state. Strings are there as literals; a text that
 * is computed is made in `Bytes`, by `addText` and `addNumber`. Globals
 * must be constants: one that has to be computed first, and `new`, would need
 * a start function, which a topic refuses.
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

/** What is asked of the program. */
export enum Op {
  /** The topic is created. */
  Init = 0,
  /** A key shall have a value. */
  Put = 1,
  /** A key shall have none. */
  Delete = 2,
  /** The program takes the place of another one. */
  Upgrade = 3,
}

/**
 * A piece of memory of a fixed capacity, of which the first `length` bytes
 * count; made by `bytes`.
 */
@final
@unmanaged
export class Bytes {
  /** Bytes that count. */
  length: u32;
  /** Bytes that have room. */
  capacity: u32;

  /** Where they begin. */
  @inline
  get ptr(): usize {
    return changetype<usize>(this) + offsetof<Bytes>();
  }

  /** The byte at a place; a place after the end is a trap. */
  @operator("[]")
  at(index: u32): u8 {
    if (index >= this.length) trap();
    return load<u8>(this.ptr + index);
  }

  /** Whether the other has the same bytes. */
  equals(other: Bytes): bool {
    return this.length == other.length && memory.compare(this.ptr, other.ptr, this.length) == 0;
  }

  /** Whether the bytes from one place on are those of the other. */
  endsWith(from: u32, other: Bytes): bool {
    if (from > this.length || this.length - from != other.length) return false;
    return memory.compare(this.ptr + from, other.ptr, other.length) == 0;
  }

  /** Takes over bytes of another one from a place on, as far as they fit. */
  copy(other: Bytes, from: u32, length: u32): Bytes {
    if (from > other.length || other.length - from < length) trap();
    this.length = min(length, this.capacity);
    memory.copy(this.ptr, other.ptr + from, this.length);
    return this;
  }

  /** Takes over a text as UTF-8; one that does not fit is a trap. */
  text(text: string): Bytes {
    const length = String.UTF8.byteLength(text);
    if (<u32>length > this.capacity) trap();
    String.UTF8.encodeUnsafe(changetype<usize>(text), text.length, this.ptr);
    this.length = length;
    return this;
  }

  /** Adds a text as UTF-8; one that does not fit is a trap. */
  addText(text: string): Bytes {
    const length = <u32>String.UTF8.byteLength(text);
    if (this.capacity - this.length < length) trap();
    String.UTF8.encodeUnsafe(changetype<usize>(text), text.length, this.ptr + this.length);
    this.length += length;
    return this;
  }

  /** Adds a whole number in decimal digits; one that does not fit is a trap. */
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

  /** So many zero bytes, as far as they fit. */
  zeros(count: u32): Bytes {
    this.length = min(count, this.capacity);
    memory.fill(this.ptr, 0, this.length);
    return this;
  }

  /** No bytes any more. */
  clear(): Bytes {
    this.length = 0;
    return this;
  }

  /** The big-endian number at a place; one after the end is a trap. */
  get<T extends number>(at: u32): T {
    if (at > this.length || this.length - at < sizeof<T>()) trap();
    return bswap<T>(load<T>(this.ptr + at));
  }

  /** Adds a big-endian number; without room it is a trap. */
  add<T extends number>(number: T): Bytes {
    if (this.capacity - this.length < sizeof<T>()) trap();
    store<T>(this.ptr + this.length, bswap<T>(number));
    this.length += sizeof<T>();
    return this;
  }

  /** Adds one byte. */
  addByte(byte: u8): Bytes {
    if (this.length == this.capacity) trap();
    store<u8>(this.ptr + this.length, byte);
    this.length += 1;
    return this;
  }

  /** Adds all bytes of another one. */
  addBytes(other: Bytes): Bytes {
    if (this.capacity - this.length < other.length) trap();
    memory.copy(this.ptr + this.length, other.ptr, other.length);
    this.length += other.length;
    return this;
  }
}

// First byte that is free; the compiler puts nothing behind __heap_base.
let free: usize = 0;

/**
 * An empty piece of memory with room for so many bytes. It lives until the
 * next `input.read`; without room in the memory it is a trap.
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

/** The write to be judged, and what is known about it. */
export namespace input {
  /** Forgets the call before and asks the store; stands before everything else of a call. */
  export function read(): void {
    free = (__heap_base + 7) & ~7;
    host_input_info(HEADER);
  }
  /** What is asked. */
  export function op(): Op {
    return load<u32>(HEADER);
  }
  /** Whether the write is a step of a transaction. */
  export function inTransaction(): bool {
    return (load<u32>(HEADER, 4) & 1) != 0;
  }
  /** Whether the store knows who writes; then `principal` says it. */
  export function hasPrincipal(): bool {
    return (load<u32>(HEADER, 4) & 2) != 0;
  }
  /** Position of the write in the order of the whole store. */
  export function intentionOffset(): u64 {
    return load<u64>(HEADER, 8);
  }
  /** Offset that the next emitted record gets. */
  export function nextOffset(): u64 {
    return load<u64>(HEADER, 16);
  }
  /** Term of the leader that ordered the write. */
  export function term(): u64 {
    return load<u64>(HEADER, 24);
  }
  /** Milliseconds since 1970, equal on every node. */
  export function timeMs(): u64 {
    return load<u64>(HEADER, 32);
  }
  /** The client's number of the write; 0 without session. */
  export function nonce(): u64 {
    return load<u64>(HEADER, 40);
  }
  /** Who writes, as it calls itself: 16 bytes. */
  export function client(into: Bytes): Bytes {
    into.length = min<u32>(16, into.capacity);
    memory.copy(into.ptr, HEADER + 48, into.length);
    return into;
  }
  /** Bytes of the key. */
  export function keyLength(): u32 {
    return load<u32>(HEADER, 64);
  }
  /** Bytes of the value. */
  export function valueLength(): u32 {
    return load<u32>(HEADER, 68);
  }
  /** Bytes of the arguments. */
  export function argsLength(): u32 {
    return load<u32>(HEADER, 72);
  }
  /** Bytes of the name of the authenticated principal; 0 without one. */
  export function principalLength(): u32 {
    return load<u32>(HEADER, 76);
  }
  /** Which step of its transaction the write is, from 0. */
  export function step(): u32 {
    return load<u32>(HEADER, 80);
  }
  /** Number of steps of the transaction; 1 outside of one. */
  export function steps(): u32 {
    return load<u32>(HEADER, 84);
  }
  /** The key from a byte on, as far as it fits. */
  export function key(into: Bytes, from: usize = 0): Bytes {
    return part(0, from, into);
  }
  /** The value from a byte on, as far as it fits. */
  export function value(into: Bytes, from: usize = 0): Bytes {
    return part(1, from, into);
  }
  /** The arguments from a byte on, as far as they fit. */
  export function args(into: Bytes, from: usize = 0): Bytes {
    return part(2, from, into);
  }
  /** The name of the authenticated principal, as far as it fits. */
  export function principal(into: Bytes): Bytes {
    return part(3, 0, into);
  }
  /** SHA-256 of the code that this program takes the place of; no bytes when it is not asked to. */
  export function replacedCode(into: Bytes): Bytes {
    return part(4, 0, into);
  }
}

function part(what: u32, from: usize, into: Bytes): Bytes {
  into.length = <u32>host_input_read(what, from, into.ptr, into.capacity);
  return into;
}

/** A PUT record. */
export function emitPut(key: Bytes, value: Bytes): void {
  host_emit_put(key.ptr, key.length, value.ptr, value.length);
}

/** A DELETE record. */
export function emitDelete(key: Bytes): void {
  host_emit_delete(key.ptr, key.length);
}

/** The write itself as a record; its bytes are not copied. */
export function emitInput(): void {
  host_emit_input();
}

/** A PUT record with a part of the written value, which is not copied. */
export function emitValue(key: Bytes, from: u32, length: u32): void {
  host_emit_value(key.ptr, key.length, from, length);
}

/**
 * Rejects the call, with a text for the caller: a string, or `Bytes` in UTF-8, of which
 * 256 bytes are kept. Code 0 is a trap, because it would say yes.
 */
export function reject<T>(code: u16, text: T): i32 {
  if (code == 0) trap();
  const words = spoken<T>(text);
  host_reject_text(words.ptr, min<u32>(words.length, TEXT_MAX));
  return code;
}

/** Bytes of a text for the caller. */
const TEXT_MAX: u32 = 256;

// A text as bytes.
function spoken<T>(text: T): Bytes {
  if (isString<T>()) {
    const words = changetype<string>(text);
    return bytes(String.UTF8.byteLength(words)).text(words);
  }
  return changetype<Bytes>(text);
}

// Fills in what was handed over of a value; the length of the whole, or -1.
function found(into: Bytes, from: u32, length: i32): i32 {
  into.length = length > <i32>from ? min<u32>(<u32>length - from, into.capacity) : 0;
  return length;
}

/** State of mode `kv`: a map of bytes, ordered by key. */
export namespace state {
  /** The value of a key from a byte on, as far as it fits; returns its whole length, or -1. */
  export function get(key: Bytes, into: Bytes, from: u32 = 0): i32 {
    return found(into, from, host_state_get(key.ptr, key.length, from, into.ptr, into.capacity));
  }
  /** Sets a key. */
  export function put(key: Bytes, value: Bytes): void {
    host_state_put(key.ptr, key.length, value.ptr, value.length);
  }
  /** Removes a key. */
  export function remove(key: Bytes): void {
    host_state_delete(key.ptr, key.length);
  }
  /** The smallest key after the given one (none: the first); returns its whole length, or -1. */
  export function next(key: Bytes, into: Bytes): i32 {
    return found(into, 0, host_state_next(key.ptr, key.length, into.ptr, into.capacity));
  }
}

/** The topic's own keys, as its readers see them, this call's records included. */
export namespace keys {
  /** The value of a key from a byte on, as far as it fits; returns its whole length, or -1. */
  export function get(key: Bytes, into: Bytes, from: u32 = 0): i32 {
    return found(into, from, host_key_get(key.ptr, key.length, from, into.ptr, into.capacity));
  }
  /** Offset of the record with the key's value; 0 without one. */
  export function offset(key: Bytes): u64 {
    return <u64>host_key_offset(key.ptr, key.length);
  }
}

/** What a JSON value is. */
export enum Kind {
  /** There is none. */
  None = 0,
  Null = 1,
  False = 2,
  True = 3,
  Number = 4,
  String = 5,
  Array = 6,
  Object = 7,
}

/** Looking into JSON without reading it: the store does it. */
export namespace json {
  /** Room for what is found by so many paths. */
  export function room(paths: u32): Bytes {
    return bytes(12 * paths);
  }
  /**
   * Finds values in the written value by their paths (names and indexes of JSONPath, RFC 9535),
   * which stand on lines. The whole value is checked. Returns how many were found; -1 for a value that
   * is not JSON, then `fault` says from which byte on; -2 for paths that are not understood, that have
   * no room, or are more than 64.
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
  /** First byte at fault in a value that is not JSON. */
  export function fault(found: Bytes): u32 {
    return word(found, 0);
  }
  /** What the value of a path is, counted from 0. */
  export function kind(found: Bytes, path: u32): Kind {
    return word(found, 12 * path);
  }
  /** First byte of its literal in the written value. */
  export function at(found: Bytes, path: u32): u32 {
    return word(found, 12 * path + 4);
  }
  /** Bytes of its literal. */
  export function length(found: Bytes, path: u32): u32 {
    return word(found, 12 * path + 8);
  }
}

// The little-endian number at a place; one after the end is a trap.
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

/** SHA-256, into at least 32 bytes of room. */
export function sha256(bytes: Bytes, into: Bytes): Bytes {
  return digest(1, bytes, into);
}

/** BLAKE3, into at least 32 bytes of room. */
export function blake3(bytes: Bytes, into: Bytes): Bytes {
  return digest(2, bytes, into);
}

/** How much a line of `log` matters. */
export enum Level {
  Error = 1,
  Warn = 2,
  Info = 3,
  Debug = 4,
  Trace = 5,
}

/**
 * Writes a line to the log of the operator, a string or `Bytes`; it is no part of the
 * outcome.
 */
export function log<T>(level: Level, text: T): void {
  const words = spoken<T>(text);
  host_log(level, words.ptr, words.length);
}

/** What an `assert` or `throw` does that fails: `asconfig.json` names it. */
export function aborted(message: string | null, file: string | null, line: u32, column: u32): void {
  // What the program took of the memory is given up with the call.
  free = (__heap_base + 7) & ~7;
  const words = bytes(ABORT_MAX);
  words.addText("aborted");
  if (file) add(words.addText(" at "), file).addText(":").addNumber(line).addText(":").addNumber(column);
  if (message) add(words.addText(": "), message);
  host_log(Level.Error, words.ptr, words.length);
  trap();
}

/** Bytes of what is said of an abort. */
const ABORT_MAX: u32 = 1024;

// Adds the beginning of a text: 300 units of UTF-16 always have room.
function add(words: Bytes, text: string): Bytes {
  const length = min(text.length, 300);
  const bytes = String.UTF8.encodeUnsafe(changetype<usize>(text), length, words.ptr + words.length);
  words.length += <u32>bytes;
  return words;
}

/** Ends the call as a trap: for what can never be. */
export function trap(): void {
  unreachable();
}

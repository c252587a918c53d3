//! The interface for a program of a topic of Weir: its input, its records, its
//! state.
//!
//! A program exports `weir_apply`, which checks one write and returns 0 (VALID) or,
//! by `reject`, a code from 1 to 65,535. It may also export `weir_init` and
//! `weir_upgrade`. `comptime { weir.program(); }` exports the version of the
//! interface (`weir1`).
//!
//! If a call is rejected or traps, none of its records and changes of the state remain. Set
//! `pub const panic = weir.panic;` in the program. Then each failed safety check (an overflow, an
//! index) and each `@panic` is a trap, and its message becomes a line of `log`. `weir program trace`
//! and `weir program logs` show these lines.
//!
//! Nothing here allocates: a caller that reads bytes passes a buffer for them and
//! gets the filled part of it.
//!
//! A slice outside of the memory is a trap, even if it is empty. Pass `""` as an empty slice: the
//! address of `&.{}` is undefined.

const std = @import("std");

const host = struct {
    extern "weir1" fn input_info(info: *Input) void;
    extern "weir1" fn input_read(what: u32, from: usize, into: [*]u8, cap: usize) usize;
    extern "weir1" fn emit_put(key: [*]const u8, key_len: usize, value: [*]const u8, value_len: usize) void;
    extern "weir1" fn emit_delete(key: [*]const u8, key_len: usize) void;
    extern "weir1" fn emit_input() void;
    extern "weir1" fn emit_value(key: [*]const u8, key_len: usize, from: usize, len: usize) void;
    extern "weir1" fn reject_text(text: [*]const u8, len: usize) void;
    extern "weir1" fn state_get(key: [*]const u8, key_len: usize, from: usize, into: [*]u8, cap: usize) i32;
    extern "weir1" fn state_put(key: [*]const u8, key_len: usize, value: [*]const u8, value_len: usize) void;
    extern "weir1" fn state_delete(key: [*]const u8, key_len: usize) void;
    extern "weir1" fn state_next(key: [*]const u8, key_len: usize, into: [*]u8, cap: usize) i32;
    extern "weir1" fn key_get(key: [*]const u8, key_len: usize, from: usize, into: [*]u8, cap: usize) i32;
    extern "weir1" fn key_offset(key: [*]const u8, key_len: usize) i64;
    extern "weir1" fn hash(algorithm: u32, bytes: [*]const u8, len: usize, out: *[32]u8) void;
    extern "weir1" fn json_find(what: u32, flags: u32, paths: [*]const u8, len: usize, out: [*]json.Value) i32;
    extern "weir1" fn log(level: u32, text: [*]const u8, len: usize) void;
};

/// Exports `weir_abi`, the version of the interface of the program.
pub fn program() void {
    @export(&abi, .{ .name = "weir_abi" });
}

fn abi() callconv(.c) i32 {
    return 1;
}

/// Exports `weir_state`, the version of the layout of the state (default 0):
/// `comptime { weir.stateVersion(2); }`. A program with another version can replace this one only
/// if it exports `weir_upgrade`.
pub fn stateVersion(comptime version: i32) void {
    const teller = struct {
        fn tell() callconv(.c) i32 {
            return version;
        }
    };
    @export(&teller.tell, .{ .name = "weir_state" });
}

/// Writes the message of every panic to the log of the operator, then traps. With
/// `std.debug.no_panic` instead, there is no message and the module is 3 KiB smaller.
pub const panic = std.debug.FullPanic(say);

fn say(message: []const u8, _: ?usize) noreturn {
    @branchHint(.cold);
    log(.err, message);
    trap();
}

/// The operation of the call.
pub const Op = enum(u32) {
    /// The topic is created.
    init = 0,
    /// Sets the value of a key.
    put = 1,
    /// Deletes a key.
    delete = 2,
    /// The program replaces another one.
    upgrade = 3,
    _,
};

/// The write of this call, and facts about it.
pub const Input = extern struct {
    op: Op,
    /// 1: the write is a step of a transaction; 2: the store knows the principal.
    flags: u32,
    /// Position of the write in the order of the whole store.
    intention_offset: u64,
    /// Offset of the next emitted record.
    next_offset: u64,
    /// Term of the leader that ordered the write; 1 without a cluster.
    term: u64,
    /// Milliseconds since 1970; equal on every node.
    time_ms: u64,
    /// The client's nonce of the write; 0 without a session.
    nonce: u64,
    /// The client id of the write.
    client_id: [16]u8,
    key_len: u32,
    value_len: u32,
    args_len: u32,
    principal_len: u32,
    /// Index of the write in its transaction, from 0.
    step: u32,
    /// Number of steps of the transaction; 1 outside of a transaction.
    steps: u32,
    reserved: [40]u8,

    /// Reads the header from the store.
    pub fn read() Input {
        var input: Input = undefined;
        host.input_info(&input);
        return input;
    }

    /// Whether the write is a step of a transaction.
    pub fn inTransaction(input: *const Input) bool {
        return input.flags & 1 != 0;
    }

    /// Whether the store knows the principal of the write; `principal` returns it.
    pub fn hasPrincipal(input: *const Input) bool {
        return input.flags & 2 != 0;
    }
};

comptime {
    std.debug.assert(@sizeOf(Input) == 128);
    std.debug.assert(@offsetOf(Input, "intention_offset") == 8);
    std.debug.assert(@offsetOf(Input, "nonce") == 40);
    std.debug.assert(@offsetOf(Input, "client_id") == 48);
    std.debug.assert(@offsetOf(Input, "key_len") == 64);
    std.debug.assert(@offsetOf(Input, "steps") == 84);
    std.debug.assert(@offsetOf(Input, "reserved") == 88);
}

fn input_bytes(what: u32, from: usize, into: []u8) []u8 {
    return into[0..host.input_read(what, from, into.ptr, into.len)];
}

/// The key from byte `from` on, as much as fits.
pub fn key(from: usize, into: []u8) []u8 {
    return input_bytes(0, from, into);
}

/// The value from byte `from` on, as much as fits.
pub fn value(from: usize, into: []u8) []u8 {
    return input_bytes(1, from, into);
}

/// The arguments from byte `from` on, as much as fits.
pub fn args(from: usize, into: []u8) []u8 {
    return input_bytes(2, from, into);
}

/// The name of the authenticated principal, as much as fits; empty without one.
pub fn principal(into: []u8) []u8 {
    return input_bytes(3, 0, into);
}

/// SHA-256 of the code that this program replaces; `null` unless the operation is
/// `Op.upgrade`.
pub fn replacedCode() ?[32]u8 {
    var bytes: [32]u8 = undefined;
    return if (input_bytes(4, 0, &bytes).len == 32) bytes else null;
}

/// Emits a PUT record.
pub fn emitPut(name: []const u8, bytes: []const u8) void {
    host.emit_put(name.ptr, name.len, bytes.ptr, bytes.len);
}

/// Emits a DELETE record.
pub fn emitDelete(name: []const u8) void {
    host.emit_delete(name.ptr, name.len);
}

/// Emits the write itself as a record, without a copy of its bytes.
pub fn emitInput() void {
    host.emit_input();
}

/// Emits a PUT record with a part of the written value, without a copy of its bytes.
pub fn emitValue(name: []const u8, from: usize, len: usize) void {
    host.emit_value(name.ptr, name.len, from, len);
}

/// Rejects the call, with a text for the caller:
/// `return weir.reject(1, "at most 100 bytes");`. A text of more than 256 bytes is a trap. Code 0 is
/// a trap, because it would mean VALID.
pub fn reject(code: u16, text: []const u8) i32 {
    if (code == 0) trap();
    host.reject_text(text.ptr, text.len);
    return code;
}

/// A value that was found: the part that was copied, and the length of the whole
/// value.
pub const Found = struct { bytes: []u8, len: usize };

fn found(from: usize, into: []u8, answer: i32) ?Found {
    if (answer < 0) return null;
    const len: usize = @intCast(answer);
    return .{ .bytes = into[0..@min(len -| from, into.len)], .len = len };
}

/// State of mode `kv`: a map of bytes, ordered by key.
pub const state = struct {
    /// The value of a key from byte `from` on, as much as fits.
    pub fn get(name: []const u8, from: usize, into: []u8) ?Found {
        return found(from, into, host.state_get(name.ptr, name.len, from, into.ptr, into.len));
    }

    /// Sets the value of a key.
    pub fn put(name: []const u8, bytes: []const u8) void {
        host.state_put(name.ptr, name.len, bytes.ptr, bytes.len);
    }

    /// Removes a key.
    pub fn delete(name: []const u8) void {
        host.state_delete(name.ptr, name.len);
    }

    /// The smallest key after the given one, as much as fits. An empty key is before all
    /// others.
    pub fn next(name: []const u8, into: []u8) ?Found {
        return found(0, into, host.state_next(name.ptr, name.len, into.ptr, into.len));
    }
};

/// The topic's own keys as its readers see them, including the records of this call.
pub const keys = struct {
    /// The value of a key from byte `from` on, as much as fits.
    pub fn get(name: []const u8, from: usize, into: []u8) ?Found {
        return found(from, into, host.key_get(name.ptr, name.len, from, into.ptr, into.len));
    }

    /// Offset of the record with the value of the key; 0 if it has none.
    pub fn offset(name: []const u8) u64 {
        return @bitCast(host.key_offset(name.ptr, name.len));
    }
};

/// Finds values in JSON; the store parses it.
pub const json = struct {
    /// The type of a value.
    pub const Kind = enum(u32) {
        /// There is no value.
        none = 0,
        null_value = 1,
        false_value = 2,
        true_value = 3,
        number = 4,
        string = 5,
        array = 6,
        object = 7,
        _,
    };

    /// A value: its type, and the position and length of its literal in the written value.
    pub const Value = extern struct { kind: Kind = .none, at: u32 = 0, len: u32 = 0 };

    /// The result of a search.
    pub const Answer = union(enum) {
        /// One value for each path, in the order of the paths.
        found: []Value,
        /// The value is not JSON; the index of the first wrong byte.
        not_json: u32,
        /// A path is invalid, or there are more paths than fit or than 64.
        paths,
    };

    /// Finds values in the written value by their paths (names and indexes of JSONPath, RFC 9535),
    /// one on each line. Checks the whole value.
    pub fn find(paths: []const u8, into: []Value) Answer {
        const count = std.mem.countScalar(u8, paths, '\n') + 1;
        if (count > into.len) return .paths;
        const answer = host.json_find(1, 1, paths.ptr, paths.len, into.ptr);
        if (answer == -1) return .{ .not_json = @backingInt(into[0].kind) };
        if (answer < 0) return .paths;
        return .{ .found = into[0..count] };
    }
};

comptime {
    std.debug.assert(@sizeOf(json.Value) == 12);
}

/// SHA-256.
pub fn sha256(bytes: []const u8) [32]u8 {
    return digest(1, bytes);
}

/// BLAKE3.
pub fn blake3(bytes: []const u8) [32]u8 {
    return digest(2, bytes);
}

fn digest(algorithm: u32, bytes: []const u8) [32]u8 {
    var out: [32]u8 = undefined;
    host.hash(algorithm, bytes.ptr, bytes.len, &out);
    return out;
}

/// The severity of a line of `log`.
pub const Level = enum(u32) { err = 1, warn = 2, info = 3, debug = 4, trace = 5 };

/// Writes a line to the log of the operator. The line is not part of the outcome.
pub fn log(level: Level, text: []const u8) void {
    host.log(@backingInt(level), text.ptr, text.len);
}

/// Ends the call as a trap: for states that cannot occur.
pub fn trap() noreturn {
    @trap();
}

/// The big-endian number at an index; `null` after the end.
pub fn getBig(comptime Number: type, bytes: []const u8, at: usize) ?Number {
    const size = @sizeOf(Number);
    if (at > bytes.len or bytes.len - at < size) return null;
    return std.mem.readInt(Number, bytes[at..][0..size], .big);
}

/// The bytes of a number in big-endian order.
pub fn big(comptime Number: type, number: Number) [@sizeOf(Number)]u8 {
    var bytes: [@sizeOf(Number)]u8 = undefined;
    std.mem.writeInt(Number, &bytes, number, .big);
    return bytes;
}

/// Whether two pieces of memory have the same bytes.
pub fn equal(left: []const u8, right: []const u8) bool {
    return std.mem.eql(u8, left, right);
}

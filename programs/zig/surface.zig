//! `surface`: calls every function of the interface and emits the results. It exists in each
//! language, and one script tests them all.

const std = @import("std");
const weir = @import("weir_guest");

/// A failed safety check is a trap without a message, so that the module is as small as possible.
pub const panic = std.debug.no_panic;

comptime {
    weir.program();
}

export fn weir_init() i32 {
    var bytes: [64]u8 = undefined;
    weir.emitPut("args", weir.args(0, &bytes));
    return 0;
}

export fn weir_upgrade() i32 {
    const len: u8 = if (weir.replacedCode()) |hash| hash.len else 0;
    weir.emitPut("replaced", &.{len});
    return 0;
}

/// The header in big-endian order.
fn header(input: *const weir.Input) [88]u8 {
    return weir.big(u32, @backingInt(input.op)) ++
        weir.big(u32, input.flags) ++
        weir.big(u64, input.intention_offset) ++
        weir.big(u64, input.next_offset) ++
        weir.big(u64, input.term) ++
        weir.big(u64, input.time_ms) ++
        weir.big(u64, input.nonce) ++
        input.client_id ++
        weir.big(u32, input.key_len) ++
        weir.big(u32, input.value_len) ++
        weir.big(u32, input.args_len) ++
        weir.big(u32, input.principal_len) ++
        weir.big(u32, input.step) ++
        weir.big(u32, input.steps);
}

fn emitFound(name: []const u8, found: ?weir.Found) void {
    weir.emitPut(name, if (found) |there| there.bytes else "-");
}

/// Kind, position and length of the value and of its `a`, one byte each; one byte if it is not
/// JSON.
fn shape(into: *[64]u8) []const u8 {
    var found: [2]weir.json.Value = undefined;
    switch (weir.json.find("$\n$.a", &found)) {
        .found => |values| {
            for (values, 0..) |value, n| {
                const kind: u8 = @truncate(@backingInt(value.kind));
                into[3 * n] = kind - @intFromBool(kind > 2);
                into[3 * n + 1] = @truncate(value.at);
                into[3 * n + 2] = @truncate(value.len);
            }
            return into[0..6];
        },
        .not_json => |at| {
            into[0] = @truncate(at);
            return into[0..1];
        },
        .paths => return into[0..0],
    }
}

export fn weir_apply() i32 {
    const input = weir.Input.read();
    var key_bytes: [64]u8 = undefined;
    var value_bytes: [64]u8 = undefined;
    var bytes: [64]u8 = undefined;
    const key = weir.key(0, &key_bytes);
    if (input.op == .delete) {
        weir.state.delete(key);
        weir.emitDelete(key);
        return 0;
    }
    const value = weir.value(0, &value_bytes);
    if (value.len == 0) return weir.reject(9, "nothing to look at");
    weir.log(.info, "looking");
    weir.emitPut("header", &header(&input));
    weir.emitPut("who", weir.principal(&bytes));
    emitFound("before", weir.state.get(key, 0, &bytes));
    weir.state.put(key, value);
    emitFound("first", weir.state.next("", &bytes));
    emitFound("seen", weir.keys.get(key, 1, &bytes));
    weir.emitPut("at", &weir.big(u64, weir.keys.offset(key)));
    weir.emitPut("sha", &weir.sha256(value));
    weir.emitPut("blake", &weir.blake3(value));
    weir.emitPut("json", shape(&bytes));
    weir.emitValue("tail", 1, value.len - 1);
    weir.emitInput();
    return 0;
}

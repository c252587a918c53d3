//! `balance`: accounts that cannot be overdrawn. The balances are the values of the topic's own
//! keys, so all readers of the topic see them.
//!
//! Key: source, 32 bytes; 32 zero bytes are the bank. Value, big-endian: destination (32), amount
//! (i64), and the offsets at which the client saw both balances (u64 each, 0: any). Optional
//! arguments: byte 1 and the name of the only principal who may transfer money from the bank. An
//! empty name means clients without a principal. Without arguments, everyone may.

const std = @import("std");
const weir = @import("weir_guest");

/// A failed safety check is a trap without a message, so that the module is as small as possible.
pub const panic = std.debug.no_panic;

comptime {
    weir.program();
}

const bank: [32]u8 = @splat(0);

fn balance(account: []const u8) i64 {
    var bytes: [8]u8 = undefined;
    const found = weir.keys.get(account, 0, &bytes) orelse return 0;
    return weir.getBig(i64, found.bytes, 0) orelse 0;
}

fn setBalance(account: []const u8, amount: i64) void {
    weir.emitPut(account, &weir.big(i64, amount));
}

fn mayMint() bool {
    var args_bytes: [256]u8 = undefined;
    var name_bytes: [256]u8 = undefined;
    const args = weir.args(0, &args_bytes);
    if (args.len == 0 or args[0] != 1) return true;
    return weir.equal(args[1..], weir.principal(&name_bytes));
}

fn hasChanged(account: []const u8, seen: u64) bool {
    return seen != 0 and weir.keys.offset(account) != seen;
}

export fn weir_apply() i32 {
    const input = weir.Input.read();
    if (input.op != .put or input.key_len != 32 or input.value_len != 56) {
        return weir.reject(1, "key of 32 bytes, value of 56");
    }
    var key: [32]u8 = undefined;
    var bytes: [56]u8 = undefined;
    const source = weir.key(0, &key);
    const value = weir.value(0, &bytes);
    const destination = value[0..32];
    const amount = weir.getBig(i64, value, 32) orelse 0;
    if (amount <= 0) return weir.reject(2, "the amount must be positive");
    if (weir.equal(source, destination)) {
        return weir.reject(3, "source and destination are the same");
    }
    if (hasChanged(source, weir.getBig(u64, value, 40) orelse 0) or
        hasChanged(destination, weir.getBig(u64, value, 48) orelse 0))
    {
        return weir.reject(4, "an account has changed since");
    }
    if (weir.equal(source, &bank)) {
        if (!mayMint()) return weir.reject(8, "only one principal may use the bank");
    } else {
        const has = balance(source);
        if (has < amount) return weir.reject(6, "not enough");
        setBalance(source, has - amount);
    }
    if (!weir.equal(destination, &bank)) {
        const gets, const overflows = @addWithOverflow(balance(destination), amount);
        if (overflows != 0) return weir.reject(7, "the destination overflows");
        setBalance(destination, gets);
    }
    setBalance(&bank, amount);
    return 0;
}

//! `broken`: accepts each write, except for values that trigger a fault in it. It exists in each
//! language, and shows the trace of a call that fails.
//!
//! The value `assert` fails an assertion, and `index` reads after the end of the value.

const std = @import("std");
const weir = @import("weir_guest");

pub const panic = weir.panic;

comptime {
    weir.program();
}

noinline fn checkedLen(value: []const u8) usize {
    if (weir.equal(value, "assert")) @panic("the value is not `assert`");
    return value.len;
}

noinline fn byteAfter(value: []const u8, len: usize) u8 {
    return value[len];
}

export fn weir_apply() i32 {
    var bytes: [64]u8 = undefined;
    const value = weir.value(0, &bytes);
    const len = checkedLen(value);
    if (weir.equal(value, "index")) weir.emitPut("after", &.{byteAfter(value, len)});
    weir.emitInput();
    return 0;
}

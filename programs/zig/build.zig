//! The package for `zig fetch`: one module, `weir_guest`.

const std = @import("std");

pub fn build(b: *std.Build) void {
    _ = b.addModule("weir_guest", .{ .root_source_file = b.path("weir_guest.zig") });
}

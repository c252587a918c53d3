//! Seats of one show: the first booking wins, until the seat is released.
//!
//! A key is a seat such as `12A`. Its value is the name of the person who booked
//! it. A DELETE releases the seat.

const weir = @import("weir_guest");

pub const panic = weir.panic;

comptime {
    weir.program();
}

fn isDigit(byte: u8) bool {
    return byte >= '0' and byte <= '9';
}

/// A row from 1 to 99 and a letter from A to F.
fn isSeat(seat: []const u8) bool {
    if (seat.len < 2 or seat.len > 3 or seat[0] == '0' or !isDigit(seat[0])) return false;
    if (seat.len == 3 and !isDigit(seat[1])) return false;
    const letter = seat[seat.len - 1];
    return letter >= 'A' and letter <= 'F';
}

/// Validates one write. The emitted record is stored.
export fn weir_apply() i32 {
    const input = weir.Input.read();
    var bytes: [4]u8 = undefined;
    const seat = weir.key(0, &bytes);
    if (!isSeat(seat)) {
        return weir.reject(1, "a seat is a row from 1 to 99 and a letter from A to F");
    }
    const taken = weir.keys.offset(seat) != 0;
    if (input.op == .delete) {
        if (!taken) return weir.reject(3, "nobody has this seat");
    } else if (taken) {
        return weir.reject(2, "the seat is taken");
    } else if (input.value_len < 1 or input.value_len > 64) {
        return weir.reject(4, "a name of 1 to 64 bytes");
    }
    weir.emitInput();
    return 0;
}

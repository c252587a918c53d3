//! Any bytes as a stream of HTTP/1.1 requests, divided into pieces at any positions. Nothing
//! panics, and neither the requests nor the end of the stream depend on the division.

use weir_server::pieces::{Limits, read};

/// The fuzz target. The first three bytes choose the limits and the position of a cut.
pub fn run(input: &[u8]) {
    let [low, cut_low, cut_high, bytes @ ..] = input else {
        return;
    };
    let (low, cut) = (*low, u16::from_le_bytes([*cut_low, *cut_high]));
    let mut limits = Limits::default();
    if low != 0 {
        // Low limits, so that short heads reach them.
        limits.line = 16 + usize::from(low);
        limits.head = 16 + usize::from(low);
        limits.fields = 1 + usize::from(low % 8);
    }
    let whole = read(bytes, [], limits);
    assert_eq!(whole.heads.len(), whole.bodies.len());
    let cut = usize::from(cut) % bytes.len().max(1);
    assert_eq!(whole, read(bytes, [cut], limits));
    assert_eq!(whole, read(bytes, 0..bytes.len(), limits));
}

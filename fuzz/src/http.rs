//! Any bytes as a stream of HTTP/1.1 requests, cut anywhere: nothing panics, and
//! neither the requests nor the end of the stream depend on the cut. The first
//! bytes say where the pieces end and which limits hold.

use weir_server::pieces::{Limits, read};

/// The target: the first three bytes choose limits and cut.
pub fn run(input: &[u8]) {
    let [low, cut_low, cut_high, bytes @ ..] = input else {
        return;
    };
    let (low, cut) = (*low, u16::from_le_bytes([*cut_low, *cut_high]));
    let mut limits = Limits::default();
    if low != 0 {
        // Heads that are about as long as is allowed are short this way.
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

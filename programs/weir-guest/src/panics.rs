//! Logs the message of a panic before the trap.

use core::fmt::{Result, Write};
use core::panic::PanicInfo;

/// Maximum size of a message in bytes; the rest is cut off.
const LINE_BYTES_MAX: usize = 256;

/// A line in a buffer; text that does not fit is dropped.
struct Line {
    bytes: [u8; LINE_BYTES_MAX],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> Result {
        let room = self.bytes.get_mut(self.len..).unwrap_or_default();
        for (to, from) in room.iter_mut().zip(text.bytes()) {
            *to = from;
            self.len += 1;
        }
        Ok(())
    }
}

/// Writes the message and the position of a panic to the log of the operator.
pub(crate) fn tell(info: &PanicInfo<'_>) {
    let mut line = Line {
        bytes: [0; LINE_BYTES_MAX],
        len: 0,
    };
    let _ = match info.location() {
        Some(place) => write!(line, "panicked at {place}: {}", info.message()),
        None => write!(line, "panicked: {}", info.message()),
    };
    crate::host::log(
        crate::Level::Error as u32,
        line.bytes.get(..line.len).unwrap_or_default(),
    );
}

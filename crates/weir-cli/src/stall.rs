//! Standard output, with the detection of a reader that pauses, such as a pager.
//!
//! A command that reads a directory has it locked. If its output stalls, it closes the store, so
//! that other processes can write.

use std::io::{self, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Time without a byte that the output accepts, after which the output counts as stalled.
const STALL_TIME: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// Maximum bytes of one write during the detection. A pipe that accepts any bytes accepts this
/// number without blocking.
const WRITE_BYTES: usize = 4096;

/// Standard output.
#[derive(Debug, Default)]
pub(crate) struct StallDetector {
    /// Whether the command wants to know when the output is stalled.
    pub(crate) is_wanted: bool,
    /// Whether a write fails with `WouldBlock` if the output is stalled. Otherwise it blocks.
    pub(crate) is_active: bool,
}

impl Write for StallDetector {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_active {
            return io::stdout().write(bytes);
        }
        let out = rustix::stdio::stdout();
        let mut fds = [PollFd::new(&out, PollFlags::OUT)];
        if poll(&mut fds, Some(&STALL_TIME))? == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let part = bytes.get(..WRITE_BYTES).unwrap_or(bytes);
        Ok(rustix::io::write(out, part)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

//! Ctrl-C: the first one asks for an orderly end, the second one ends at once.
//!
//! SIGTERM counts as Ctrl-C. A command checks [`Interrupt::asked`] between pieces of work and reads
//! input through [`Interrupt::reader`], so that an idle input does not delay the end. Invariant: an
//! interrupted command ends with the exit code of an interrupt.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use weir::ErrorCode;

/// From now on a write beyond the limit on the size of files (`RLIMIT_FSIZE`)
/// fails like one to a full disk; without a handler it ends the process.
pub(crate) fn survive_file_size_limit() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// A wish to end, once somebody has it.
#[derive(Debug)]
pub(crate) struct Interrupt {
    asked: Arc<AtomicBool>,
    /// Gets a byte with each signal.
    wake: UnixStream,
    waker: UnixStream,
}

impl Interrupt {
    /// One that nothing happens to before [`watch`](Self::watch).
    pub(crate) fn new() -> io::Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        let asked = Arc::default();
        Ok(Self { asked, wake, waker })
    }

    /// From now on, the first signal is a wish and the second one is the end.
    pub(crate) fn watch(&self) -> io::Result<()> {
        let exit = ErrorCode::Cancelled.exit_code().into();
        for signal in [SIGINT, SIGTERM] {
            let asked = || Arc::clone(&self.asked);
            // In this order: the first signal must not see its own flag.
            signal_hook::flag::register_conditional_shutdown(signal, exit, asked())?;
            signal_hook::flag::register(signal, asked())?;
            signal_hook::low_level::pipe::register(signal, self.waker.try_clone()?)?;
        }
        Ok(())
    }

    /// Whether the end is wished for.
    pub(crate) fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Blocks for `time`, or until the end is wished for.
    pub(crate) fn pause(&self, time: std::time::Duration) {
        let mut ready = [PollFd::new(&self.wake, PollFlags::IN)];
        let time = rustix::event::Timespec::try_from(time).ok();
        // A signal may end the wait early; the caller asks again.
        let _ = poll(&mut ready, time.as_ref());
    }

    /// The input, with an error instead of a wait once the end is wished for.
    pub(crate) fn reader(&self, input: File) -> io::Result<impl Read + use<>> {
        let wake = self.wake.try_clone()?;
        Ok(Reader { input, wake })
    }
}

struct Reader {
    input: File,
    wake: UnixStream,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = [
                PollFd::new(&self.wake, PollFlags::IN),
                PollFd::new(&self.input, PollFlags::IN),
            ];
            match poll(&mut ready, None) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            if ready[0].revents().is_empty() {
                return self.input.read(buffer);
            }
            // Not the kind that is tried again.
            return Err(io::Error::other("interrupted"));
        }
    }
}

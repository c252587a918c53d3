//! Ctrl-C: the first signal requests an orderly end, the second one ends the process at once.
//!
//! SIGTERM counts as Ctrl-C. SIGHUP (a closed terminal) requests an orderly end too, unless the
//! process ignores it, as after `nohup`. A command checks [`Interrupt::is_requested`] between
//! pieces of work and reads input through [`Interrupt::reader`], so that an idle input does not
//! delay the end. Invariant: an interrupted command ends with the exit code of an interrupt.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use weir::ErrorCode;

/// After this call, a write beyond the limit on file sizes (`RLIMIT_FSIZE`) fails like a write to a
/// full disk. Without a handler, the signal ends the process.
pub(crate) fn ignore_file_size_signal() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// Whether this process ignores SIGHUP, as `nohup` requests. Also `true` if that is not known.
pub(crate) fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The lowest bit is signal 1, SIGHUP.
    mask.is_none_or(|mask| mask & 1 == 1)
}

/// A flag that a signal sets.
#[derive(Debug)]
pub(crate) struct Interrupt {
    requested: Arc<AtomicBool>,
    /// Receives a byte with each signal.
    wake: UnixStream,
    waker: UnixStream,
}

impl Interrupt {
    /// Creates the flag. Signals do not set it before [`watch`](Self::watch).
    pub(crate) fn new() -> io::Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        let requested = Arc::default();
        Ok(Self {
            requested,
            wake,
            waker,
        })
    }

    /// After this call, the first signal sets the flag and the second one ends the process.
    pub(crate) fn watch(&self) -> io::Result<()> {
        let exit = ErrorCode::Cancelled.exit_code().into();
        for signal in [SIGINT, SIGTERM] {
            let requested = || Arc::clone(&self.requested);
            // In this order, so that the first signal does not see the flag that it sets itself.
            signal_hook::flag::register_conditional_shutdown(signal, exit, requested())?;
            signal_hook::flag::register(signal, requested())?;
            signal_hook::low_level::pipe::register(signal, self.waker.try_clone()?)?;
        }
        if !ignores_hangup() {
            // When a terminal is closed, the system and the shell may each send one. So the second
            // one does not end the process.
            signal_hook::flag::register(SIGHUP, Arc::clone(&self.requested))?;
            signal_hook::low_level::pipe::register(SIGHUP, self.waker.try_clone()?)?;
        }
        Ok(())
    }

    /// Whether a signal has requested the end.
    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Blocks for `time`, or until a signal requests the end.
    pub(crate) fn pause(&self, time: std::time::Duration) {
        let mut ready = [PollFd::new(&self.wake, PollFlags::IN)];
        let time = rustix::event::Timespec::try_from(time).ok();
        // A signal may end the wait early; the caller checks the flag again.
        let _ = poll(&mut ready, time.as_ref());
    }

    /// Wraps the input. A read fails instead of blocking once a signal has requested the end.
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
            // The error kind must not be `Interrupted`, because callers retry that.
            return Err(io::Error::other("interrupted"));
        }
    }
}

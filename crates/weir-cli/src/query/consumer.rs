//! The consumer of the results: at the other end of a pipe, or started by `--into`.
//!
//! A pipe holds up to 64 KiB of unread output. So a query with a checkpoint waits until its pipe is
//! empty before it saves its position.
//!
//! Invariants:
//! - The consumer has read everything up to the position of a checkpoint.
//! - The query does not wait for a consumer that has ended.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::stdio::stdout;
use weir::ErrorCode;

use crate::report::{self, Failure, FailureContext};

/// Interval between checks whether the pipe is empty: no event reports that. An event reports only
/// that the reader has closed the pipe.
const POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// A program that reads the results.
#[derive(Debug)]
pub(super) struct Consumer {
    child: Child,
    command: String,
}

impl Consumer {
    /// Starts the command in a shell. Its input is the output of this program from now on; its
    /// output goes to the previous standard output of this program.
    pub(super) fn start(command: &str) -> anyhow::Result<Self> {
        let failed = || format!("cannot start {command}");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", command]).stdin(Stdio::piped());
        let mut child = shell.spawn().failed(failed)?;
        let input = child.stdin.take().map(OwnedFd::from);
        let moved = input.map_or(Ok(()), |input| rustix::stdio::dup2_stdout(&input));
        moved.map_err(io::Error::from).failed(failed)?;
        Ok(Self {
            child,
            command: command.to_owned(),
        })
    }

    /// Closes the input of the command and waits for its end. `result` is the result of the query.
    /// Returns the exit code of the command, unless the query failed by itself.
    pub(super) fn end(mut self, result: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
        let failed = || format!("cannot wait for {}", self.command);
        let nothing = std::fs::File::create("/dev/null").failed(failed)?;
        rustix::stdio::dup2_stdout(&nothing)
            .map_err(io::Error::from)
            .failed(failed)?;
        let status = self.child.wait().failed(failed)?;
        match result {
            Err(error) if !report::is_closed(&error) => return Err(error),
            _ => {}
        }
        if let Some(code) = status.code() {
            return Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)));
        }
        let what = format!("{} was killed ({status})", self.command);
        let advice =
            "the checkpoint excludes results that the command has not read: run the query again";
        Err(Failure::new(ErrorCode::Io, what).advise(advice).into())
    }
}

/// Blocks until the reader of the pipe has read all output. Returns at once if standard output is
/// not a pipe.
///
/// # Errors
/// The reader has closed the pipe.
pub(crate) fn wait_until_read() -> anyhow::Result<()> {
    if !is_pipe() {
        return Ok(());
    }
    loop {
        let out = stdout();
        if matches!(rustix::io::ioctl_fionread(out), Ok(0)) {
            return Ok(());
        }
        let mut fds = [PollFd::new(&out, PollFlags::empty())];
        match poll(&mut fds, Some(&POLL_INTERVAL)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return report::stdout(Err(error.into())),
        }
        let [fd] = fds;
        if fd.revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            return report::stdout(Err(io::ErrorKind::BrokenPipe.into()));
        }
    }
}

/// Checks that standard output still has a reader. Does not block.
///
/// # Errors
/// The reader has closed the pipe.
pub(crate) fn check() -> anyhow::Result<()> {
    let out = stdout();
    let mut fds = [PollFd::new(&out, PollFlags::empty())];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let polled = poll(&mut fds, Some(&at_once));
    let [fd] = fds;
    if is_pipe() && polled.is_ok() && fd.revents().intersects(PollFlags::ERR | PollFlags::HUP) {
        return report::stdout(Err(io::ErrorKind::BrokenPipe.into()));
    }
    Ok(())
}

fn is_pipe() -> bool {
    fstat(stdout()).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

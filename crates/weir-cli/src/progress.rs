//! Progress of an open, for people and for the ports of a server.
//!
//! A command that waits for another process for longer than [`FIRST_LINE_AFTER`] prints a line to
//! standard error within 0.3 s. For a long open, the first line appears after
//! [`FIRST_LINE_AFTER`] on a terminal, and after [`LINE_INTERVAL`] elsewhere, so that the output
//! of a script does not depend on the load of the machine.

use std::fmt;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir::OnProgress;

use crate::report::note;

/// Time before the first line.
const FIRST_LINE_AFTER: Duration = Duration::from_millis(200);
/// How often the thread checks whether a line is due.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Decides when a line about progress is due.
#[derive(Debug)]
pub(crate) struct ProgressTimer {
    terminal: bool,
    started: Instant,
    last_line: Option<Instant>,
}

impl ProgressTimer {
    /// Starts the timer.
    pub(crate) fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            started: Instant::now(),
            last_line: None,
        }
    }

    /// Returns whether a line is due; if so, the caller prints it. `urgent`: the first line is due
    /// as early as on a terminal.
    pub(crate) fn is_due(&mut self, urgent: bool) -> bool {
        let due = match self.last_line {
            None if urgent || self.terminal => self.started.elapsed() >= FIRST_LINE_AFTER,
            None => self.started.elapsed() >= LINE_INTERVAL,
            Some(at) => at.elapsed() >= LINE_INTERVAL,
        };
        if due {
            self.last_line = Some(Instant::now());
        }
        due
    }
}

/// The progress of an open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<State>);

#[derive(Debug, Default)]
struct State {
    percent: AtomicU64,
    /// Id of the process that has the store open, plus 1; 1 if the id is unknown; 0: none.
    owner: AtomicU64,
}

impl Progress {
    /// The applied part of the log, in percent.
    pub(crate) fn percent(&self) -> u64 {
        self.0.percent.load(Ordering::Relaxed)
    }

    /// The callback that the store calls during the open.
    pub(crate) fn observer(&self) -> OnProgress {
        let state = Arc::clone(&self.0);
        OnProgress::new(move |open| {
            state.percent.store(open.percent(), Ordering::Relaxed);
        })
    }

    /// Sets the process that has the store open. `pid` is 0 if it is unknown.
    pub(crate) fn set_owner(&self, pid: u32) {
        self.0.owner.store(u64::from(pid) + 1, Ordering::Relaxed);
    }

    /// Records that no other process has the store open.
    pub(crate) fn clear_owner(&self) {
        self.0.owner.store(0, Ordering::Relaxed);
    }

    /// Prints lines about the progress until the result is dropped.
    pub(crate) fn show(&self, quiet: bool, at: &str) -> ProgressLines {
        let (end, ended) = channel::<()>();
        let (progress, at) = (self.clone(), at.to_owned());
        let thread = std::thread::Builder::new()
            .name("weir-progress".into())
            .spawn(move || {
                let mut timer = ProgressTimer::new();
                while ended.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    let owned = progress.0.owner.load(Ordering::Relaxed) != 0;
                    if timer.is_due(owned) {
                        note(quiet, &format!("opening {at}: {progress}"));
                    }
                }
            });
        ProgressLines {
            end: Some(end),
            // If the thread cannot be started, the open prints no lines.
            thread: thread.ok(),
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.owner.load(Ordering::Relaxed), self.percent()) {
            (0, 0) => f.write_str("reading its files"),
            (0, percent) => write!(f, "{percent} % of the log is applied"),
            (1, _) => f.write_str("waiting for another process, which has it open"),
            (owner, _) => write!(f, "waiting for process {}, which has it open", owner - 1),
        }
    }
}

/// Prints lines about an open. Dropping this ends the lines.
pub(crate) struct ProgressLines {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ProgressLines {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // The panic of the thread was printed when it happened.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "a test may fail by panicking")]
mod tests {
    use super::{FIRST_LINE_AFTER, LINE_INTERVAL, ProgressTimer};
    use std::time::Instant;

    #[test]
    fn the_first_line_is_later_in_scripts_and_lines_have_an_interval() {
        let ago = |time| {
            let then = Instant::now().checked_sub(time);
            then.expect("the clock has run longer than that")
        };
        let mut timer = ProgressTimer {
            terminal: false,
            started: ago(FIRST_LINE_AFTER),
            last_line: None,
        };
        assert!(!timer.is_due(false));
        assert!(timer.is_due(true));
        // A second line is not due at once, even if it is urgent.
        assert!(!timer.is_due(true));
        timer.last_line = Some(ago(LINE_INTERVAL));
        assert!(timer.is_due(false));
        let (started, last_line) = (ago(FIRST_LINE_AFTER), None);
        let terminal = true;
        let mut timer = ProgressTimer {
            terminal,
            started,
            last_line,
        };
        assert!(timer.is_due(false));
        let (terminal, started) = (false, ago(LINE_INTERVAL));
        let mut timer = ProgressTimer {
            terminal,
            started,
            last_line,
        };
        assert!(timer.is_due(false));
    }
}

//! Progress of an open, for people and for the ports of a server.
//!
//! A command that waits for another process for longer than [`PATIENCE`] prints a line to standard
//! error within 0.3 s. For a long open, the first line appears after [`PATIENCE`] on a terminal,
//! and after [`LINE_EVERY`] elsewhere, so that the output of a script does not depend on the load
//! of the machine.

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
const PATIENCE: Duration = Duration::from_millis(200);
/// How often the thread checks whether a line is due.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time between two lines.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Decides when a line about progress is due.
#[derive(Debug)]
pub(crate) struct Pace {
    terminal: bool,
    started: Instant,
    said: Option<Instant>,
}

impl Pace {
    /// Starts the clock.
    pub(crate) fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            started: Instant::now(),
            said: None,
        }
    }

    /// Returns whether a line is due; if so, the caller prints it. `urgent`: the first line is due
    /// as early as on a terminal.
    pub(crate) fn is_due(&mut self, urgent: bool) -> bool {
        let due = match self.said {
            None if urgent || self.terminal => self.started.elapsed() >= PATIENCE,
            None => self.started.elapsed() >= LINE_EVERY,
            Some(at) => at.elapsed() >= LINE_EVERY,
        };
        if due {
            self.said = Some(Instant::now());
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
    pub(crate) fn waits_for(&self, pid: u32) {
        self.0.owner.store(u64::from(pid) + 1, Ordering::Relaxed);
    }

    /// Clears that process.
    pub(crate) fn waits_for_nobody(&self) {
        self.0.owner.store(0, Ordering::Relaxed);
    }

    /// Prints lines about the progress until the result is dropped.
    pub(crate) fn show(&self, quiet: bool, at: &str) -> Shown {
        let (end, ended) = channel::<()>();
        let (progress, at) = (self.clone(), at.to_owned());
        let thread = std::thread::Builder::new()
            .name("weir-progress".into())
            .spawn(move || {
                let mut pace = Pace::new();
                while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                    let owned = progress.0.owner.load(Ordering::Relaxed) != 0;
                    if pace.is_due(owned) {
                        note(quiet, &format!("opening {at}: {progress}"));
                    }
                }
            });
        Shown {
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
pub(crate) struct Shown {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Shown {
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
    use super::{LINE_EVERY, PATIENCE, Pace};
    use std::time::Instant;

    #[test]
    fn lines_are_late_in_scripts_and_seldom() {
        let ago = |time| {
            let then = Instant::now().checked_sub(time);
            then.expect("the clock has run longer than that")
        };
        let mut pace = Pace {
            terminal: false,
            started: ago(PATIENCE),
            said: None,
        };
        assert!(!pace.is_due(false));
        assert!(pace.is_due(true));
        // A second line is not due at once, even if it is urgent.
        assert!(!pace.is_due(true));
        pace.said = Some(ago(LINE_EVERY));
        assert!(pace.is_due(false));
        let (started, said) = (ago(PATIENCE), None);
        let terminal = true;
        let mut pace = Pace {
            terminal,
            started,
            said,
        };
        assert!(pace.is_due(false));
        let (terminal, started) = (false, ago(LINE_EVERY));
        let mut pace = Pace {
            terminal,
            started,
            said,
        };
        assert!(pace.is_due(false));
    }
}

//! How far an open has come, for people and for the ports of a server.
//!
//! A command that waits for another process for longer than [`PATIENCE`] says so
//! on standard error, and so within 0.3 s. A long open is told there after the same time on a terminal,
//! and after [`LINE_EVERY`] elsewhere: the output of a script should not depend on
//! how busy the machine is.

use std::fmt;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir::OnProgress;

use crate::report::note;

/// Time after which a person is told what the command waits for.
const PATIENCE: Duration = Duration::from_millis(200);
/// How often it is looked whether there is something to say.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time between two lines about it.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// When a person is told how far something has come.
#[derive(Debug)]
pub(crate) struct Pace {
    terminal: bool,
    started: Instant,
    said: Option<Instant>,
}

impl Pace {
    /// Begins now.
    pub(crate) fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            started: Instant::now(),
            said: None,
        }
    }

    /// Whether a line is due now, which the caller then prints. `urgent`: the first line is as early as on
    /// a terminal.
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

/// What an open waits for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<State>);

#[derive(Debug, Default)]
struct State {
    percent: AtomicU64,
    /// Process that has the store, plus 1, as its id may not be known; 0: nobody.
    owner: AtomicU64,
}

impl Progress {
    /// How much of the log is applied, in percent.
    pub(crate) fn percent(&self) -> u64 {
        self.0.percent.load(Ordering::Relaxed)
    }

    /// What the store tells while it opens.
    pub(crate) fn observer(&self) -> OnProgress {
        let state = Arc::clone(&self.0);
        OnProgress::new(move |open| {
            state.percent.store(open.percent(), Ordering::Relaxed);
        })
    }

    /// The process that has the store open, which is waited for: its id, 0 if it is not known.
    pub(crate) fn waits_for(&self, pid: u32) {
        self.0.owner.store(u64::from(pid) + 1, Ordering::Relaxed);
    }

    /// Nobody else has the store open.
    pub(crate) fn waits_for_nobody(&self) {
        self.0.owner.store(0, Ordering::Relaxed);
    }

    /// Says from now on what is waited for, until the result is dropped.
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
            // Without a thread the open works as well, in silence.
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

/// Lines about an open; they end when it is dropped.
pub(crate) struct Shown {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Shown {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // Its panic was printed when it happened.
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
        // Not again at once, however urgent.
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

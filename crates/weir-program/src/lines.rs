//! What programs say with `log`: lines for people, bounded and rate-limited.
//!
//! A line is shown by the node that runs the call and by nobody else; it is no
//! part of an outcome, and a program cannot learn whether it was kept. The
//! rate is counted in the log's own time, so that no clock is needed here.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use weir_core::IntentionOffset;
use weir_core::desk::Desk;

/// Bytes of a line that are kept.
pub const LINE_BYTES_MAX: usize = 1024;
/// Lines that are kept, the newest.
pub const LINES_MAX: usize = 1000;
/// Lines that are taken for each second of the log's time.
pub const LINES_PER_SECOND: u32 = 100;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Something is wrong.
    Error = 1,
    /// Something may be wrong.
    Warn = 2,
    /// Worth knowing; also every number that is not in this list.
    Info = 3,
    /// For whoever looks for a mistake.
    Debug = 4,
    /// Everything.
    Trace = 5,
}

impl Level {
    /// The level with this number.
    #[must_use]
    pub const fn from_number(number: i32) -> Self {
        match number {
            1 => Self::Error,
            2 => Self::Warn,
            4 => Self::Debug,
            5 => Self::Trace,
            _ => Self::Info,
        }
    }

    /// Lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// A line that a program wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Name of the topic whose program wrote it.
    pub topic: Arc<str>,
    /// The intention that was judged.
    pub intention: IntentionOffset,
    /// Its stamp, milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    /// How much it matters.
    pub level: Level,
    /// The text, at most [`LINE_BYTES_MAX`] bytes of it; what is no UTF-8 is
    /// replaced.
    pub text: String,
}

impl LogLine {
    pub(crate) fn new(desk: &Desk, level: i32, text: &[u8]) -> Self {
        let kept = text.get(..LINE_BYTES_MAX).unwrap_or(text);
        Self {
            topic: Arc::clone(desk.topic()),
            intention: desk.intention(),
            time_ms: desk.time_ms(),
            level: Level::from_number(level),
            text: String::from_utf8_lossy(kept).into_owned(),
        }
    }
}

/// The newest lines of all programs of a host.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<LogLine>,
    dropped: u64,
    /// Second of the log's time in which lines are counted.
    second: u64,
    taken: u32,
}

impl Lines {
    /// Takes a line, or counts it when there are too many.
    pub(crate) fn add(&self, desk: &Desk, level: i32, text: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let second = desk.time_ms() / 1000;
        if second != kept.second {
            (kept.second, kept.taken) = (second, 0);
        }
        if kept.taken >= LINES_PER_SECOND {
            kept.dropped += 1;
            return;
        }
        kept.taken += 1;
        let line = LogLine::new(desk, level, text);
        tell(&line);
        if kept.lines.len() >= LINES_MAX {
            kept.lines.pop_front();
        }
        kept.lines.push_back(line);
    }

    /// The lines that are kept, oldest first, and how many were dropped for
    /// their rate.
    pub(crate) fn read(&self) -> (Vec<LogLine>, u64) {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (kept.lines.iter().cloned().collect(), kept.dropped)
    }
}

/// Hands a line to whoever listens to the process.
fn tell(line: &LogLine) {
    macro_rules! event {
        ($level:ident) => {
            tracing::event!(
                target: "weir::program",
                tracing::Level::$level,
                topic = &*line.topic,
                intention = line.intention.0,
                "{}",
                line.text
            )
        };
    }
    match line.level {
        Level::Error => event!(ERROR),
        Level::Warn => event!(WARN),
        Level::Info => event!(INFO),
        Level::Debug => event!(DEBUG),
        Level::Trace => event!(TRACE),
    }
}

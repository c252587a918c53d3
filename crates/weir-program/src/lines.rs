//! The log lines of programs, which they write with `log`.
//!
//! The node that runs the call shows the line. A line is not part of an outcome, and a program
//! cannot detect whether its line was kept. Each topic has its own limits: lines per second, and
//! lines and bytes that are kept. So a topic that writes too much loses only its own lines. Each
//! principal has a rate limit over all its topics, and the host has a rate limit too. Rates use the
//! time in the log, so this module needs no clock. They are counted separately from the lines that
//! are kept.

use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir_core::IntentionOffset;
use weir_core::call_context::CallContext;

/// Bytes of a line that are kept; the rest is cut off.
pub const LINE_BYTES_MAX: usize = 1024;
/// Newest lines of one topic that are kept.
pub const TOPIC_LINES_MAX: usize = 200;
/// Bytes of the lines of one topic that are kept.
pub const TOPIC_LINE_BYTES_MAX: usize = 32 << 10;
/// Topics whose lines are kept: those with the newest lines.
pub const LINE_TOPICS_MAX: usize = 512;
/// Lines of one topic that are accepted per second of the time in the log.
pub const LINES_PER_SECOND: u32 = 100;
/// As [`LINES_PER_SECOND`], for all calls of one principal. Calls without a principal count
/// together.
pub const PRINCIPAL_LINES_PER_SECOND: u32 = 1_000;
/// As [`LINES_PER_SECOND`], for all topics of a host. It also bounds the memory of the rate
/// counters.
pub const HOST_LINES_PER_SECOND: u32 = 2_000;

/// Number of the input part with the principal.
const PRINCIPAL: u32 = 3;

/// The severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// An error.
    Error = 1,
    /// A possible error.
    Warn = 2,
    /// Information; also every number that is not in this list.
    Info = 3,
    /// Details for finding a bug.
    Debug = 4,
    /// All details.
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
    /// The intention of the call.
    pub intention: IntentionOffset,
    /// Time stamp of the intention, in milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    /// The severity.
    pub level: Level,
    /// The text, at most its first [`LINE_BYTES_MAX`] bytes. Invalid UTF-8 is replaced.
    pub text: String,
}

impl LogLine {
    pub(crate) fn new(context: &CallContext, level: i32, text: &[u8]) -> Self {
        let kept = text.get(..LINE_BYTES_MAX).unwrap_or(text);
        Self {
            topic: Arc::clone(context.topic()),
            intention: context.intention(),
            time_ms: context.time_ms(),
            level: Level::from_number(level),
            text: String::from_utf8_lossy(kept).into_owned(),
        }
    }
}

/// The newest lines of the topics of a host.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<LinesState>);

#[derive(Debug, Default)]
struct LinesState {
    topics: BTreeMap<Arc<str>, TopicLines>,
    rates: Rates,
    /// Number of the next line, over all topics.
    next: u64,
    dropped: u64,
}

/// The newest lines of one topic, each with its number.
#[derive(Debug, Default)]
struct TopicLines {
    lines: VecDeque<(u64, LogLine)>,
    /// Bytes of the texts of the lines.
    bytes: usize,
    /// The principal of the call that wrote the newest line.
    principal: Box<[u8]>,
}

/// Lines that were accepted in one second of the time in the log.
#[derive(Debug, Default)]
struct Rates {
    second: u64,
    accepted: u32,
    topics: BTreeMap<Arc<str>, u32>,
    principals: BTreeMap<Box<[u8]>, u32>,
}

impl Rates {
    /// Whether a line is accepted in this second. If so, counts it.
    fn admits(&mut self, topic: &Arc<str>, principal: &[u8], second: u64) -> bool {
        if second != self.second {
            *self = Self {
                second,
                ..Self::default()
            };
        }
        let of_topic = self.topics.get(topic).copied().unwrap_or(0);
        let of_principal = self.principals.get(principal).copied().unwrap_or(0);
        let admitted = self.accepted < HOST_LINES_PER_SECOND
            && of_topic < LINES_PER_SECOND
            && of_principal < PRINCIPAL_LINES_PER_SECOND;
        if admitted {
            self.accepted += 1;
            self.topics.insert(Arc::clone(topic), of_topic + 1);
            self.principals
                .insert(Box::from(principal), of_principal + 1);
        }
        admitted
    }
}

impl TopicLines {
    fn push(&mut self, number: u64, line: LogLine) {
        self.bytes += line.text.len();
        self.lines.push_back((number, line));
        while self.lines.len() > TOPIC_LINES_MAX || self.bytes > TOPIC_LINE_BYTES_MAX {
            let Some((_, oldest)) = self.lines.pop_front() else {
                break;
            };
            self.bytes -= oldest.text.len();
        }
    }

    /// Number of the newest line.
    fn newest(&self) -> u64 {
        self.lines.back().map_or(0, |(number, _)| *number)
    }
}

impl LinesState {
    /// The lines of a topic. If there are too many topics, removes one: among the topics of the
    /// principal with the most topics, the topic that wrote longest ago.
    fn topic(&mut self, name: &Arc<str>) -> &mut TopicLines {
        if self.topics.len() >= LINE_TOPICS_MAX && !self.topics.contains_key(name) {
            let mut counts = BTreeMap::<&[u8], usize>::new();
            for lines in self.topics.values() {
                *counts.entry(&lines.principal).or_default() += 1;
            }
            let count = |lines: &TopicLines| counts.get(&*lines.principal).copied();
            let quietest = self
                .topics
                .iter()
                .min_by_key(|(_, lines)| (Reverse(count(lines)), lines.newest()));
            if let Some(quietest) = quietest.map(|(name, _)| Arc::clone(name)) {
                self.topics.remove(&quietest);
            }
        }
        self.topics.entry(Arc::clone(name)).or_default()
    }
}

impl Lines {
    /// Adds a line. If the topic or principal wrote too many, only counts it as dropped.
    pub(crate) fn add(&self, context: &CallContext, level: i32, text: &[u8]) {
        // `weir_abi` may be called before its module belongs to a topic. At that time there is no
        // time in the log either, and another time would reset the rates.
        if context.topic().is_empty() {
            return;
        }
        let principal = context.input(PRINCIPAL, 0).unwrap_or_default();
        self.add_limited(context.topic(), principal, context.time_ms(), || {
            LogLine::new(context, level, text)
        });
    }

    fn add_limited(
        &self,
        topic: &Arc<str>,
        principal: &[u8],
        time_ms: u64,
        line: impl FnOnce() -> LogLine,
    ) {
        let mut kept = self.0.lock();
        if !kept.rates.admits(topic, principal, time_ms / 1000) {
            kept.dropped += 1;
            return;
        }
        let line = line();
        emit_event(&line);
        kept.next += 1;
        let number = kept.next;
        let lines = kept.topic(topic);
        if *lines.principal != *principal {
            lines.principal = Box::from(principal);
        }
        lines.push(number, line);
    }

    /// The lines that are kept, oldest first, and the number of lines that a rate limit dropped.
    pub(crate) fn read(&self) -> (Vec<LogLine>, u64) {
        let kept = self.0.lock();
        let lines = kept.topics.values().flat_map(|topic| topic.lines.iter());
        let mut lines: Vec<_> = lines.cloned().collect();
        lines.sort_unstable_by_key(|(number, _)| *number);
        let lines = lines.into_iter().map(|(_, line)| line).collect();
        (lines, kept.dropped)
    }
}

/// Emits a line as an event of `tracing`.
fn emit_event(line: &LogLine) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn add(lines: &Lines, topic: &str, text: &str) {
        add_by(lines, "", topic, text);
    }

    fn add_by(lines: &Lines, principal: &str, topic: &str, text: &str) {
        let topic: Arc<str> = Arc::from(topic);
        let line = LogLine {
            topic: Arc::clone(&topic),
            intention: IntentionOffset(1),
            time_ms: 5000,
            level: Level::Debug,
            text: text.to_owned(),
        };
        lines.add_limited(&topic, principal.as_bytes(), 5000, || line);
    }

    fn of<'a>(lines: &'a [LogLine], topic: &str) -> Vec<&'a LogLine> {
        lines.iter().filter(|line| &*line.topic == topic).collect()
    }

    #[test]
    fn a_topic_that_floods_drops_its_own_lines_only() {
        let lines = Lines::default();
        add(&lines, "quiet", "before");
        for _ in 0..=LINES_PER_SECOND {
            add(&lines, "loud", "flood");
        }
        add(&lines, "quiet", "after");
        let (kept, dropped) = lines.read();
        let texts: Vec<_> = of(&kept, "quiet").iter().map(|l| &*l.text).collect();
        assert_eq!(texts, ["before", "after"]);
        assert_eq!(of(&kept, "loud").len(), LINES_PER_SECOND as usize);
        assert_eq!(dropped, 1);
        let ends = [kept.first(), kept.last()].map(|line| line.map(|line| &*line.text));
        assert_eq!(
            ends,
            [Some("before"), Some("after")],
            "in the order of all topics"
        );
    }

    #[test]
    fn the_bytes_of_a_topic_are_limited() {
        let lines = Lines::default();
        let most = TOPIC_LINE_BYTES_MAX / LINE_BYTES_MAX;
        for _ in 0..most {
            add(&lines, "t", &"x".repeat(LINE_BYTES_MAX));
        }
        assert_eq!(lines.read().0.len(), most);
        add(&lines, "t", &"y".repeat(LINE_BYTES_MAX));
        let (kept, dropped) = lines.read();
        assert_eq!((kept.len(), dropped), (most, 0));
        assert!(kept.last().is_some_and(|line| line.text.starts_with('y')));
    }

    #[test]
    fn topics_of_one_principal_share_a_rate() {
        let lines = Lines::default();
        let topics = LINE_TOPICS_MAX + 1;
        add_by(&lines, "quiet", "q", "before");
        let rounds = 4;
        for _ in 0..rounds {
            for number in 0..topics {
                add_by(&lines, "hostile", &format!("t{number}"), "x");
            }
        }
        add_by(&lines, "quiet", "q", "after");
        let (kept, dropped) = lines.read();
        let texts: Vec<_> = of(&kept, "q").iter().map(|l| &*l.text).collect();
        assert_eq!(texts, ["before", "after"]);
        let accepted = PRINCIPAL_LINES_PER_SECOND as usize;
        assert_eq!(dropped, (rounds * topics - accepted) as u64);
        assert_eq!(lines.0.lock().rates.topics.len(), topics + 1);
    }

    #[test]
    fn a_topic_without_kept_lines_keeps_its_rate() {
        let lines = Lines::default();
        for _ in 0..LINES_PER_SECOND {
            add_by(&lines, "a", "loud", "x");
        }
        // Each topic has another principal, so the topic with the oldest line is removed.
        for number in 0..LINE_TOPICS_MAX {
            add_by(&lines, &format!("p{number}"), &format!("t{number}"), "x");
        }
        assert!(of(&lines.read().0, "loud").is_empty());
        add_by(&lines, "a", "loud", "one more");
        assert_eq!(lines.read().1, 1, "in the same second");
    }

    #[test]
    fn a_host_has_a_rate_for_all_principals() {
        let lines = Lines::default();
        let principals = HOST_LINES_PER_SECOND + 7;
        for number in 0..principals {
            add_by(&lines, &format!("p{number}"), &format!("t{number}"), "x");
        }
        assert_eq!(lines.read().1, 7);
    }

    #[test]
    fn the_topic_that_wrote_longest_ago_is_evicted() {
        let lines = Lines::default();
        for number in 0..LINE_TOPICS_MAX {
            add(&lines, &format!("t{number}"), "x");
        }
        add(&lines, "t0", "again");
        add(&lines, "one more", "x");
        let (kept, _) = lines.read();
        assert_eq!(of(&kept, "t0").len(), 2);
        assert_eq!(of(&kept, "t1").len(), 0);
        assert_eq!(of(&kept, "one more").len(), 1);
    }
}

//! Workload files of the OpenMessaging Benchmark.
//!
//! A file is a YAML mapping of names to numbers, words and texts, one on each line. Every name that
//! the benchmark knows is accepted. A field that cannot apply to a topic of Weir is named with the
//! reason, and an unknown name is an error.
//!
//! The parser is written by hand, because a file is a flat mapping, and no maintained YAML crate
//! with an accepted licence is among the dependencies. Any other YAML is an error that names the
//! line.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use twox_hash::XxHash3_64;

/// Maximum size of a message, in bytes.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;
/// Minimum size of a message, in bytes: the id of the run and the time when the message is due.
const MESSAGE_BYTES_MIN: u64 = 16;
/// Maximum number of random payloads.
const PAYLOADS_MAX: u64 = 10_000;
/// Maximum size of all random payloads, in bytes.
const POOL_BYTES_MAX: u64 = 1 << 30;
/// Maximum of a number that is not used.
const UNUSED_MAX: f64 = 1e12;
/// Maximum messages a second.
const RATE_MAX: u64 = 100_000_000;
/// Maximum minutes of a phase.
const MINUTES_MAX: f64 = 60.0 * 24.0 * 30.0;
/// Warm-up of a file that does not set it, in minutes, as in the benchmark.
const WARMUP_MINUTES: f64 = 1.0;

/// Characters that do not start a plain YAML value.
const INDICATORS: &[char] = &[
    '&', '*', '!', '|', '>', '%', '@', '`', '{', '}', '[', ']', ',', '#', '"', '\'',
];

/// Why a workload file cannot be run.
#[derive(Debug)]
pub(super) struct FileError {
    /// The number of the line; `None`: the error is not in one line.
    line: Option<u64>,
    /// `None`: the error is not in one field.
    field: Option<String>,
    why: String,
}

impl FileError {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self {
            line: None,
            field: None,
            why: why.into(),
        }
    }

    pub(super) fn of(self, field: &str) -> Self {
        let field = Some(field.to_owned());
        Self { field, ..self }
    }

    fn at(self, line: u64) -> Self {
        let line = Some(line);
        Self { line, ..self }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "{field} ")?;
        }
        f.write_str(&self.why)
    }
}

/// How messages get keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// No keys.
    None,
    /// 10,000 keys in turn.
    RoundRobin,
    /// 10,000 keys at random.
    Random,
}

/// A field that does not apply, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unused {
    pub(super) field: &'static str,
    pub(super) reason: &'static str,
}

/// The content of a file. `None` means that a field without a default is absent.
#[derive(Debug)]
pub(super) struct WorkloadFile {
    pub(super) topics: Option<u64>,
    /// Producers of each topic.
    pub(super) producers: u64,
    /// Subscriptions of each topic.
    pub(super) subscriptions: u64,
    /// Consumers of each subscription.
    pub(super) consumers: u64,
    pub(super) rate: Option<u64>,
    pub(super) duration_minutes: Option<f64>,
    pub(super) warmup_minutes: f64,
    pub(super) backlog_gb: f64,
    pub(super) keys: Keys,
    pub(super) unused: Vec<Unused>,
    message_bytes: Option<u64>,
    payload_path: Option<String>,
    randomized: bool,
    random_ratio: f64,
    random_pool: u64,
}

impl Default for WorkloadFile {
    fn default() -> Self {
        Self {
            topics: None,
            producers: 1,
            subscriptions: 1,
            consumers: 1,
            rate: None,
            duration_minutes: None,
            warmup_minutes: WARMUP_MINUTES,
            backlog_gb: 0.0,
            keys: Keys::None,
            unused: Vec::new(),
            message_bytes: None,
            payload_path: None,
            randomized: false,
            random_ratio: 0.0,
            random_pool: 1,
        }
    }
}

impl WorkloadFile {
    /// Parses the text of a file. The error names the line.
    pub(super) fn parse(text: &str) -> Result<Self, FileError> {
        let mut file = Self::default();
        let mut names = BTreeSet::new();
        for (number, line) in (1..).zip(text.lines()) {
            // The start of the first document.
            if line.trim_end() == "---" && names.is_empty() {
                continue;
            }
            let pair = pair(line).map_err(|error| error.at(number))?;
            let Some((name, value)) = pair else {
                continue;
            };
            let set = if names.insert(name) {
                file.set(name, value)
            } else {
                Err(FileError::new("is set twice"))
            };
            set.map_err(|error| error.of(name).at(number))?;
        }
        Ok(file)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), FileError> {
        match name {
            "name" => {}
            "topics" => self.topics = Some(count(value)?),
            "producersPerTopic" => self.producers = count(value)?,
            "subscriptionsPerTopic" => self.subscriptions = parse_within(value, 0, u64::MAX)?,
            "consumerPerSubscription" => self.consumers = count(value)?,
            "messageSize" => {
                let size = parse_within(value, MESSAGE_BYTES_MIN, MESSAGE_BYTES_MAX)?;
                self.message_bytes = Some(size);
            }
            "payloadFile" => self.payload_path = Some(value.to_owned()),
            "useRandomizedPayloads" => {
                let flag = value.to_lowercase();
                let flag = flag.parse();
                self.randomized = flag.map_err(|_| FileError::new("must be true or false"))?;
            }
            "randomBytesRatio" => self.random_ratio = decimal(value, 1.0)?,
            "randomizedPayloadPoolSize" => self.random_pool = parse_within(value, 1, PAYLOADS_MAX)?,
            "keyDistributor" => self.keys = keys(value)?,
            "producerRate" => self.rate = Some(parse_within(value, 0, RATE_MAX)?),
            "consumerBacklogSizeGB" => self.backlog_gb = decimal(value, 1e6)?,
            "testDurationMinutes" => self.duration_minutes = Some(decimal(value, MINUTES_MAX)?),
            "warmupDurationMinutes" => self.warmup_minutes = decimal(value, MINUTES_MAX)?,
            _ => self.set_unused(name, value)?,
        }
        Ok(())
    }

    /// Notes a field that does not apply, unless its value has no effect in the benchmark either.
    fn set_unused(&mut self, name: &str, value: &str) -> Result<(), FileError> {
        let (field, reason, neutral) = match name {
            "partitionsPerTopic" => (
                "partitionsPerTopic",
                "a topic is one ordered log, so it counts as one partition",
                1.0,
            ),
            "backlogDrainRatio" => ("backlogDrainRatio", "a backlog is drained completely", 1.0),
            "messageRateReceivedForSubscription" => (
                "messageRateReceivedForSubscription",
                "every subscription receives all messages",
                100.0,
            ),
            "producerIncrementRate" => ("producerIncrementRate", "the rate does not change", 0.0),
            "producerPauseBeforeDrain" => {
                ("producerPauseBeforeDrain", "producers do not pause", 0.0)
            }
            "producerPauseDuringDrain" => {
                ("producerPauseDuringDrain", "producers do not pause", 0.0)
            }
            // They change nothing unless another field asks for a search or a rising rate.
            "producerStartRate" | "acceptableBacklog" | "producerIncrementSeconds" => {
                return decimal(value, UNUSED_MAX).map(drop);
            }
            _ => return Err(FileError::new("is not a field of a workload file")),
        };
        let number = decimal(value, UNUSED_MAX)?;
        if (number - neutral).abs() > f64::EPSILON {
            self.unused.push(Unused { field, reason });
        }
        Ok(())
    }

    /// Size of a message in bytes.
    pub(super) fn message_bytes(&self) -> Result<u64, FileError> {
        present(self.message_bytes, "messageSize")
    }

    /// The payloads: of the payload file, random ones, or one that is fixed. `beside` is the folder
    /// of the workload file; a payload file may be named relative to it.
    pub(super) fn payloads(&self, beside: &Path) -> Result<Vec<Vec<u8>>, FileError> {
        let bytes = self.message_bytes()?;
        let too_large = |_| FileError::new("is too large").of("messageSize");
        let size = usize::try_from(bytes).map_err(too_large)?;
        if self.randomized {
            let pool = self.random_pool;
            if pool.saturating_mul(bytes) > POOL_BYTES_MAX {
                let why = "needs more than 1 GiB";
                return Err(FileError::new(why).of("randomizedPayloadPoolSize"));
            }
            return Ok((0..pool).map(|number| self.random(size, number)).collect());
        }
        let Some(name) = &self.payload_path else {
            return Ok(vec![vec![b'x'; size]]);
        };
        let wrong =
            |why: &dyn fmt::Display| FileError::new(format!("{name}: {why}")).of("payloadFile");
        let opened = File::open(name).or_else(|_| File::open(beside.join(name)));
        let mut opened = opened.map_err(|error| wrong(&error))?;
        let found = opened.metadata().map_err(|error| wrong(&error))?.len();
        if found != bytes {
            let why = format!("the file has {found} bytes, and messageSize is {bytes}");
            return Err(wrong(&why));
        }
        let mut payload = vec![0; size];
        let read = opened.read_exact(&mut payload);
        read.map_err(|error| wrong(&error))?;
        Ok(vec![payload])
    }

    /// Random payload `number`: random bytes, then zeros.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share, from 0 to 1, of a size of at most 64 MiB"
    )]
    fn random(&self, size: usize, number: u64) -> Vec<u8> {
        let random = (size as f64 * self.random_ratio) as usize;
        let words = (0_u64..).map(|word| {
            let place = [number.to_le_bytes(), word.to_le_bytes()].concat();
            XxHash3_64::oneshot(&place).to_le_bytes()
        });
        let mut payload: Vec<u8> = words.flatten().take(random).collect();
        payload.resize(size, 0);
        payload
    }
}

/// The value of a field that must be set.
pub(super) fn present<T>(value: Option<T>, field: &str) -> Result<T, FileError> {
    value.ok_or_else(|| FileError::new("is missing").of(field))
}

/// The name and the value of a line; `None` for a line without content.
fn pair(line: &str) -> Result<Option<(&str, &str)>, FileError> {
    let content = line.split(" #").next().unwrap_or_default().trim_end();
    if content.is_empty() || content.starts_with('#') {
        return Ok(None);
    }
    let is_nested = content.starts_with([' ', '-', '{']) || content.contains('\t');
    let pair = content.split_once(": ").filter(|_| !is_nested);
    let pair = pair.and_then(|(name, value)| Some((name.trim_end(), scalar(value.trim())?)));
    let why = "a workload file has lines of the form NAME: VALUE, with a number, a word or a text";
    pair.ok_or_else(|| FileError::new(why)).map(Some)
}

/// The content of a YAML value that is one plain text, or one in quotes without escapes.
fn scalar(value: &str) -> Option<&str> {
    for quote in ['"', '\''] {
        if let Some(quoted) = value.strip_prefix(quote) {
            let text = quoted.strip_suffix(quote);
            return text.filter(|text| !text.contains([quote, '\\']));
        }
    }
    let is_mapping = value.contains(": ") || value.ends_with(':');
    let is_nested = value.starts_with(INDICATORS) || value.starts_with("- ");
    (!value.is_empty() && !is_mapping && !is_nested).then_some(value)
}

fn parse_within(value: &str, least: u64, most: u64) -> Result<u64, FileError> {
    let number = value.parse().ok();
    let number = number.filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| {
        FileError::new(match most {
            u64::MAX => format!("must be a whole number of at least {least}"),
            most => format!("must be a whole number from {least} to {most}"),
        })
    })
}

fn count(value: &str) -> Result<u64, FileError> {
    parse_within(value, 1, u64::MAX)
}

fn decimal(value: &str, most: f64) -> Result<f64, FileError> {
    let number = value.parse().ok();
    let number = number.filter(|number| (0.0..=most).contains(number));
    number.ok_or_else(|| FileError::new(format!("must be a number from 0 to {most}")))
}

fn keys(value: &str) -> Result<Keys, FileError> {
    match value {
        "NO_KEY" => Ok(Keys::None),
        "KEY_ROUND_ROBIN" => Ok(Keys::RoundRobin),
        "RANDOM_NANO" => Ok(Keys::Random),
        _ => {
            let why = "must be NO_KEY, KEY_ROUND_ROBIN or RANDOM_NANO";
            Err(FileError::new(why))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::*;

    const TEXT: &str = "\
# As the files of the benchmark.
name: 2 topics / 1 partition / 1Kb

topics: 2
partitionsPerTopic: 16
keyDistributor: \"KEY_ROUND_ROBIN\"
messageSize: 1024   # bytes
useRandomizedPayloads: true
randomBytesRatio: 0.5
randomizedPayloadPoolSize: 3
subscriptionsPerTopic: 1
producersPerTopic: 4
consumerPerSubscription: 1
producerRate: 50000
producerStartRate: 10000
consumerBacklogSizeGB: 0
testDurationMinutes: 15
";

    #[test]
    fn all_fields_of_a_file_of_the_benchmark_are_read() {
        let file = WorkloadFile::parse(TEXT).unwrap();
        assert_eq!((file.topics, file.producers), (Some(2), 4));
        assert_eq!((file.subscriptions, file.consumers), (1, 1));
        assert_eq!((file.rate, file.keys), (Some(50_000), Keys::RoundRobin));
        assert_eq!(file.duration_minutes, Some(15.0));
        let unused: Vec<&str> = file.unused.iter().map(|unused| unused.field).collect();
        assert_eq!(unused, ["partitionsPerTopic"]);
        let payloads = file.payloads(Path::new(".")).unwrap();
        assert_eq!(payloads.len(), 3);
        for payload in &payloads {
            assert_eq!(payload.len(), 1024);
            assert!(payload[512..].iter().all(|byte| *byte == 0));
        }
        assert_ne!(payloads[0], payloads[1]);
    }

    #[test]
    fn an_error_names_the_line_and_the_field() {
        for (text, expected) in [
            ("topics: 0", "line 1: topics must be a whole number"),
            (
                "\ntopic: 1",
                "line 2: topic is not a field of a workload file",
            ),
            ("topics: 1\ntopics: 2", "line 2: topics is set twice"),
            (
                "messageSize: 15",
                "line 1: messageSize must be a whole number from 16",
            ),
            (
                "keyDistributor: ALL",
                "line 1: keyDistributor must be NO_KEY",
            ),
            (
                "testDurationMinutes: -1",
                "line 1: testDurationMinutes must be a number",
            ),
        ] {
            let error = WorkloadFile::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn yaml_that_is_not_a_flat_mapping_is_an_error_with_its_line() {
        for line in [
            "topics:",
            "topics:2",
            "  topics: 2",
            "- topics: 2",
            "\ttopics: 2",
            "topics:\t2",
            "topics: 2\t# two",
            "name: &anchor text",
            "name: *anchor",
            "name: !tag text",
            "name: |",
            "name: >-",
            "name: {a: 1}",
            "name: [a, b]",
            "name: - a",
            "name: a: b",
            "name: a:",
            "name: \"first line",
            "name: \"a\\nb\"",
            "name: 'it''s'",
            "name: 'a' b",
            "{topics: 2}",
            "? topics",
            "%YAML 1.2",
            "---",
            "...",
        ] {
            let text = format!("messageSize: 100\n\n{line}\n");
            let error = WorkloadFile::parse(&text).unwrap_err().to_string();
            let expected = "line 3: a workload file has lines of the form NAME: VALUE";
            assert!(error.starts_with(expected), "{line}: {error}");
        }
        let text = "# a\tcomment\n---\nname : 'a: b'  # [c]\n  # d\npayloadFile: dir:a-b#c\n";
        let file = WorkloadFile::parse(text).unwrap();
        assert_eq!(file.payload_path.as_deref(), Some("dir:a-b#c"));
    }

    #[test]
    fn a_payload_file_must_have_the_size_of_a_message() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("payload"), [7; 100]).unwrap();
        let text = "messageSize: 100\npayloadFile: payload\n";
        let payloads = WorkloadFile::parse(text).unwrap().payloads(dir.path());
        assert_eq!(payloads.unwrap(), [vec![7; 100]]);
        let other = text.replace("100", "99");
        let error = |text: &str, beside: &Path| {
            let payloads = WorkloadFile::parse(text).unwrap().payloads(beside);
            payloads.unwrap_err().to_string()
        };
        assert!(error(&other, dir.path()).contains("has 100 bytes"));
        assert!(error(text, Path::new("/nowhere")).contains("payloadFile payload"));
        // The size is compared before the file is read: this one does not fit into memory.
        let large = File::create(dir.path().join("payload")).unwrap();
        large.set_len(1 << 42).unwrap();
        assert!(error(text, dir.path()).contains("has 4398046511104 bytes"));
    }
}

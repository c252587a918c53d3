//! Workload files of the OpenMessaging Benchmark.
//!
//! A file is a YAML mapping of names to numbers, words and texts, one on each line. Every name that
//! the benchmark knows is accepted. A field that cannot apply to a topic of Weir is named with the
//! reason, and an unknown name is an error.

use std::collections::BTreeSet;
use std::path::Path;

use twox_hash::XxHash3_64;

/// Maximum size of a message, in bytes.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;
/// Minimum size of a message, in bytes: the time when it was due.
const MESSAGE_BYTES_MIN: u64 = 8;
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
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut file = Self::default();
        let mut names = BTreeSet::new();
        for (number, line) in (1..).zip(text.lines()) {
            let Some((name, value)) = pair(line).map_err(|why| format!("line {number}: {why}"))?
            else {
                continue;
            };
            if !names.insert(name) {
                return Err(format!("line {number}: {name} is set twice"));
            }
            file.set(name, value)
                .map_err(|why| format!("line {number}: {name} {why}"))?;
        }
        Ok(file)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "name" => {}
            "topics" => self.topics = Some(count(value)?),
            "producersPerTopic" => self.producers = count(value)?,
            "subscriptionsPerTopic" => self.subscriptions = within(value, 0, u64::MAX)?,
            "consumerPerSubscription" => self.consumers = count(value)?,
            "messageSize" => {
                let size = within(value, MESSAGE_BYTES_MIN, MESSAGE_BYTES_MAX)?;
                self.message_bytes = Some(size);
            }
            "payloadFile" => self.payload_path = Some(value.to_owned()),
            "useRandomizedPayloads" => {
                let flag = value.to_lowercase();
                self.randomized = flag.parse().map_err(|_| "must be true or false")?;
            }
            "randomBytesRatio" => self.random_ratio = decimal(value, 1.0)?,
            "randomizedPayloadPoolSize" => self.random_pool = within(value, 1, PAYLOADS_MAX)?,
            "keyDistributor" => self.keys = keys(value)?,
            "producerRate" => self.rate = Some(within(value, 0, RATE_MAX)?),
            "consumerBacklogSizeGB" => self.backlog_gb = decimal(value, 1e6)?,
            "testDurationMinutes" => self.duration_minutes = Some(decimal(value, MINUTES_MAX)?),
            "warmupDurationMinutes" => self.warmup_minutes = decimal(value, MINUTES_MAX)?,
            _ => self.set_unused(name, value)?,
        }
        Ok(())
    }

    /// Notes a field that does not apply, unless its value asks for nothing.
    fn set_unused(&mut self, name: &str, value: &str) -> Result<(), String> {
        let (field, reason, nothing) = match name {
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
            _ => return Err("is not a field of a workload file".to_owned()),
        };
        let number = decimal(value, UNUSED_MAX)?;
        if (number - nothing).abs() > f64::EPSILON {
            self.unused.push(Unused { field, reason });
        }
        Ok(())
    }

    /// Size of a message in bytes.
    pub(super) fn message_bytes(&self) -> Result<u64, String> {
        self.message_bytes
            .ok_or_else(|| "messageSize is missing".to_owned())
    }

    /// The payloads: of the payload file, random ones, or one that is fixed. `beside` is the folder
    /// of the workload file; a payload file may be named relative to it.
    pub(super) fn payloads(&self, beside: &Path) -> Result<Vec<Vec<u8>>, String> {
        let bytes = self.message_bytes()?;
        let size = usize::try_from(bytes).map_err(|_| "messageSize is too large".to_owned())?;
        if self.randomized {
            let pool = self.random_pool;
            if pool.saturating_mul(bytes) > POOL_BYTES_MAX {
                return Err("the random payloads have more than 1 GiB".to_owned());
            }
            return Ok((0..pool).map(|number| self.random(size, number)).collect());
        }
        let Some(name) = &self.payload_path else {
            return Ok(vec![vec![b'x'; size]]);
        };
        let given = std::fs::read(name).or_else(|_| std::fs::read(beside.join(name)));
        let payload = given.map_err(|error| format!("payloadFile {name}: {error}"))?;
        if payload.len() != size {
            let found = payload.len();
            return Err(format!(
                "payloadFile {name} has {found} bytes, and messageSize is {size}"
            ));
        }
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

/// The name and the value of a line; `None` for a line without content.
fn pair(line: &str) -> Result<Option<(&str, &str)>, String> {
    let content = line.split(" #").next().unwrap_or_default().trim_end();
    if content.is_empty() || content.starts_with('#') || content == "---" {
        return Ok(None);
    }
    let pair = content.split_once(':');
    let is_nested = content.starts_with([' ', '\t', '-']);
    let pair = pair.filter(|(_, value)| !is_nested && !value.trim().is_empty());
    let (name, value) = pair.ok_or("a workload file has lines of the form NAME: VALUE")?;
    let value = value.trim();
    let unquoted = ['"', '\''].into_iter().find_map(|quote| {
        let value = value.strip_prefix(quote)?;
        value.strip_suffix(quote)
    });
    Ok(Some((name.trim_end(), unquoted.unwrap_or(value))))
}

fn within(value: &str, least: u64, most: u64) -> Result<u64, String> {
    let number = value.parse().ok();
    let number = number.filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| match most {
        u64::MAX => format!("must be a whole number of at least {least}"),
        most => format!("must be a whole number from {least} to {most}"),
    })
}

fn count(value: &str) -> Result<u64, String> {
    within(value, 1, u64::MAX)
}

fn decimal(value: &str, most: f64) -> Result<f64, String> {
    let number = value.parse().ok();
    let number = number.filter(|number| (0.0..=most).contains(number));
    number.ok_or_else(|| format!("must be a number from 0 to {most}"))
}

fn keys(value: &str) -> Result<Keys, String> {
    match value {
        "NO_KEY" => Ok(Keys::None),
        "KEY_ROUND_ROBIN" => Ok(Keys::RoundRobin),
        "RANDOM_NANO" => Ok(Keys::Random),
        _ => Err("must be NO_KEY, KEY_ROUND_ROBIN or RANDOM_NANO".to_owned()),
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
    fn a_file_of_the_benchmark_is_read_whole() {
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
    fn what_cannot_be_read_is_named_with_its_line() {
        for (text, expected) in [
            ("topics: 0", "line 1: topics must be a whole number"),
            (
                "\ntopic: 1",
                "line 2: topic is not a field of a workload file",
            ),
            ("topics: 1\ntopics: 2", "line 2: topics is set twice"),
            (
                "messageSize: 7",
                "line 1: messageSize must be a whole number from 8",
            ),
            ("topics:\n  - a", "line 1: a workload file has lines"),
            ("- topics: 1", "line 1: a workload file has lines"),
            (
                "keyDistributor: ALL",
                "line 1: keyDistributor must be NO_KEY",
            ),
            (
                "testDurationMinutes: -1",
                "line 1: testDurationMinutes must be a number",
            ),
        ] {
            let error = WorkloadFile::parse(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_payload_file_must_have_the_size_of_a_message() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("payload"), [7; 100]).unwrap();
        let text = "messageSize: 100\npayloadFile: payload\n";
        let payloads = WorkloadFile::parse(text).unwrap().payloads(dir.path());
        assert_eq!(payloads.unwrap(), [vec![7; 100]]);
        let other = text.replace("100", "99");
        let error = WorkloadFile::parse(&other).unwrap().payloads(dir.path());
        assert!(error.unwrap_err().contains("has 100 bytes"));
        let missing = WorkloadFile::parse(text)
            .unwrap()
            .payloads(Path::new("/nowhere"));
        assert!(missing.unwrap_err().contains("payloadFile payload"));
    }
}

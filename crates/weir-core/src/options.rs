//! Options of a topic, and their encoding: a list of `tag, value` pairs in ascending order of tags.
//! The value of an odd tag is a variable-length number, that of an even tag a byte string
//! (docs/formats/batch.md).

use crate::code::StateMode;
use crate::codec::{Reader, Short, put_bytes, put_short_bytes, put_varint};
use crate::digest::hash;
use crate::group::GroupName;
use crate::limits::{
    EMIT_BYTES_DEFAULT, EMIT_BYTES_MAX, EMITS_DEFAULT, EMITS_MAX, FUEL_DEFAULT, FUEL_MAX,
    HOLD_GROUPS_MAX, KEY_BYTES_MAX, MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MAX, STATE_BYTES_DEFAULT,
    STATE_BYTES_MAX, STATE_ENTRIES_DEFAULT, STATE_ENTRIES_MAX, VALUE_BYTES_MAX,
};

/// Which old records a compaction may remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compaction {
    /// No records.
    #[default]
    Off,
    /// All records of a key except the last one.
    Latest,
}

/// Options of a topic. `None` means not set: the store's default applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicOptions {
    /// Which records compaction may remove.
    pub compaction: Compaction,
    /// Milliseconds of log time for which compaction keeps the DELETE record of a key. `None`: for
    /// ever.
    pub tombstone_ttl_ms: Option<u64>,
    /// Milliseconds of log time before a record may be compacted. `None`: 0.
    pub compaction_lag_ms: Option<u64>,
    /// Maximum bytes of a key. A PUT of a longer key is ERROR/LIMIT.
    pub key_bytes_max: Option<u64>,
    /// Maximum bytes of a value. A longer value is ERROR/LIMIT.
    pub value_bytes_max: Option<u64>,
    /// Maximum number of keys with a value. One more is INVALID/QUOTA.
    pub keys_max: Option<u64>,
    /// Limits of the topic's program. Ignored in a plain topic.
    pub program: ProgramOptions,
    /// Which of the oldest records may be removed.
    pub retention: Retention,
}

/// Which of the oldest records a node may remove from a topic, in whole segments.
///
/// A record may be removed if it exceeds any of the limits, and all groups in `hold_for_groups`
/// have passed it. Without a limit, none may be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// Maximum age of a record in milliseconds of log time.
    pub age_ms: Option<u64>,
    /// Maximum bytes of all records, as stored.
    pub bytes: Option<u64>,
    /// Maximum number of records. With 0 and `hold_for_groups`, all acknowledged records may be
    /// removed.
    pub records: Option<u64>,
    /// Neither retention nor compaction removes a record before each of these groups has passed it.
    /// A group that does not exist has passed nothing. Ascending, without duplicates, at most
    /// [`HOLD_GROUPS_MAX`].
    pub hold_for_groups: Vec<GroupName>,
}

impl Retention {
    /// Whether any limit is set.
    #[must_use]
    pub const fn is_limited(&self) -> bool {
        self.age_ms.is_some() || self.bytes.is_some() || self.records.is_some()
    }
}

/// Limits of a topic's program. `None` means the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramOptions {
    /// The kind of its state. Fixed when the topic is created.
    pub state: StateMode,
    /// Maximum fuel of one call.
    pub fuel_max: Option<u64>,
    /// Maximum bytes of its memory.
    pub memory_bytes_max: Option<u64>,
    /// Maximum number of records of one intention.
    pub emits_max: Option<u64>,
    /// Maximum bytes of the keys and values of the records of one intention, in addition to one
    /// copy of the input.
    pub emit_bytes_max: Option<u64>,
    /// Maximum number of entries of its state.
    pub state_entries_max: Option<u64>,
    /// Maximum bytes of its state.
    pub state_bytes_max: Option<u64>,
}

/// The effective limits of a program, with defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_field_names, reason = "named like the options")]
pub(crate) struct ProgramLimits {
    pub(crate) fuel_max: u64,
    pub(crate) memory_bytes_max: u64,
    pub(crate) emits_max: u64,
    pub(crate) emit_bytes_max: u64,
    pub(crate) state_entries_max: u64,
    pub(crate) state_bytes_max: u64,
    pub(crate) key_bytes_max: u64,
    pub(crate) value_bytes_max: u64,
}

const COMPACTION: u64 = 1;
const TOMBSTONE_TTL_MS: u64 = 3;
const COMPACTION_LAG_MS: u64 = 5;
const KEY_BYTES: u64 = 7;
const VALUE_BYTES: u64 = 9;
const KEYS: u64 = 11;
const RETENTION_AGE_MS: u64 = 21;
const RETENTION_BYTES: u64 = 23;
const RETENTION_RECORDS: u64 = 25;
const HOLD_FOR_GROUPS: u64 = 26;
const STATE: u64 = 51;
const FUEL: u64 = 53;
const MEMORY_BYTES: u64 = 55;
const EMITS: u64 = 57;
const EMIT_BYTES: u64 = 59;
const STATE_ENTRIES: u64 = 61;
const STATE_BYTES: u64 = 63;

impl TopicOptions {
    /// Checks the values against the limits of the model. The error is the name of the field.
    pub fn check(&self) -> Result<(), &'static str> {
        let over = |value: Option<u64>, max: usize| value.is_some_and(|v| v > max as u64 || v == 0);
        if over(self.key_bytes_max, KEY_BYTES_MAX) {
            return Err("key_bytes_max");
        }
        if over(self.value_bytes_max, VALUE_BYTES_MAX) {
            return Err("value_bytes_max");
        }
        let hold = &self.retention.hold_for_groups;
        if hold.len() > HOLD_GROUPS_MAX || !hold.is_sorted_by(|a, b| a < b) {
            return Err("hold_for_groups");
        }
        let program = &self.program;
        let over = |value: Option<u64>, max: u64| value.is_some_and(|v| v > max || v == 0);
        for (value, max, name) in [
            (program.fuel_max, FUEL_MAX, "fuel_max"),
            (
                program.memory_bytes_max,
                MEMORY_BYTES_MAX,
                "memory_bytes_max",
            ),
            (program.emits_max, EMITS_MAX, "emits_max"),
            (program.emit_bytes_max, EMIT_BYTES_MAX, "emit_bytes_max"),
            (
                program.state_entries_max,
                STATE_ENTRIES_MAX,
                "state_entries_max",
            ),
            (program.state_bytes_max, STATE_BYTES_MAX, "state_bytes_max"),
        ] {
            if over(value, max) {
                return Err(name);
            }
        }
        Ok(())
    }

    pub(crate) fn program_limits(&self) -> ProgramLimits {
        let program = &self.program;
        ProgramLimits {
            fuel_max: program.fuel_max.unwrap_or(FUEL_DEFAULT),
            memory_bytes_max: program.memory_bytes_max.unwrap_or(MEMORY_BYTES_DEFAULT),
            emits_max: program.emits_max.unwrap_or(EMITS_DEFAULT),
            emit_bytes_max: program.emit_bytes_max.unwrap_or(EMIT_BYTES_DEFAULT),
            state_entries_max: program.state_entries_max.unwrap_or(STATE_ENTRIES_DEFAULT),
            state_bytes_max: program.state_bytes_max.unwrap_or(STATE_BYTES_DEFAULT),
            key_bytes_max: self.key_bytes_max.unwrap_or(KEY_BYTES_MAX as u64),
            value_bytes_max: self.value_bytes_max.unwrap_or(VALUE_BYTES_MAX as u64),
        }
    }

    /// Appends the encoding. Options that are not set take no bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut field = |tag: u64, value: Option<u64>| {
            if let Some(value) = value {
                put_varint(out, tag);
                put_varint(out, value);
            }
        };
        field(
            COMPACTION,
            (self.compaction == Compaction::Latest).then_some(1),
        );
        field(TOMBSTONE_TTL_MS, self.tombstone_ttl_ms);
        field(COMPACTION_LAG_MS, self.compaction_lag_ms);
        field(KEY_BYTES, self.key_bytes_max);
        field(VALUE_BYTES, self.value_bytes_max);
        field(KEYS, self.keys_max);
        let retention = &self.retention;
        field(RETENTION_AGE_MS, retention.age_ms);
        field(RETENTION_BYTES, retention.bytes);
        field(RETENTION_RECORDS, retention.records);
        if !retention.hold_for_groups.is_empty() {
            let mut names = Vec::new();
            for name in &retention.hold_for_groups {
                put_short_bytes(&mut names, name.as_str().as_bytes());
            }
            put_varint(out, HOLD_FOR_GROUPS);
            put_bytes(out, &names);
        }
        let mut field = |tag: u64, value: Option<u64>| {
            if let Some(value) = value {
                put_varint(out, tag);
                put_varint(out, value);
            }
        };
        let program = &self.program;
        let state = (program.state != StateMode::default()).then_some(program.state as u64);
        field(STATE, state);
        field(FUEL, program.fuel_max);
        field(MEMORY_BYTES, program.memory_bytes_max);
        field(EMITS, program.emits_max);
        field(EMIT_BYTES, program.emit_bytes_max);
        field(STATE_ENTRIES, program.state_entries_max);
        field(STATE_BYTES, program.state_bytes_max);
    }

    /// A hash of the options: equal options have equal fingerprints.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        hash(0, &bytes)
    }

    /// Decodes the options of an item. They were validated when the batch was read.
    ///
    /// # Panics
    /// If the options are not valid.
    pub(crate) fn of_item(bytes: &[u8]) -> Self {
        let Some(options) = Self::decode(bytes) else {
            unreachable!("a batch with options that cannot be read is refused")
        };
        options
    }

    /// Decodes the output of [`encode`](Self::encode). `None` if the bytes are anything else, for
    /// example if a tag is unknown.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Self::read(bytes).ok()
    }

    fn read(bytes: &[u8]) -> Result<Self, Short> {
        let mut options = Self::default();
        let mut reader = Reader::new(bytes);
        let mut last = 0;
        while !reader.is_empty() {
            let tag = reader.varint()?;
            if tag <= last {
                return Err(Short);
            }
            last = tag;
            if tag == HOLD_FOR_GROUPS {
                options.retention.hold_for_groups = read_names(reader.bytes()?)?;
                continue;
            }
            let value = reader.varint()?;
            match tag {
                COMPACTION if value == 1 => options.compaction = Compaction::Latest,
                TOMBSTONE_TTL_MS => options.tombstone_ttl_ms = Some(value),
                COMPACTION_LAG_MS => options.compaction_lag_ms = Some(value),
                KEY_BYTES => options.key_bytes_max = Some(value),
                VALUE_BYTES => options.value_bytes_max = Some(value),
                KEYS => options.keys_max = Some(value),
                RETENTION_AGE_MS => options.retention.age_ms = Some(value),
                RETENTION_BYTES => options.retention.bytes = Some(value),
                RETENTION_RECORDS => options.retention.records = Some(value),
                STATE => {
                    let mode = StateMode::from_number(value).ok_or(Short)?;
                    if mode == StateMode::default() {
                        return Err(Short); // each state has one encoding
                    }
                    options.program.state = mode;
                }
                FUEL => options.program.fuel_max = Some(value),
                MEMORY_BYTES => options.program.memory_bytes_max = Some(value),
                EMITS => options.program.emits_max = Some(value),
                EMIT_BYTES => options.program.emit_bytes_max = Some(value),
                STATE_ENTRIES => options.program.state_entries_max = Some(value),
                STATE_BYTES => options.program.state_bytes_max = Some(value),
                _ => return Err(Short),
            }
        }
        options.check().map_err(|_| Short)?;
        Ok(options)
    }
}

/// Reads one or more names of groups. [`TopicOptions::check`] checks their order.
fn read_names(bytes: &[u8]) -> Result<Vec<GroupName>, Short> {
    let mut names = Vec::new();
    let mut reader = Reader::new(bytes);
    while names.is_empty() || !reader.is_empty() {
        let name = std::str::from_utf8(reader.short_bytes()?).map_err(|_| Short)?;
        names.push(GroupName::new(name).ok_or(Short)?);
        if names.len() > HOLD_GROUPS_MAX {
            return Err(Short);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_round_trip_and_unknown_tags_are_rejected() {
        let options = TopicOptions {
            compaction: Compaction::Latest,
            tombstone_ttl_ms: Some(0),
            keys_max: Some(1_000_000),
            value_bytes_max: Some(300),
            retention: Retention {
                age_ms: Some(0),
                records: Some(5),
                hold_for_groups: ["a", "b"]
                    .iter()
                    .filter_map(|n| GroupName::new(n))
                    .collect(),
                ..Retention::default()
            },
            ..TopicOptions::default()
        };
        let mut bytes = Vec::new();
        options.encode(&mut bytes);
        assert_eq!(TopicOptions::decode(&bytes), Some(options));
        assert_eq!(TopicOptions::decode(&[]), Some(TopicOptions::default()));
        assert_eq!(TopicOptions::decode(&[99, 1]), None, "unknown tag");
        assert_eq!(TopicOptions::decode(&[11, 1, 11, 1]), None, "repeated tag");
        assert_eq!(TopicOptions::decode(&[1]), None, "value missing");
        assert_eq!(TopicOptions::decode(&[7, 0]), None, "a limit of no bytes");
        let hold = |names: &[u8]| {
            let mut bytes = vec![26, u8::try_from(names.len()).unwrap_or(u8::MAX)];
            bytes.extend_from_slice(names);
            TopicOptions::decode(&bytes).is_some()
        };
        assert!(hold(&[1, b'a', 1, b'b']));
        assert!(!hold(&[]), "no name");
        assert!(!hold(&[1, b'b', 1, b'a']), "not in order");
        assert!(!hold(&[1, b'a', 1, b'a']), "one twice");
        assert!(!hold(&[1, b'/']), "no name");
        assert!(!hold(&[2, b'a']), "ends early");
        assert_eq!(TopicOptions::decode(&[51, 2]), None, "kv is the default");
        assert_eq!(TopicOptions::decode(&[51, 4]), None, "no such mode");
    }
}

//! What can be set for a topic, and its bytes: a list of `tag, value` pairs,
//! tags ascending; the value of an odd tag is a variable number, that of an
//! even one a byte string (docs/formats/batch.md).

use crate::codec::{Reader, Short, put_varint};
use crate::limits::{
    EMIT_BYTES_DEFAULT, EMIT_BYTES_MAX, EMITS_DEFAULT, EMITS_MAX, FUEL_DEFAULT, FUEL_MAX,
    KEY_BYTES_MAX, MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MAX, STATE_BYTES_DEFAULT, STATE_BYTES_MAX,
    STATE_ENTRIES_DEFAULT, STATE_ENTRIES_MAX, VALUE_BYTES_MAX,
};
use crate::program::StateMode;

/// Which old records a compaction may remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compaction {
    /// None.
    #[default]
    Off,
    /// All but the last one of each key.
    Latest,
}

/// Options of a topic. `None` means "not set": the store's default holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicOptions {
    /// What compaction may remove.
    pub compaction: Compaction,
    /// Milliseconds of log time for which compaction keeps the DELETE record
    /// of a key; none: for ever.
    pub tombstone_ttl_ms: Option<u64>,
    /// Milliseconds of log time during which a record is too young to be
    /// compacted; none: 0.
    pub compaction_lag_ms: Option<u64>,
    /// Bytes of a key; a PUT of a longer one is ERROR/LIMIT.
    pub key_bytes_max: Option<u64>,
    /// Bytes of a value; a longer one is ERROR/LIMIT.
    pub value_bytes_max: Option<u64>,
    /// Keys with a value; one more is INVALID/QUOTA.
    pub keys_max: Option<u64>,
    /// What the topic's program may use. Without meaning for a plain topic.
    pub program: ProgramOptions,
}

/// What a topic's program may use. `None` means the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramOptions {
    /// What it keeps between calls. Fixed when the topic is created.
    pub state: StateMode,
    /// Fuel of one call.
    pub fuel_max: Option<u64>,
    /// Bytes of its memory.
    pub memory_bytes_max: Option<u64>,
    /// Records of one intention.
    pub emits_max: Option<u64>,
    /// Bytes of keys and values of these records, beyond one copy of the
    /// input.
    pub emit_bytes_max: Option<u64>,
    /// Entries of its state.
    pub state_entries_max: Option<u64>,
    /// Bytes of its state.
    pub state_bytes_max: Option<u64>,
}

/// The numbers that hold for a program, defaults filled in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_field_names, reason = "named as the options are")]
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
const STATE: u64 = 51;
const FUEL: u64 = 53;
const MEMORY_BYTES: u64 = 55;
const EMITS: u64 = 57;
const EMIT_BYTES: u64 = 59;
const STATE_ENTRIES: u64 = 61;
const STATE_BYTES: u64 = 63;

impl TopicOptions {
    /// Checks the values against the limits of the model; the error names the
    /// field.
    pub fn check(&self) -> Result<(), &'static str> {
        let over = |value: Option<u64>, max: usize| value.is_some_and(|v| v > max as u64 || v == 0);
        if over(self.key_bytes_max, KEY_BYTES_MAX) {
            return Err("key_bytes_max");
        }
        if over(self.value_bytes_max, VALUE_BYTES_MAX) {
            return Err("value_bytes_max");
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

    /// Appends the bytes. Options that are not set take none.
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

    /// Reads what [`encode`](Self::encode) wrote; `None` for anything else,
    /// an unknown tag included.
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
            let value = reader.varint()?;
            if tag <= last {
                return Err(Short);
            }
            last = tag;
            match tag {
                COMPACTION if value == 1 => options.compaction = Compaction::Latest,
                TOMBSTONE_TTL_MS => options.tombstone_ttl_ms = Some(value),
                COMPACTION_LAG_MS => options.compaction_lag_ms = Some(value),
                KEY_BYTES => options.key_bytes_max = Some(value),
                VALUE_BYTES => options.value_bytes_max = Some(value),
                KEYS => options.keys_max = Some(value),
                STATE => {
                    let mode = StateMode::from_number(value).ok_or(Short)?;
                    if mode == StateMode::default() {
                        return Err(Short); // one form for each meaning
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_back_and_unknown_ones_are_refused() {
        let options = TopicOptions {
            compaction: Compaction::Latest,
            tombstone_ttl_ms: Some(0),
            keys_max: Some(1_000_000),
            value_bytes_max: Some(300),
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
        assert_eq!(TopicOptions::decode(&[51, 2]), None, "kv is the default");
        assert_eq!(TopicOptions::decode(&[51, 4]), None, "no such mode");
    }
}

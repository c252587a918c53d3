//! The records that a machine has emitted, and checks of their invariants:
//! - Offsets are dense (I1).
//! - An effect that is not VALID has no record (I10).
//! - The records of one intention are contiguous, with LAST on exactly the final one.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use weir_core::record::ConsequenceSink;
use weir_core::{Commit, Effect, IntentionOffset, Record, RecordKind, TopicId, TopicName};

use super::words::{client_name, print};

/// A record that owns its bytes.
#[derive(Debug)]
struct OwnedRecord {
    line: String,
    long: String,
    intention: u64,
}

/// Stores the records and checks their invariants (I1, I10, R2).
#[derive(Debug, Default)]
pub(crate) struct RecordChecker {
    names: Vec<TopicName>,
    records: BTreeMap<String, Vec<OwnedRecord>>,
    /// Records since the last call of `executed`: topic, offset, last.
    open: Vec<(TopicId, u64, bool)>,
    last_intention: u64,
}

impl ConsequenceSink for RecordChecker {
    fn topic(&mut self, id: TopicId, name: &TopicName) {
        assert_eq!(id.index(), self.names.len(), "topic numbers are dense");
        self.names.push(name.clone());
    }

    fn record(&mut self, id: TopicId, record: &Record<'_>) {
        let name = self.names[id.index()].as_str().to_owned();
        let stored = self.records.entry(name).or_default();
        let offset = record.offset.0;
        assert_eq!(offset, stored.len() as u64 + 1, "I1: offsets are dense");
        assert_eq!(record.intention.0, self.last_intention + 1);
        let mut line = format!("{offset} {}", record.kind.name());
        if record.kind == RecordKind::Put {
            let _ = write!(line, " {}={}", print(record.key), print(record.value));
        } else if !record.key.is_empty() {
            let _ = write!(line, " {}", print(record.key));
        } else if !record.value.is_empty() {
            let _ = write!(line, " ({})", print(record.value));
        }
        if record.flags.txn() {
            line.push_str(" txn");
        }
        if record.flags.last() {
            line.push_str(" last");
        }
        let mut long = format!(
            "{line} | intention {} term {} time {}",
            record.intention, record.term, record.time_ms
        );
        if !record.client.is_none() {
            let _ = write!(long, " by {}/{}", client_name(record.client), record.nonce);
        }
        if !record.meta.is_empty() {
            let _ = write!(long, " meta {}", print(record.meta));
        }
        stored.push(OwnedRecord {
            line,
            long,
            intention: record.intention.0,
        });
        self.open.push((id, offset, record.flags.last()));
    }

    fn executed(&mut self, intention: IntentionOffset, effect: Effect) {
        assert_eq!(intention.0, self.last_intention + 1, "R3: no holes");
        self.last_intention = intention.0;
        let open = std::mem::take(&mut self.open);
        assert!(effect == Effect::Valid || open.is_empty(), "I10");
        for (n, (id, offset, last)) in open.iter().enumerate() {
            assert_eq!(*id, open[0].0, "an intention changes one topic");
            assert_eq!(*offset, open[0].1 + n as u64, "R2: contiguous");
            assert_eq!(*last, n + 1 == open.len(), "R2: exactly the final one");
        }
    }
}

impl RecordChecker {
    /// Number of records.
    pub(crate) fn count(&self) -> usize {
        self.records.values().map(Vec::len).sum()
    }

    /// The records of a topic, with all their fields.
    pub(crate) fn lines(&self, topic: &str) -> impl Iterator<Item = &str> {
        let records = self.records.get(topic).into_iter().flatten();
        records.map(|stored| stored.long.as_str())
    }

    /// The records of a commit, as text.
    pub(crate) fn of(&self, commit: &Commit) -> String {
        let mut out = String::new();
        let mut found = 0;
        for (name, records) in &self.records {
            let at = usize::try_from(commit.first.0).unwrap_or(0).wrapping_sub(1);
            let group: Vec<&OwnedRecord> = records
                .iter()
                .skip(at.min(records.len()))
                .take_while(|stored| stored.intention == commit.intention.0)
                .collect();
            found += group.len();
            for stored in group {
                let link = if out.is_empty() { ": " } else { "; " };
                let _ = write!(out, "{link}{} {}", print(name.as_bytes()), stored.line);
            }
        }
        assert_eq!(found, commit.records as usize, "{commit:?}");
        out
    }
}

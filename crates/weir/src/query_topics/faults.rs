//! Decides when an unreadable record ends a query: at its place in the order.
//!
//! Invariants:
//! - If the query reads records in order, it first returns everything before
//!   the faulty record. Otherwise it ends when it needs the record.
//! - The end does not depend on how records are divided into pages.

use weir_core::{ConsequenceOffset, TopicName};
use weir_query::{SourceId, quoted};

use super::options::TopicView;
use super::{TopicQuery, is_sorted, normalized_order};
use crate::error::WeirError;
use crate::topic::Topic;

/// The position of a record in the order of a query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FaultKey {
    Number(u64),
    /// The longest valid text prefix of a key. No key with this prefix sorts before it.
    Text(String),
}

impl FaultKey {
    /// Creates the position of a record from its key.
    fn of(key: &[u8]) -> Self {
        let text = key.utf8_chunks().next();
        Self::Text(text.map_or_else(String::new, |text| text.valid().to_owned()))
    }

    /// The position as a JSON scalar.
    fn json(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => quoted(text),
        }
    }
}

impl TopicQuery {
    /// Sends the engine a watermark for each faulty record that has a position in the order of the
    /// query. Returns `false` if all of them were sent before.
    pub(super) fn send_fault_watermarks(&mut self, faulty: &[SourceId]) -> Result<bool, WeirError> {
        let mut moved = false;
        for source in faulty {
            let Some(reading) = self.readings.get(source) else {
                continue;
            };
            let record = reading
                .fault
                .as_ref()
                .and_then(|fault| fault.location().record);
            if reading.fault_seen {
                continue;
            }
            let key = match record {
                Some(record) => self.key_of(&reading.name, record)?,
                None => None,
            };
            if let Some(key) = &key {
                self.query.watermark(*source, &[key.json()])?;
                moved = true;
            }
            if let Some(reading) = self.readings.get_mut(source) {
                reading.fault_key = key;
                reading.fault_seen = true;
            }
        }
        Ok(moved)
    }

    /// The position of a record in the order of the query, if records are stored in that order.
    fn key_of(&self, topic: &str, record: u64) -> Result<Option<FaultKey>, WeirError> {
        if !self.query.plan().is_ordered() || !is_sorted(&self.options) {
            return Ok(None);
        }
        let topic = Topic::new(self.backend.clone(), TopicName::any(topic)?);
        let Some(value) = topic.at(ConsequenceOffset(record))? else {
            return Ok(None);
        };
        let found = value.record();
        if self.options.view == TopicView::Latest {
            return Ok(Some(FaultKey::of(found.key)));
        }
        Ok(Some(FaultKey::Number(
            match normalized_order(&self.options.text.order) {
                "meta.time_ms" => found.time_ms,
                "meta.offset" => record,
                _ => found.intention.0,
            },
        )))
    }

    /// The source whose faulty record comes first, if no record in transit can come before it. The
    /// choice among several faults, and the results before it, must not depend on how records are
    /// divided into pages.
    pub(super) fn due(&self, faulty: &[SourceId], idle: &[SourceId]) -> Option<SourceId> {
        let key = |source: &SourceId| self.readings.get(source)?.fault_key.as_ref();
        let first = faulty
            .iter()
            .copied()
            .min_by_key(|source| (key(source), *source))?;
        let is_past = |source: &SourceId| match (key(&first), &self.follow) {
            (None, _) => true,
            (Some(FaultKey::Number(key)), Some(follow)) => follow.is_past(*source, *key),
            (Some(_), _) => false,
        };
        idle.iter().all(is_past).then_some(first)
    }
}

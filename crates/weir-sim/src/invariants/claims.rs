//! I2 for groups: a claimed record belongs to the group, and a record that is done stays done.

use std::collections::BTreeMap;

use crate::cluster::{GROUP, RunningNode, TOPIC};
use crate::report::Violation;

/// Claims that were acknowledged.
#[derive(Default)]
pub(crate) struct Claims {
    /// For each record, whether it is known to be done.
    records: BTreeMap<u64, bool>,
}

impl Claims {
    /// A claim that was based on an old list skips records that other members have claimed.
    pub(crate) fn claimed(&mut self, offsets: &[u64]) {
        for offset in offsets {
            self.records.entry(*offset).or_default();
        }
    }

    pub(crate) fn done(&mut self, offsets: &[u64]) {
        for offset in offsets {
            if let Some(is_done) = self.records.get_mut(offset) {
                *is_done = true;
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Compares with the group on a node that has applied everything.
    pub(crate) fn check(&self, running: &RunningNode) -> Result<(), Violation> {
        let Some((newest, _)) = self.records.last_key_value() else {
            return Ok(());
        };
        let mut not_done = self.records.iter().filter(|(_, is_done)| !**is_done);
        let first = not_done.next().map_or(newest + 1, |(offset, _)| *offset);
        let group = running.node.store().group(TOPIC, GROUP);
        let found = group.map(|group| (group.cursor.0, group.frontier.0));
        if found.is_some_and(|(cursor, frontier)| cursor + 1 >= first && frontier >= *newest) {
            return Ok(());
        }
        Err(Violation::new(
            "claimed records stay claimed, and done records stay done",
            format!(
                "node {}: cursor and frontier {found:?}, claimed up to {newest}, the first that is \
                 not done is {first}",
                running.id
            ),
        ))
    }
}

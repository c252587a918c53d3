//! Maintenance that callers start: retention and scrubs.

use weir_core::ConsequenceOffset;

use super::Store;
use crate::error::StoreError;
use crate::finding::Finding;
use crate::retention::{RetainReport, retain};
use crate::scrub::{ScrubReport, round};

impl Store {
    /// Removes old records of a topic that exceed its retention limits. With `None`, checks all
    /// topics. Writes and reads continue in the meantime. On a node of a cluster that does not lead,
    /// removes only the files of records that a leader has removed.
    ///
    /// # Errors
    /// `TopicUnknown`, and the errors of a write and of writing a snapshot.
    pub fn retain(&self, topic: Option<&str>) -> Result<RetainReport, StoreError> {
        let id = match topic {
            None => None,
            Some(name) => {
                let machine = self.engine.machine.read();
                let id = machine.topic(name).map(|view| view.id);
                Some(id.ok_or_else(|| StoreError::TopicUnknown {
                    name: name.to_owned(),
                })?)
            }
        };
        let handle = self.maintenance_handle();
        retain(&handle, id, || Some(self.maintenance.acquire()))
    }

    /// Returns the offset of the newest record that retention has removed from a topic; zero if it
    /// has removed none.
    #[must_use]
    pub fn removed(&self, topic: &str) -> ConsequenceOffset {
        let files = self.engine.files_by_name(topic);
        ConsequenceOffset(files.map_or(0, |files| files.trimmed()))
    }

    /// Rereads the log, the snapshots and the topics at up to `bytes_per_s` bytes per second, and
    /// checks every checksum. Blocks until everything is read or the store is closed. Repairs
    /// nothing.
    #[must_use]
    pub fn scrub(&self, bytes_per_s: u64) -> ScrubReport {
        round(
            &self.maintenance_handle(),
            &self.readers,
            &self.scrubber.stop,
            bytes_per_s,
        )
    }

    /// Returns the damage that scrubs have found since the store was opened; at most 1,000
    /// findings.
    #[must_use]
    pub fn damage(&self) -> Vec<Finding> {
        self.engine.damage.lock().clone()
    }
}

//! Upkeep that callers start: retention and scrubbing.

use weir_core::ConsequenceOffset;

use super::Store;
use crate::error::StoreError;
use crate::finding::Finding;
use crate::retention::{RetainReport, retain};
use crate::scrub::{ScrubReport, round};

impl Store {
    /// Removes what the options of the topics allow to remove; of one topic,
    /// or of all. Writing and reading go on meanwhile.
    ///
    /// # Errors
    /// `TopicUnknown`; those of a snapshot.
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
        let permit = self.maintenance.acquire();
        retain(&self.maintenance_handle(), id, &permit)
    }

    /// Offset of the newest record that retention has removed from a topic;
    /// zero for none.
    #[must_use]
    pub fn removed(&self, topic: &str) -> ConsequenceOffset {
        let files = self.engine.files_by_name(topic);
        ConsequenceOffset(files.map_or(0, |files| files.removed()))
    }

    /// Reads the log, the snapshots and the topics again, at most `bytes_per_s`
    /// bytes in a second, and checks every checksum. Blocks until everything is
    /// read or the store is closed. Repairs nothing.
    #[must_use]
    pub fn scrub(&self, bytes_per_s: u64) -> ScrubReport {
        round(
            &self.maintenance_handle(),
            &self.readers,
            &self.scrubber.stop,
            bytes_per_s,
        )
    }

    /// Damage that scrubbing has found since the store was opened; at most
    /// 1,000 places.
    #[must_use]
    pub fn damage(&self) -> Vec<Finding> {
        self.engine.damage.lock().clone()
    }
}

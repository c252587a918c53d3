//! The loop that feeds log entries to a machine: an open, a check and a history
//! replay through it, so that all of them read an entry alike.

use weir_core::batch::BATCH_VERSION;
use weir_core::{Batch, BatchError, ConsequenceSink, Machine, Outcomes};

use crate::error::StoreError;
use crate::log::{Entry, LogIndex, LogReader};

/// Entries of a log that are applied one after the other.
pub(crate) struct Replay {
    reader: LogReader,
    last: LogIndex,
    outcomes: Outcomes,
}

impl Replay {
    /// Replays what `reader` reads, up to the entry `last`.
    pub(crate) fn new(reader: LogReader, last: LogIndex) -> Self {
        Self {
            reader,
            last,
            outcomes: Outcomes::default(),
        }
    }

    /// Applies the next entry and returns it; `None` after the last one.
    ///
    /// # Errors
    /// `Damage` when the entry cannot be read, or holds another number of items
    /// than the log says; `NewerFormat` for a batch of a later version; `Apply`
    /// when it cannot be applied. The machine must not be used after that.
    pub(crate) fn next<S: ConsequenceSink>(
        &mut self,
        machine: &mut Machine,
        sink: &mut S,
    ) -> Result<Option<Entry>, StoreError> {
        self.outcomes.clear();
        let Some(entry) = self.reader.next(self.last)? else {
            return Ok(None);
        };
        let index = entry.index;
        let file = || format!("log, entry {index}");
        let batch = Batch::read(&entry.payload, entry.term).map_err(|error| match error {
            // The first byte is the kind of payload: one that is not known
            // comes from a later program.
            BatchError { at: 0, .. } => StoreError::NewerFormat {
                file: file(),
                found: entry.payload.first().copied().map_or(0, u16::from),
                supported: u16::from(BATCH_VERSION),
            },
            error => StoreError::Apply {
                index,
                error: error.into(),
            },
        })?;
        let applied = machine.apply(&batch, sink, &mut self.outcomes);
        applied.map_err(|error| StoreError::Apply { index, error })?;
        if entry.count != batch.count {
            let what = "as many items as the log says";
            return Err(StoreError::damage(&file(), 4, what, 0));
        }
        Ok(Some(entry))
    }

    /// Outcomes of the entry that was applied last.
    pub(crate) fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }
}

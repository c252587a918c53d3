//! The loop that feeds log entries to a machine: an open, a check and a history
//! replay through it, so that all of them read an entry alike.

mod ahead;

use bytes::Bytes;
use weir_core::batch::BATCH_VERSION;
use weir_core::{Batch, BatchError, ConsequenceSink, Machine, Outcomes};

use crate::error::StoreError;
use crate::log::{Entry, LogIndex, LogReader};
pub(crate) use ahead::{Ahead, Appended, compile_restored};

/// Bytes before the body of an entry that is no batch.
pub(crate) const ENTRY_HEAD_BYTES: usize = 16;
/// First payload byte of a blank entry (docs/formats/cluster.md).
pub(crate) const BLANK: u8 = 0x80;
/// First payload byte of a membership entry.
pub(crate) const MEMBERSHIP: u8 = 0x81;

/// What an entry of the log holds.
#[derive(Debug)]
pub(crate) enum Content<'a> {
    /// Intentions.
    Batch(Batch<'a>),
    /// Nothing; a leader appends it at the start of its term.
    Blank,
    /// The members of the cluster; the body belongs to the log provider.
    Membership,
}

impl<'a> Content<'a> {
    /// Reads the payload of an entry. The items of a batch are not read yet.
    ///
    /// # Errors
    /// `NewerFormat` for a kind of payload that a later program wrote, `Damage`
    /// or `Apply` for one that contradicts its kind.
    pub(crate) fn read(
        payload: &'a [u8],
        index: LogIndex,
        term: u64,
        count: u32,
    ) -> Result<Self, StoreError> {
        let file = || format!("log, entry {index}");
        if let Some(kind @ (BLANK | MEMBERSHIP)) = payload.first().copied() {
            let head = payload.get(1..ENTRY_HEAD_BYTES);
            let is_zero = head.is_some_and(|rest| rest.iter().all(|byte| *byte == 0));
            let fits = kind == MEMBERSHIP || payload.len() == ENTRY_HEAD_BYTES;
            if !is_zero || !fits || count != 0 {
                let what = "an entry of the consensus as it is written";
                return Err(StoreError::damage(&file(), 0, what, 0));
            }
            return Ok(if kind == BLANK {
                Self::Blank
            } else {
                Self::Membership
            });
        }
        let batch = Batch::read(payload, term).map_err(|error| match (error, payload.first()) {
            // The first byte is the kind of payload: one that is not known
            // comes from a later program.
            (BatchError { at: 0, .. }, Some(version)) => StoreError::NewerFormat {
                file: file(),
                found: u16::from(*version),
                supported: u16::from(BATCH_VERSION),
            },
            (error, _) => StoreError::Apply {
                index,
                error: error.into(),
            },
        })?;
        if count != batch.count {
            let what = "as many items as the log says";
            return Err(StoreError::damage(&file(), 4, what, 0));
        }
        Ok(Self::Batch(batch))
    }
}

/// The payload of a blank entry.
pub(crate) fn blank_payload() -> Bytes {
    Bytes::from_static(&[BLANK, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
}

/// The payload of a membership entry.
pub(crate) fn membership_payload(body: &[u8]) -> Bytes {
    let mut payload = Vec::with_capacity(ENTRY_HEAD_BYTES + body.len());
    payload.resize(ENTRY_HEAD_BYTES, 0);
    payload[0] = MEMBERSHIP;
    payload.extend_from_slice(body);
    Bytes::from(payload)
}

/// The newest membership entry that is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppliedMembership {
    pub(crate) index: LogIndex,
    pub(crate) term: u64,
    /// What follows the head of the entry.
    pub(crate) body: Bytes,
}

impl AppliedMembership {
    /// From the payload of a membership entry.
    pub(crate) fn of(index: LogIndex, term: u64, payload: &Bytes) -> Self {
        let body = payload.slice(ENTRY_HEAD_BYTES.min(payload.len())..);
        Self { index, term, body }
    }
}

/// Entries of a log that are applied one after the other.
pub(crate) struct Replay {
    reader: LogReader,
    last: LogIndex,
    outcomes: Outcomes,
    membership: Option<AppliedMembership>,
}

impl Replay {
    /// Replays what `reader` reads, up to the entry `last`.
    pub(crate) fn new(reader: LogReader, last: LogIndex) -> Self {
        Self {
            reader,
            last,
            outcomes: Outcomes::default(),
            membership: None,
        }
    }

    /// Applies the next entry and returns it; `None` after the last one. An entry
    /// that is no batch changes nothing and has no outcomes.
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
        let (index, term) = (entry.index, entry.term);
        match Content::read(&entry.payload, index, term, entry.count)? {
            Content::Batch(batch) => {
                let applied = machine.apply(&batch, sink, &mut self.outcomes);
                applied.map_err(|error| StoreError::Apply { index, error })?;
            }
            Content::Membership => {
                self.membership = Some(AppliedMembership::of(index, term, &entry.payload));
            }
            Content::Blank => {}
        }
        Ok(Some(entry))
    }

    /// Outcomes of the entry that was applied last.
    pub(crate) fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }

    /// The newest membership entry of the replay.
    pub(crate) fn into_membership(self) -> Option<AppliedMembership> {
        self.membership
    }
}

//! The loop that applies log entries to a machine. An open, `verify` and `history` use this loop,
//! so that all of them interpret an entry in the same way.

mod ahead;

use bytes::Bytes;
use weir_core::batch::BATCH_VERSION;
use weir_core::{Batch, BatchError, ConsequenceSink, Machine, Outcomes};

use crate::error::StoreError;
use crate::log::{Entry, LogIndex, LogReader};
pub(crate) use ahead::{Ahead, Appended, compile_restored};

/// Bytes before the body of an entry that is not a batch.
pub(crate) const ENTRY_HEAD_BYTES: usize = 16;
/// First payload byte of a blank entry (docs/formats/cluster.md).
pub(crate) const BLANK: u8 = 0x80;
/// First payload byte of a membership entry.
pub(crate) const MEMBERSHIP: u8 = 0x81;

/// The content of a log entry.
#[derive(Debug)]
pub(crate) enum Content<'a> {
    /// Intentions.
    Batch(Batch<'a>),
    /// Empty. A leader appends a blank entry at the start of its term.
    Blank,
    /// The members of the cluster. Only the log provider interprets the body.
    Membership,
}

impl<'a> Content<'a> {
    /// Decodes the payload of an entry, but not the items of a batch.
    ///
    /// # Errors
    /// `NewerFormat` for a payload of a kind that this version does not support. `Damage` or `Apply`
    /// for an invalid payload.
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
                let what = "a blank or membership entry is not as written";
                return Err(StoreError::damage(&file(), 0, what, 0));
            }
            return Ok(if kind == BLANK {
                Self::Blank
            } else {
                Self::Membership
            });
        }
        let batch = Batch::read(payload, term).map_err(|error| match (error, payload.first()) {
            // The first byte is the kind of the payload. An unknown kind comes from a later
            // version.
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
            let what = "the number of items differs from that in the log";
            return Err(StoreError::damage(&file(), 4, what, 0));
        }
        Ok(Self::Batch(batch))
    }
}

/// Returns the payload of a blank entry.
pub(crate) fn blank_payload() -> Bytes {
    Bytes::from_static(&[BLANK, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
}

/// Returns the payload of a membership entry.
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
    /// The bytes after the head of the entry.
    pub(crate) body: Bytes,
}

impl AppliedMembership {
    /// Creates the value from the payload of a membership entry.
    pub(crate) fn of(index: LogIndex, term: u64, payload: &Bytes) -> Self {
        let body = payload.slice(ENTRY_HEAD_BYTES.min(payload.len())..);
        Self { index, term, body }
    }
}

/// A replay, which applies the entries of a log one after the other.
pub(crate) struct Replay {
    reader: LogReader,
    last: LogIndex,
    outcomes: Outcomes,
    membership: Option<AppliedMembership>,
}

impl Replay {
    /// Creates a replay of the entries of `reader`, up to the entry `last`.
    pub(crate) fn new(reader: LogReader, last: LogIndex) -> Self {
        Self {
            reader,
            last,
            outcomes: Outcomes::default(),
            membership: None,
        }
    }

    /// Applies the next entry and returns it; `None` after the last one. An entry that is not a
    /// batch does not change the machine and has no outcomes.
    ///
    /// # Errors
    /// `Damage` if the entry cannot be read, or if its number of items differs from the number in
    /// the log. `NewerFormat` for a batch of a later version. `Apply` if the entry cannot be
    /// applied. The machine must not be used after an error.
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

    /// Returns the outcomes of the last applied entry.
    pub(crate) fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }

    /// Returns the newest membership entry of the replay.
    pub(crate) fn into_membership(self) -> Option<AppliedMembership> {
        self.membership
    }
}

//! Records that a member of a group has claimed.

use weir_core::{ConsequenceOffset, ErrorCode, Record};
use weir_store::Page;

use crate::error::WeirError;
use crate::value::Value;

/// A record that the member has.
#[derive(Clone, Debug)]
pub struct Work {
    value: Value,
    claim: u64,
    attempts: u32,
}

impl Work {
    /// The first record of the page; nothing when it has none.
    pub(crate) fn new(page: Page, claim: u64, attempts: u32) -> Result<Option<Self>, WeirError> {
        let value = Value::new(page)?;
        Ok(value.map(|value| Self {
            value,
            claim,
            attempts,
        }))
    }

    /// The record.
    #[must_use]
    pub fn record(&self) -> Record<'_> {
        self.value.record()
    }

    /// The record together with the memory it lies in.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// How often it was delivered, this time included; 1 in an exclusive
    /// group.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// What it was claimed with.
    #[must_use]
    pub fn claim(&self) -> u64 {
        self.claim
    }
}

/// What names a record that a member has: all that is needed to say what
/// became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// What it was claimed with.
    pub claim: u64,
    /// The record.
    pub offset: ConsequenceOffset,
}

impl From<&Work> for Claim {
    fn from(work: &Work) -> Self {
        Self {
            claim: work.claim,
            offset: work.record().offset,
        }
    }
}

/// What a claim got.
pub(crate) struct Got {
    pub(crate) works: Vec<Work>,
    pub(crate) reason: Option<ErrorCode>,
    pub(crate) frontier: ConsequenceOffset,
    pub(crate) due_ms: Option<u64>,
}

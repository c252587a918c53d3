//! Records that a member has, and what it says about them.

use std::time::Duration;

use weir_core::group::Offsets;
use weir_core::{ConsequenceOffset, GroupStep, Record};
use weir_store::Page;

use super::{Group, ITER_RECORDS};
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

/// What became of records that a member has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle<'a> {
    /// Done; see [`Group::ack`].
    Done,
    /// Done; see [`Group::ack_soon`].
    DoneSoon,
    /// Given back; see [`Group::nack`].
    Fail {
        /// Before it may be claimed again.
        delay: Duration,
        /// For people.
        reason: &'a str,
    },
    /// Still being worked at; see [`Group::extend`].
    Extend {
        /// The lease from now on.
        lease: Duration,
    },
}

/// See [`Group::works`].
#[derive(Debug)]
pub struct Works<'a> {
    pub(super) group: &'a mut Group,
    pub(super) patience: Duration,
    pub(super) ready: std::vec::IntoIter<Work>,
}

impl Works<'_> {
    /// The group, to say what became of a record.
    pub fn group(&mut self) -> &mut Group {
        self.group
    }
}

impl Iterator for Works<'_> {
    type Item = Result<Work, WeirError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(work) = self.ready.next() {
            return Some(Ok(work));
        }
        match self.group.claim(ITER_RECORDS, self.patience) {
            Ok(works) => self.ready = works.into_iter(),
            Err(error) => return Some(Err(error)),
        }
        self.ready.next().map(Ok)
    }
}

/// What a member says about records.
#[derive(Clone, Copy)]
pub(super) enum Word<'a> {
    Ack,
    Nack { delay_ms: u64, reason: &'a str },
    Extend { lease_ms: u64 },
}

impl<'a> Word<'a> {
    pub(super) fn step(self, claim: u64, offsets: Offsets<'a>) -> GroupStep<'a> {
        match self {
            Self::Ack => GroupStep::Ack { claim, offsets },
            Self::Nack { delay_ms, reason } => GroupStep::Nack {
                claim,
                delay_ms,
                reason,
                offsets,
            },
            Self::Extend { lease_ms } => GroupStep::Extend {
                claim,
                lease_ms,
                offsets,
            },
        }
    }
}

//! The outcomes that a member reports for its records, and the iterator over them.

use std::time::Duration;

use weir_core::GroupStep;
use weir_core::group::Offsets;

use super::{Group, ITER_RECORDS};
use crate::error::WeirError;
use crate::work::Work;

/// The outcome of records that a member has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle<'a> {
    /// Acknowledges them; see [`Group::ack`].
    Done,
    /// Acknowledges them later; see [`Group::ack_soon`].
    DoneSoon,
    /// Rejects them; see [`Group::nack`].
    Fail {
        /// How long they cannot be claimed.
        delay: Duration,
        /// A text for people.
        reason: &'a str,
    },
    /// Extends their leases; see [`Group::extend`].
    Extend {
        /// The new lease, counted from now.
        lease: Duration,
    },
}

/// An iterator over records; see [`Group::works`].
#[derive(Debug)]
pub struct Works<'a> {
    pub(super) group: &'a mut Group,
    pub(super) patience: Duration,
    pub(super) ready: std::vec::IntoIter<Work>,
}

impl Works<'_> {
    /// The group, to report the outcome of a record.
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

/// The outcome that a member reports for records.
#[derive(Clone, Copy)]
pub(super) enum GroupOutcome<'a> {
    Ack,
    Nack { delay_ms: u64, reason: &'a str },
    Extend { lease_ms: u64 },
}

impl<'a> GroupOutcome<'a> {
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

//! What a member says about records that it has, and the iterator over them.

use std::time::Duration;

use weir_core::GroupStep;
use weir_core::group::Offsets;

use super::{Group, ITER_RECORDS};
use crate::error::WeirError;
use crate::work::Work;

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

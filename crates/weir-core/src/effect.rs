//! Verdicts: the results of intentions.

use crate::code::TrapKind;
use crate::error_code::{Class, ErrorCode};
use crate::ids::{ConsequenceOffset, IntentionOffset};
use std::fmt;
use std::sync::Arc;

/// The verdict on an intention. Every node computes an equal verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Effect {
    /// Executed; 0 or more records.
    Valid = 0,
    /// Rejected by a rule or a program. No records.
    Invalid = 1,
    /// Could not be executed. No records.
    Error = 2,
}

impl Effect {
    /// Upper-case name, as printed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Valid => "VALID",
            Self::Invalid => "INVALID",
            Self::Error => "ERROR",
        }
    }

    /// The effect that belongs to a reason; `None` for a code that is not a reason.
    pub const fn of(reason: Option<ErrorCode>) -> Option<Self> {
        match reason {
            None => Some(Self::Valid),
            Some(code) => match code.class() {
                Class::Invalid => Some(Self::Invalid),
                Class::Error => Some(Self::Error),
                _ => None,
            },
        }
    }

    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Valid,
            1 => Self::Invalid,
            2 => Self::Error,
            _ => return None,
        })
    }
}

/// Details of a verdict that is not VALID, beyond its reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// No details.
    #[default]
    None,
    /// The offset that a failed condition found; 0 if there was none.
    Actual(u64),
    /// The limit that was exceeded.
    Limit(u64),
    /// A step of a transaction failed.
    Operation {
        /// Index of the step, from 0.
        index: u32,
        /// Reason of the failure.
        reason: ErrorCode,
    },
    /// The topic's program rejected the write.
    Rejected {
        /// Code of the program, 1 to 65,535.
        code: u16,
        /// Text of the program, at most 256 bytes; may be empty.
        text: Arc<str>,
    },
    /// The topic's program trapped.
    Trapped(TrapKind),
    /// An explanation, for example which rule the code breaks, and where.
    Text(Arc<str>),
}

/// For people. Without details, the text is empty.
impl fmt::Display for Detail {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Actual(offset) => write!(out, "actual offset {offset}"),
            Self::Limit(limit) => write!(out, "limit {limit}"),
            Self::Operation { index, reason } => {
                write!(out, "operation {index}: {}", reason.name())
            }
            Self::Rejected { code, text } if text.is_empty() => write!(out, "code {code}"),
            Self::Rejected { code, text } => write!(out, "code {code}: {text}"),
            Self::Trapped(kind) => out.write_str(kind.name()),
            Self::Text(text) => out.write_str(text),
        }
    }
}

/// Why an intention is not VALID: the reason and its details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: ErrorCode,
    pub(crate) detail: Detail,
}

impl Rejection {
    pub(crate) const fn without_detail(reason: ErrorCode) -> Self {
        Self {
            reason,
            detail: Detail::None,
        }
    }

    pub(crate) fn limit(reason: ErrorCode, max: u64) -> Self {
        Self {
            reason,
            detail: Detail::Limit(max),
        }
    }
}

/// Final outcome of one intention, or of the first intention of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Nonce of the intention; 0 without session.
    pub nonce: u64,
    /// The verdict.
    pub effect: Effect,
    /// The reason, if the effect is not VALID.
    pub reason: Option<ErrorCode>,
    /// Details of the reason.
    pub detail: Detail,
    /// Position in the global order.
    pub intention: IntentionOffset,
    /// Offset of the first record; 0 if there are no records.
    pub first: ConsequenceOffset,
    /// Number of records.
    pub records: u32,
    /// Fuel that the topic's program used; 0 without program, and 0 in a replayed outcome.
    pub fuel: u64,
}

impl Commit {
    /// The commit of the item `n` items later in the same run (see [`OutcomeRun`]).
    #[must_use]
    pub fn nth(&self, n: u64) -> Self {
        let mut commit = self.clone();
        commit.intention = self.intention.plus(n);
        if self.nonce != 0 {
            commit.nonce += n;
        }
        if self.records != 0 {
            commit.first = self.first.plus(n);
        }
        commit
    }

    /// Whether `next` equals `self.nth(n)`, so that one run can contain both.
    #[inline]
    pub fn precedes_in_run(&self, next: &Self, n: u64) -> bool {
        next.effect == self.effect
            && next.intention.0 == self.intention.0 + n
            && next.reason == self.reason
            && self.records <= 1
            && next.records == self.records
            && (self.records == 0 || next.first.0 == self.first.0 + n)
            && next.nonce == if self.nonce == 0 { 0 } else { self.nonce + n }
            && next.fuel == self.fuel
            && next.detail == self.detail
    }
}

/// The outcome of one item of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Executed now.
    Committed(Commit),
    /// Executed before under the same nonce; this is its first outcome.
    Replayed(Commit),
    /// Not executed: no offset was assigned and nothing changed. The code is `NonceGap`,
    /// `NonceReused`, `SessionExpired` or `Busy`.
    Refused {
        /// Code of the refusal.
        code: ErrorCode,
        /// Next nonce that the session accepts.
        expected: u64,
    },
}

impl Outcome {
    /// The outcome of the item `n` items later in the same run.
    #[must_use]
    pub fn nth(&self, n: u64) -> Self {
        match self {
            Self::Committed(commit) => Self::Committed(commit.nth(n)),
            Self::Replayed(commit) => Self::Replayed(commit.nth(n)),
            refused @ Self::Refused { .. } => refused.clone(),
        }
    }

    /// The commit; `None` if the item was refused.
    #[must_use]
    pub const fn commit(&self) -> Option<&Commit> {
        match self {
            Self::Committed(commit) | Self::Replayed(commit) => Some(commit),
            Self::Refused { .. } => None,
        }
    }
}

/// Outcomes of successive items, stored once: item `i` of the run has the outcome `outcome.nth(i)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutcomeRun {
    /// Items in the run, at least 1.
    pub count: u32,
    /// Outcome of the first item.
    pub outcome: Outcome,
}

/// Outcomes of the items of a batch, in item order, run-length coded. A single run, the usual
/// result of one call, needs no allocation.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    runs: Runs,
}

#[derive(Clone, Debug, Default)]
enum Runs {
    #[default]
    None,
    One(OutcomeRun),
    Many(Vec<OutcomeRun>),
}

impl PartialEq for Outcomes {
    fn eq(&self, other: &Self) -> bool {
        self.runs() == other.runs()
    }
}

impl Eq for Outcomes {}

impl Outcomes {
    /// Removes all outcomes; retains the memory.
    pub fn clear(&mut self) {
        match &mut self.runs {
            Runs::Many(runs) => runs.clear(),
            few => *few = Runs::None,
        }
    }

    /// The runs, in item order.
    #[must_use]
    #[inline]
    pub fn runs(&self) -> &[OutcomeRun] {
        match &self.runs {
            Runs::None => &[],
            Runs::One(run) => std::slice::from_ref(run),
            Runs::Many(runs) => runs,
        }
    }

    /// Number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs().iter().map(|run| run.count as usize).sum()
    }

    /// Whether there are no outcomes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs().is_empty()
    }

    /// The outcome of each item.
    pub fn iter(&self) -> impl Iterator<Item = Outcome> + '_ {
        self.runs()
            .iter()
            .flat_map(|run| (0..u64::from(run.count)).map(|n| run.outcome.nth(n)))
    }

    /// Appends the outcome of the next item.
    #[inline]
    pub fn push(&mut self, outcome: Outcome) {
        let last = match &mut self.runs {
            Runs::None => None,
            Runs::One(run) => Some(run),
            Runs::Many(runs) => runs.last_mut(),
        };
        if let Some(run) = last
            && let (Outcome::Committed(first), Outcome::Committed(next)) = (&run.outcome, &outcome)
            && first.precedes_in_run(next, u64::from(run.count))
        {
            run.count += 1;
            return;
        }
        self.push_run(OutcomeRun { count: 1, outcome });
    }

    /// Appends a whole run.
    #[inline]
    pub fn push_run(&mut self, run: OutcomeRun) {
        match &mut self.runs {
            Runs::None => self.runs = Runs::One(run),
            Runs::One(first) => self.runs = Runs::Many(vec![first.clone(), run]),
            Runs::Many(runs) => runs.push(run),
        }
    }
}

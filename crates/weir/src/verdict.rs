//! What became of one intention.

use weir_core::{
    Commit, ConsequenceOffset, Detail, Effect, ErrorCode, IntentionOffset, Outcome, Outcomes,
};

use crate::error::WeirError;

/// The final answer to one intention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    commit: Commit,
    replayed: bool,
}

impl Verdict {
    pub(crate) fn from_outcome(outcome: &Outcome, nonce: u64) -> Result<Self, WeirError> {
        match outcome {
            Outcome::Committed(commit) => Ok(Self {
                commit: commit.clone(),
                replayed: false,
            }),
            Outcome::Replayed(commit) => Ok(Self {
                commit: commit.clone(),
                replayed: true,
            }),
            Outcome::Refused { code, expected } => Err(WeirError::Nonce {
                nonce,
                code: *code,
                expected: *expected,
            }),
        }
    }

    pub(crate) fn of(commit: Commit) -> Self {
        Self {
            commit,
            replayed: false,
        }
    }

    pub(crate) fn first(outcomes: &Outcomes) -> Result<Self, WeirError> {
        match outcomes.iter().next() {
            Some(outcome) => Self::from_outcome(&outcome, 0),
            None => Err(WeirError::Store(weir_store::StoreError::Closed)),
        }
    }

    /// VALID, INVALID or ERROR.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.commit.effect
    }

    /// Whether it was executed.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.commit.effect == Effect::Valid
    }

    /// Why not, when it was not.
    #[must_use]
    pub fn reason(&self) -> Option<ErrorCode> {
        self.commit.reason
    }

    /// More about the reason.
    #[must_use]
    pub fn detail(&self) -> Detail {
        self.commit.detail.clone()
    }

    /// Fuel that the topic's program used; 0 without one and in a replayed
    /// answer.
    #[must_use]
    pub fn fuel(&self) -> u64 {
        self.commit.fuel
    }

    /// Position in the global order. Every verdict has one.
    #[must_use]
    pub fn intention(&self) -> IntentionOffset {
        self.commit.intention
    }

    /// Offset of its first record.
    #[must_use]
    pub fn offset(&self) -> Option<ConsequenceOffset> {
        (self.commit.records > 0).then_some(self.commit.first)
    }

    /// Number of records.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.commit.records
    }

    /// Whether this is the kept answer to an earlier sending of the same nonce.
    #[must_use]
    pub fn is_replayed(&self) -> bool {
        self.replayed
    }

    /// The store's own form.
    #[must_use]
    pub fn commit(&self) -> &Commit {
        &self.commit
    }
}

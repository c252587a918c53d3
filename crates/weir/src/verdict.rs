//! The verdict on one intention.

use weir_core::{
    Commit, ConsequenceOffset, Detail, Effect, ErrorCode, IntentionOffset, Outcome, Outcomes,
};

use crate::error::WeirError;

/// The final result of one intention.
#[must_use = "a rejected write is a verdict, not an error; `ensure_valid()?` makes it an error"]
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

    /// Returns the error `Rejected` with the reason unless the intention was executed.
    pub fn ensure_valid(&self) -> Result<(), WeirError> {
        match self.commit.reason {
            None => Ok(()),
            Some(code) => Err(WeirError::Rejected {
                code,
                detail: self.commit.detail.clone(),
            }),
        }
    }

    /// VALID, INVALID or ERROR.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.commit.effect
    }

    /// Whether the intention was executed.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.commit.effect == Effect::Valid
    }

    /// Why the intention was not executed; `None` if it was.
    #[must_use]
    pub fn reason(&self) -> Option<ErrorCode> {
        self.commit.reason
    }

    /// Details of the reason.
    #[must_use]
    pub fn detail(&self) -> Detail {
        self.commit.detail.clone()
    }

    /// Fuel that the program of the topic used; 0 without a program and in a replayed verdict.
    #[must_use]
    pub fn fuel(&self) -> u64 {
        self.commit.fuel
    }

    /// Position of the intention in the global order. Every verdict has one.
    #[must_use]
    pub fn intention(&self) -> IntentionOffset {
        self.commit.intention
    }

    /// Offset of the first record of the intention; `None` if it has none.
    #[must_use]
    pub fn offset(&self) -> Option<ConsequenceOffset> {
        (self.commit.records > 0).then_some(self.commit.first)
    }

    /// Number of records of the intention.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.commit.records
    }

    /// Whether this is the stored verdict of an earlier attempt with the same nonce.
    #[must_use]
    pub fn is_replayed(&self) -> bool {
        self.replayed
    }

    /// The verdict as the store represents it.
    #[must_use]
    pub fn commit(&self) -> &Commit {
        &self.commit
    }
}

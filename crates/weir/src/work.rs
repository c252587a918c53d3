//! Records that a member of a group has claimed.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_core::{ConsequenceOffset, ErrorCode, Record};
use weir_store::Page;

use crate::error::WeirError;
use crate::value::Value;

/// The longest wait between two claims, because another member may release records.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A record that this member has claimed.
#[derive(Clone, Debug)]
pub struct Work {
    value: Value,
    claim: u64,
    attempts: u32,
}

impl Work {
    /// The first record of the page; `None` if the page has none.
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

    /// The record together with the page that contains its bytes.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// How often the record was delivered, including this time; 1 in an exclusive group.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The id of the claim.
    #[must_use]
    pub fn claim(&self) -> u64 {
        self.claim
    }
}

/// Identifies a claimed record. This is all that is needed to acknowledge, reject or extend it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// The id of the claim.
    pub claim: u64,
    /// The offset of the record.
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

/// The result of a claim.
pub(crate) struct ClaimResult {
    pub(crate) works: Vec<Work>,
    pub(crate) reason: Option<ErrorCode>,
    pub(crate) frontier: ConsequenceOffset,
    pub(crate) due_ms: Option<u64>,
}

/// Time until `until_ms`, in milliseconds since 1970; 1 ms if that is in the past.
pub(crate) fn time_until(until_ms: u64) -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    });
    Duration::from_millis(until_ms.saturating_sub(now).max(1))
}

/// Sleeps until `until`. Returns immediately if it is `None`.
pub(crate) fn sleep(until: Option<Instant>) {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    std::thread::sleep(left.unwrap_or_default());
}

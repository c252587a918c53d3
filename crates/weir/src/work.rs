//! Records that a member of a group has claimed.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_core::{ConsequenceOffset, ErrorCode, Record};
use weir_store::Page;

use crate::error::WeirError;
use crate::value::Value;

/// The longest wait before a member asks again, while another member may give records back.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(100);

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

/// Time until `until_ms`, milliseconds since 1970; 1 ms if that is over.
pub(crate) fn left(until_ms: u64) -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    });
    Duration::from_millis(until_ms.saturating_sub(now).max(1))
}

/// Sleeps until `until`; does not sleep without it.
pub(crate) fn sleep(until: Option<Instant>) {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    std::thread::sleep(left.unwrap_or_default());
}

//! Proposes intentions to the store, and waits for their verdicts.
//!
//! Invariants:
//! - The caller has the right to each proposed intention.
//! - The budget of waiting intentions covers each proposed intention.
//! - The caller is charged for the fuel of each proposed intention.

use std::time::Duration;

use weir_core::intention::ONCE;
use weir_core::limits::{ONCE_IDS_MAX, SESSIONS_MAX};
use weir_core::{ErrorCode, Intention, Outcome, Outcomes};
use weir_store::StoreError;

use crate::http::exchange::busy;
use crate::http::problem::{self, Kind, Problem};
use crate::limits::KEYS_FULL_RETRY_MS;
use crate::queued_write::QueuedWrite;
use crate::resources::context::{Call, Edge, denial};
use crate::resources::problems;

/// Error texts for a full table of the store.
const STORE_KEYS_FULL: &str =
    "the store has its maximum number of idempotency keys, and none is 15 minutes old";
const STORE_SESSIONS_FULL: &str =
    "the store has its maximum number of sessions, and all were used in the last 24 hours";

/// How long the check of a right before the body remains valid.
const RIGHT_AGE_MAX: Duration = Duration::from_secs(1);

/// The index of the refused intention, if one of them is the cause, and the problem.
pub(crate) type RefusedProposal = Box<(Option<usize>, Problem)>;

impl Edge {
    /// Checks that the caller may propose these intentions. A right that was checked long ago may
    /// have been revoked while the body arrived, so it is checked again. A right of administration
    /// is not, so that the audit has one record of the request; `check_right_after_body` checks it.
    pub(crate) fn allow(
        &self,
        call: &Call,
        intentions: &[Intention<'_>],
    ) -> Result<(), (usize, Problem)> {
        let checked = call
            .checked_right
            .filter(|right| right.is_administration() || call.started.elapsed() < RIGHT_AGE_MAX)
            .map(|right| (right, &*call.matched.topic));
        let security = &self.shared.security;
        let allowed = security.allow(&call.principal, checked, intentions);
        allowed.map_err(|error| (error.index, denial(error.denied, &error.topic)))
    }
}

/// Proposes intentions if the caller has the right to them and the budget admits them.
pub(crate) fn propose(
    edge: &Edge,
    call: &Call,
    intentions: &[Intention<'_>],
) -> Result<QueuedWrite, Problem> {
    propose_many(edge, call, intentions).map_err(|refused| refused.1)
}

/// As `propose`, but returns the index of the refused intention.
pub(crate) fn propose_many(
    edge: &Edge,
    call: &Call,
    intentions: &[Intention<'_>],
) -> Result<QueuedWrite, RefusedProposal> {
    let allowed = edge.allow(call, intentions);
    allowed.map_err(|(index, problem)| Box::new((Some(index), problem)))?;
    queue(edge, intentions).map(|queued| charged(edge, call, queued))
}

/// As `propose_many`, without a check of rights: for steps of a request that was checked as a
/// whole, and for intentions of the server itself. Without `call`, nobody is charged.
pub(crate) fn propose_unchecked(
    edge: &Edge,
    call: Option<&Call>,
    intentions: &[Intention<'_>],
) -> Result<QueuedWrite, Problem> {
    let queued = queue(edge, intentions).map_err(|refused| refused.1)?;
    Ok(match call {
        Some(call) => charged(edge, call, queued),
        None => queued,
    })
}

/// Charges the caller for the fuel of a write when its verdict arrives.
fn charged(edge: &Edge, call: &Call, queued: QueuedWrite) -> QueuedWrite {
    queued.charged_to(&edge.shared.security, &call.principal)
}

fn queue(edge: &Edge, intentions: &[Intention<'_>]) -> Result<QueuedWrite, RefusedProposal> {
    let bytes = intentions.iter().map(Intention::size_hint).sum();
    let permit = edge.shared.admit(intentions, bytes);
    let permit = permit.map_err(|exhausted| Box::new((None, busy(exhausted))))?;
    let proposal = edge.shared.propose(intentions).map_err(|error| {
        let index = match error {
            StoreError::Refused { index, .. } => Some(index),
            _ => None,
        };
        Box::new((index, problems::of_store(&error)))
    })?;
    Ok(QueuedWrite::new(&edge.shared.admission, proposal, permit))
}

/// Waits for the store, up to `store_timeout`.
pub(crate) async fn outcomes(edge: &Edge, queued: QueuedWrite) -> Result<Outcomes, Problem> {
    let limit = edge.shared.config.store_timeout;
    let Ok(result) = tokio::time::timeout(limit, queued).await else {
        edge.shared.metrics.timeout("store");
        return Err(timed_out());
    };
    result.map_err(|error| problems::of_store(&error))
}

pub(crate) fn first(result: Result<Outcomes, StoreError>) -> Result<Outcome, Problem> {
    let outcomes = result.map_err(|error| problems::of_store(&error))?;
    let run = outcomes.runs().first();
    run.map(|run| run.outcome.clone())
        .ok_or_else(|| Problem::new(Kind::Internal, "the store returned no outcome"))
}

/// The problem of a write without an outcome in time.
pub(crate) fn timed_out() -> Problem {
    Problem::new(Kind::CommitTimeout, "the write may still be executed; a retry with its nonce or idempotency key returns its outcome")
        .code(ErrorCode::Indeterminate)
}

/// The problem of a nonce that was not executed.
pub(crate) fn refused(code: ErrorCode, expected: u64) -> Problem {
    let problem = Problem::new(problem::kind_of(code), code.sentence()).code(code);
    match code {
        ErrorCode::NonceGap | ErrorCode::NonceReused if expected != ONCE => {
            problem.number("expected", expected)
        }
        // The table is full until old keys or sessions expire.
        ErrorCode::Busy => {
            let (detail, max) = if expected == ONCE {
                (STORE_KEYS_FULL, ONCE_IDS_MAX)
            } else {
                (STORE_SESSIONS_FULL, SESSIONS_MAX)
            };
            let problem = Problem::new(Kind::Busy, detail).code(code);
            let mut problem = problem.number("limit", max as u64);
            problem.retry_after_ms = Some(KEYS_FULL_RETRY_MS);
            problem
        }
        _ => problem,
    }
}

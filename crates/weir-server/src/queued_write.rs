//! A write in the queue of the store, until its verdict.
//!
//! Invariants, also for a write whose caller does not wait for the verdict:
//! - Its permit is released only after the verdict. Otherwise, a client that cancels its requests
//!   could fill the queue.
//! - Its fuel is charged when the verdict arrives.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;
use weir_core::{Outcome, Outcomes};
use weir_store::{Proposal, StoreError};

use crate::limits::admission::{Admission, Permit};
use crate::security::{Principal, Security};

/// A write in the queue of the store. As a future, it returns the outcomes. If it is dropped before
/// the verdict, a task waits for the verdict instead.
pub(crate) struct QueuedWrite(Option<InFlight>);

/// The proposal of a write, and what is released after its verdict.
struct InFlight {
    proposal: Proposal,
    /// The principal that is charged; `None`: a write of the server itself.
    payer: Option<(Arc<Security>, Arc<Principal>)>,
    _permit: Permit,
    held: Vec<Box<dyn Send + Sync>>,
}

impl QueuedWrite {
    pub(crate) fn new(admission: &Admission, proposal: Proposal, permit: Permit) -> Self {
        let permit = admission.move_to_lane(permit, &proposal);
        Self(Some(InFlight {
            proposal,
            payer: None,
            _permit: permit,
            held: Vec::new(),
        }))
    }

    /// Charges the fuel of the write to a principal.
    #[must_use]
    pub(crate) fn charged_to(
        mut self,
        security: &Arc<Security>,
        principal: &Arc<Principal>,
    ) -> Self {
        if let Some(in_flight) = &mut self.0 {
            in_flight.payer = Some((Arc::clone(security), Arc::clone(principal)));
        }
        self
    }

    /// Keeps a value until the verdict.
    pub(crate) fn hold(&mut self, value: Option<impl Send + Sync + 'static>) {
        if let (Some(in_flight), Some(value)) = (&mut self.0, value) {
            in_flight.held.push(Box::new(value));
        }
    }
}

impl Future for QueuedWrite {
    type Output = Result<Outcomes, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(in_flight) = &mut self.0 else {
            return Poll::Pending;
        };
        let result = ready!(Pin::new(in_flight).poll(context));
        self.0 = None;
        Poll::Ready(result)
    }
}

impl Future for InFlight {
    type Output = Result<Outcomes, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(Pin::new(&mut self.proposal).poll(context));
        if let (Ok(outcomes), Some((security, principal))) = (&result, &self.payer) {
            security.charge_fuel(principal, fuel(outcomes));
        }
        Poll::Ready(result)
    }
}

/// Returns the fuel that programs used for these outcomes. A replayed outcome used none.
fn fuel(outcomes: &Outcomes) -> u64 {
    let runs = outcomes.runs().iter();
    let used = runs.map(|run| match &run.outcome {
        Outcome::Committed(commit) => commit.fuel.saturating_mul(u64::from(run.count)),
        _ => 0,
    });
    used.fold(0, u64::saturating_add)
}

impl Drop for QueuedWrite {
    fn drop(&mut self) {
        if let Some(in_flight) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move { drop(in_flight.await) });
        }
    }
}

impl fmt::Debug for QueuedWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedWrite").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::sync::Arc;

    use weir_core::{Commit, ConsequenceOffset, Detail, Effect, IntentionOffset};
    use weir_core::{Outcome, OutcomeRun, Outcomes};
    use weir_store::Proposal;

    use super::QueuedWrite;
    use crate::config::{Rate, ServerConfig};
    use crate::limits::admission::Admission;
    use crate::security::Security;

    #[tokio::test]
    async fn a_dropped_write_keeps_its_permit_until_the_verdict() {
        let admission = Admission::default();
        let (proposal, answer) = Proposal::pair();
        let mut queued = QueuedWrite::new(&admission, proposal, admission.admit(100).unwrap());
        let held = Arc::new(());
        queued.hold(Some(Arc::clone(&held)));
        drop(queued);
        tokio::task::yield_now().await;
        assert_eq!(admission.bytes(), 100);
        assert_eq!(Arc::strong_count(&held), 2);
        answer.complete(Ok(Outcomes::default()));
        while admission.bytes() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[tokio::test]
    async fn the_fuel_of_a_dropped_write_is_charged() {
        let config = ServerConfig {
            rate_fuel: Rate::Units(10),
            ..ServerConfig::default()
        };
        let security = Arc::new(Security::open(&config).unwrap());
        let peer = "192.0.2.1:7".parse().unwrap();
        let principal = Arc::new(security.caller(Some(peer), None));
        let admission = Admission::default();
        let (proposal, answer) = Proposal::pair();
        let permit = admission.admit(100).unwrap();
        drop(QueuedWrite::new(&admission, proposal, permit).charged_to(&security, &principal));
        security.admit(&principal, 1, 1).unwrap();
        let commit = Commit {
            nonce: 0,
            effect: Effect::Valid,
            reason: None,
            detail: Detail::None,
            intention: IntentionOffset(1),
            first: ConsequenceOffset(1),
            records: 1,
            fuel: 50,
        };
        let mut outcomes = Outcomes::default();
        outcomes.push_run(OutcomeRun {
            count: 20,
            outcome: Outcome::Committed(commit),
        });
        answer.complete(Ok(outcomes));
        while admission.bytes() > 0 {
            tokio::task::yield_now().await;
        }
        // A debt of 1000 units.
        let wait = security.admit(&principal, 1, 1).unwrap_err();
        assert!(wait.as_secs() > 90, "{wait:?}");
    }
}

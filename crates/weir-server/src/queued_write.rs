//! A write in the queue of the store, until its verdict.
//!
//! Invariant: the permit of a write is released only after its verdict, even if the caller does not
//! wait for the verdict. Otherwise, a client that cancels its requests could fill the queue.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;
use weir_core::Outcomes;
use weir_store::{Proposal, StoreError};

use crate::limits::admission::{Admission, Permit};

/// A write in the queue of the store. As a future, it returns the outcomes. If it is dropped before
/// the verdict, a task waits for the verdict instead.
pub(crate) struct QueuedWrite(Option<InFlight>);

/// The proposal of a write, and what is released after its verdict.
struct InFlight {
    proposal: Proposal,
    _permit: Permit,
    held: Vec<Box<dyn Send>>,
}

impl QueuedWrite {
    pub(crate) fn new(admission: &Admission, proposal: Proposal, permit: Permit) -> Self {
        let permit = admission.move_to_lane(permit, &proposal);
        Self(Some(InFlight {
            proposal,
            _permit: permit,
            held: Vec::new(),
        }))
    }

    /// Keeps a value until the verdict.
    pub(crate) fn hold(&mut self, value: Option<impl Send + 'static>) {
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
        Pin::new(&mut self.proposal).poll(context)
    }
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

    use weir_core::Outcomes;
    use weir_store::Proposal;

    use super::QueuedWrite;
    use crate::limits::admission::Admission;

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
}

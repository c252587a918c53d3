//! A proposed write that waits for the store.
//!
//! Invariants:
//! - The server responds only after the store does, except to clients that request no verdict.
//! - Memory that is reserved for a write is released only after its verdict.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use weir_store::Proposal;

use super::plan::Plan;
use crate::http::exchange::{Pending, Started};
use crate::http::problem::Problem;
use crate::http::reply::{Boxed, Reply};
use crate::limits::admission::Permit;
use crate::resources::context::{Call, Edge};
use crate::resources::propose::{charge, first, timed_out};

/// A write that waits for the store.
pub(crate) struct PendingWrite {
    pub(super) edge: Arc<Edge>,
    pub(super) call: Box<Call>,
    pub(super) plan: Plan,
    pub(super) proposal: Option<Proposal>,
    pub(super) permit: Option<Permit>,
    /// A conflict whose unseen records are being read, and the plain conflict.
    pub(super) telling: Option<(Boxed<'static, Problem>, Problem)>,
}

impl PendingWrite {
    pub(super) fn start(mut self) -> Started {
        if !self.plan.detached {
            return Started::Commit(Box::new(self));
        }
        self.detach();
        let reply = Reply::new(202).field("preference-applied", "respond-async");
        Started::Done(self.edge.finish(&self.call, Ok(reply)))
    }

    /// Lets the write finish without a waiting client. Its reservations are released after the
    /// verdict.
    fn detach(&mut self) {
        let held = (self.permit.take(), self.plan.session.keyed.take());
        if let Some(proposal) = self.proposal.take() {
            tokio::spawn(async move {
                drop(proposal.await);
                drop(held);
            });
        }
    }
}

impl Pending for PendingWrite {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Reply> {
        if let Some((telling, _)) = &mut self.telling {
            let Poll::Ready(problem) = telling.as_mut().poll(context) else {
                return Poll::Pending;
            };
            self.telling = None;
            return Poll::Ready(self.edge.finish(&self.call, Err(problem)));
        }
        let Some(proposal) = &mut self.proposal else {
            return Poll::Pending;
        };
        let waker = self.edge.shared.wake_batches.waker(context.waker());
        let mut turned = Context::from_waker(&waker);
        let Poll::Ready(result) = Pin::new(proposal).poll(&mut turned) else {
            return Poll::Pending;
        };
        self.proposal = None;
        self.permit = None;
        let mut unseen = None;
        let result = match first(result) {
            Ok(outcome) => {
                charge(&self.edge, &self.call, &outcome);
                unseen = self.plan.unseen(&self.edge, &self.call, &outcome);
                self.plan.answer(&self.call, &outcome)
            }
            Err(problem) => Err(problem),
        };
        self.plan.session.keyed = None;
        let result = match (result, unseen) {
            (Err(problem), Some(unseen)) => {
                let plain = problem.clone();
                self.telling = Some((Box::pin(unseen.add_to(problem)), plain));
                return Pending::poll(self, context);
            }
            (result, _) => result,
        };
        Poll::Ready(self.edge.finish(&self.call, result))
    }

    fn expire(&mut self) -> Reply {
        if let Some((_, conflict)) = self.telling.take() {
            // The verdict is known; the client can read the unseen records separately.
            return self.edge.finish(&self.call, Err(conflict));
        }
        self.detach();
        self.edge.shared.metrics.timeout("store");
        self.edge.finish(&self.call, Err(timed_out()))
    }
}

impl Drop for PendingWrite {
    fn drop(&mut self) {
        // The client disconnected, but its bytes are still in the queue.
        if self.proposal.is_some() && tokio::runtime::Handle::try_current().is_ok() {
            self.detach();
        }
    }
}

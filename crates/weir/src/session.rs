//! Sessions: a writer with numbered intentions.

use std::time::Duration;

use weir_core::{ClientId, Intention};
use weir_store::Proposal;

use crate::backend::{Backend, Route};
use crate::error::WeirError;
use crate::verdict::Verdict;

/// A writer whose intentions are executed exactly once. One at a time per
/// client id.
#[derive(Debug)]
pub struct Session {
    client: ClientId,
    route: Route,
}

/// Verdicts that are on their way.
#[derive(Debug)]
pub struct Pending {
    proposal: Proposal,
    first: u64,
}

impl Session {
    pub(crate) fn new(backend: &Backend, client: ClientId) -> Self {
        let route = backend.session(client);
        Self { client, route }
    }

    /// The client id.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// The number of the next intention: one more than the last one that was
    /// sent, or that the store knows. 1 while a server cannot be asked.
    #[must_use]
    pub fn next_nonce(&self) -> u64 {
        self.route.next()
    }

    /// Returns the next nonce, or an error if the store cannot be asked.
    ///
    /// # Errors
    /// When a server cannot be reached; never for a store of this process.
    pub fn try_next_nonce(&self) -> Result<u64, WeirError> {
        Ok(self.route.try_next()?)
    }

    /// Goes back to a nonce whose answer was not seen; the store answers those
    /// it knows and executes the others. Over a connection, what is in flight
    /// is waited for first; a wait that is broken off leaves it where it is.
    pub fn resume(&mut self, nonce: u64) {
        drop(self.try_resume(nonce));
    }

    /// Goes back to a nonce as [`resume`](Self::resume) does, or fails.
    ///
    /// # Errors
    /// `Remote` with `Cancelled` when the wait was broken off
    /// ([`interruptible`](crate::interruptible)).
    pub fn try_resume(&mut self, nonce: u64) -> Result<(), WeirError> {
        Ok(self.route.rewind(nonce)?)
    }

    /// Sends intentions under the next nonces without waiting. What the
    /// intentions say of client and nonce is replaced.
    pub fn send(&mut self, intentions: &[Intention<'_>]) -> Result<Pending, WeirError> {
        let (proposal, first) = self.route.propose(self.client, intentions)?;
        Ok(Pending { proposal, first })
    }

    /// Sends intentions and waits for their verdicts, in order.
    pub fn execute(&mut self, intentions: &[Intention<'_>]) -> Result<Vec<Verdict>, WeirError> {
        self.send(intentions)?.wait()
    }
}

impl Pending {
    /// Waits for the verdicts, in order of the nonces.
    pub fn wait(self) -> Result<Vec<Verdict>, WeirError> {
        let outcomes = self.proposal.wait()?;
        let numbered = (self.first..).zip(outcomes.iter());
        numbered
            .map(|(nonce, outcome)| Verdict::from_outcome(&outcome, nonce))
            .collect()
    }

    /// Waits for at most `time` until the intentions are queued for the log, which promises nothing,
    /// or answered. Returns `false` if they are not by then. In a store of this process they are
    /// from the start; a server says it where [`ConnectOptions::received`](crate::ConnectOptions)
    /// is set.
    #[must_use]
    pub fn wait_received(&self, time: Duration) -> bool {
        self.proposal.wait_received(time)
    }

    /// Whether [`wait`](Self::wait) would return at once.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.proposal.is_done()
    }

    /// The run-length coded answers, to be waited for or awaited.
    #[must_use]
    pub fn into_proposal(self) -> Proposal {
        self.proposal
    }
}

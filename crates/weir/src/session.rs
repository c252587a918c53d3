//! Sessions: clients whose intentions are numbered.

use std::time::Duration;

use weir_core::{ClientId, Intention};
use weir_store::{Proposal, Store};

use crate::backend::{Backend, Route};
use crate::error::WeirError;
use crate::verdict::Verdict;

/// A writer whose intentions are executed exactly once. A client id may have one session at a time.
#[derive(Debug)]
pub struct Session {
    client: ClientId,
    route: Route,
}

/// Verdicts of intentions that were sent.
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

    /// The nonce of the next intention: one after the last nonce that was sent, or that the store
    /// knows. At a server, waits like [`try_next_nonce`](Self::try_next_nonce), and returns 1 if that
    /// fails.
    #[must_use]
    pub fn next_nonce(&self) -> u64 {
        self.route.next()
    }

    /// Returns the next nonce. At a server, waits for the connection of the session, up to
    /// [`ConnectOptions::patience`](crate::ConnectOptions).
    ///
    /// # Errors
    /// `Remote` with the code of the newest refusal by a server, such as `NoLeader`, or with
    /// `Unreachable`; never for a store of this process.
    pub fn try_next_nonce(&self) -> Result<u64, WeirError> {
        Ok(self.route.try_next()?)
    }

    /// Continues at a nonce whose response was not seen. The store returns the stored verdicts for
    /// nonces that it knows, and executes the others. Over a connection, first waits for the writes
    /// in flight. If that wait is cancelled, the position does not change.
    pub fn resume(&mut self, nonce: u64) {
        drop(self.try_resume(nonce));
    }

    /// Continues at a nonce as [`resume`](Self::resume) does, or fails.
    ///
    /// # Errors
    /// `Remote` with `Cancelled` if the wait was cancelled
    /// ([`interruptible`](crate::interruptible)).
    pub fn try_resume(&mut self, nonce: u64) -> Result<(), WeirError> {
        Ok(self.route.rewind(nonce)?)
    }

    /// Sends intentions under the next nonces. Does not wait for their verdicts. Replaces the client
    /// and nonce of the intentions. At a server, the first call of a session waits for its connection
    /// like [`try_next_nonce`](Self::try_next_nonce).
    pub fn send(&mut self, intentions: &[Intention<'_>]) -> Result<Pending, WeirError> {
        let (proposal, first) = self
            .route
            .propose(self.client, intentions, Store::propose)?;
        Ok(Pending { proposal, first })
    }

    /// Sends intentions under the next nonces for a caller that waits for the verdicts at once. In a
    /// local store, this thread may commit them, as with
    /// [`Weir::propose_inline`](crate::Weir::propose_inline).
    pub fn send_inline(&mut self, intentions: &[Intention<'_>]) -> Result<Pending, WeirError> {
        let (proposal, first) =
            self.route
                .propose(self.client, intentions, Store::propose_inline)?;
        Ok(Pending { proposal, first })
    }

    /// Sends intentions and waits for their verdicts. Returns them in order.
    pub fn execute(&mut self, intentions: &[Intention<'_>]) -> Result<Vec<Verdict>, WeirError> {
        self.send_inline(intentions)?.wait()
    }
}

impl Pending {
    /// Waits for the verdicts. Returns them in order of their nonces.
    pub fn wait(self) -> Result<Vec<Verdict>, WeirError> {
        let outcomes = self.proposal.wait()?;
        let numbered = (self.first..).zip(outcomes.iter());
        numbered
            .map(|(nonce, outcome)| Verdict::from_outcome(&outcome, nonce))
            .collect()
    }

    /// Waits for at most `time` until the intentions are queued for the log, or have verdicts.
    /// Returns `false` if neither is the case by then. A queued intention is not durable. In a
    /// local store, intentions are queued when they are sent. A server reports it only with
    /// [`ConnectOptions::received`](crate::ConnectOptions).
    #[must_use]
    pub fn wait_received(&self, time: Duration) -> bool {
        self.proposal.wait_received(time)
    }

    /// Whether [`wait`](Self::wait) would return at once.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.proposal.is_done()
    }

    /// The run-length coded outcomes, to be waited for or awaited.
    #[must_use]
    pub fn into_proposal(self) -> Proposal {
        self.proposal
    }
}

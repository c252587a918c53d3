//! Sessions: a writer with numbered intentions.

use std::sync::Arc;

use weir_core::{ClientId, ErrorCode, Intention};
use weir_store::{Proposal, Store, StoreError};

use crate::backend::Backend;
use crate::error::WeirError;
use crate::error::remote_error;
use crate::remote::link::Link;
use crate::verdict::Verdict;

/// A writer whose intentions are executed exactly once. One at a time per
/// client id.
#[derive(Debug)]
pub struct Session {
    client: ClientId,
    route: Route,
}

/// How the session's intentions travel.
#[derive(Debug)]
enum Route {
    /// Straight to the store; the session counts them.
    Local { store: Arc<Store>, next: u64 },
    /// Over a connection of its own, which counts them.
    Remote(Result<Link, (ErrorCode, String)>),
}

/// Verdicts that are on their way.
#[derive(Debug)]
pub struct Pending {
    proposal: Proposal,
    first: u64,
}

impl Session {
    pub(crate) fn new(backend: &Backend, client: ClientId) -> Self {
        let route = match backend {
            Backend::Local(store) => Route::Local {
                next: store.last_nonce(client) + 1,
                store: Arc::clone(store),
            },
            Backend::Remote(remote) => {
                Route::Remote(remote.session(client).map_err(|error| match error {
                    StoreError::Remote { code, text } => (code, text),
                    other => (ErrorCode::Io, other.to_string()),
                }))
            }
        };
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
        match &self.route {
            Route::Local { next, .. } => *next,
            Route::Remote(Ok(link)) => link.next(),
            Route::Remote(Err(_)) => 1,
        }
    }

    /// Returns the next nonce, or an error if the store cannot be asked.
    ///
    /// # Errors
    /// When a server cannot be reached; never for a store of this process.
    pub fn try_next_nonce(&self) -> Result<u64, WeirError> {
        match &self.route {
            Route::Local { next, .. } => Ok(*next),
            Route::Remote(Ok(link)) => Ok(link.try_next()?),
            Route::Remote(Err((code, text))) => Err(remote_error(*code, text.clone()).into()),
        }
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
        match &mut self.route {
            Route::Local { next, .. } => *next = nonce,
            Route::Remote(Ok(link)) => link.rewind(nonce)?,
            Route::Remote(Err(_)) => {}
        }
        Ok(())
    }

    /// Sends intentions under the next nonces without waiting. What the
    /// intentions say of client and nonce is replaced.
    pub fn send(&mut self, intentions: &[Intention<'_>]) -> Result<Pending, WeirError> {
        let (store, next) = match &mut self.route {
            Route::Local { store, next } => (store, next),
            Route::Remote(Ok(link)) => {
                let (proposal, first) = link.propose(intentions)?;
                return Ok(Pending { proposal, first });
            }
            Route::Remote(Err((code, text))) => {
                return Err(remote_error(*code, text.clone()).into());
            }
        };
        let first = *next;
        let proposal = match intentions {
            [one] => store.propose(&[one.under(self.client, first)])?,
            many => {
                let numbered: Vec<Intention<'_>> = (first..)
                    .zip(many)
                    .map(|(nonce, intention)| intention.under(self.client, nonce))
                    .collect();
                store.propose(&numbered)?
            }
        };
        *next += intentions.len() as u64;
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

//! Sessions: a writer with numbered intentions.

use std::sync::Arc;

use weir_core::{ClientId, Intention};
use weir_store::{Proposal, Store};

use crate::error::WeirError;
use crate::verdict::Verdict;

/// A writer whose intentions are executed exactly once. One at a time per
/// client id.
#[derive(Debug)]
pub struct Session {
    store: Arc<Store>,
    client: ClientId,
    next: u64,
}

/// Verdicts that are on their way.
#[derive(Debug)]
pub struct Pending {
    proposal: Proposal,
    first: u64,
}

impl Session {
    pub(crate) fn new(store: Arc<Store>, client: ClientId) -> Self {
        let next = store.last_nonce(client) + 1;
        Self {
            store,
            client,
            next,
        }
    }

    /// The client id.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// The number of the next intention: one more than the last one that was
    /// sent, or that the store knows.
    #[must_use]
    pub fn next_nonce(&self) -> u64 {
        self.next
    }

    /// Goes back to a nonce whose answer was not seen; the store answers those
    /// it knows and executes the others.
    pub fn resume(&mut self, nonce: u64) {
        self.next = nonce;
    }

    /// Sends intentions under the next nonces without waiting. What the
    /// intentions say of client and nonce is replaced.
    pub fn send(&mut self, intentions: &[Intention<'_>]) -> Result<Pending, WeirError> {
        let first = self.next;
        let proposal = match intentions {
            [one] => self.store.propose(&[one.under(self.client, first)])?,
            many => {
                let numbered: Vec<Intention<'_>> = (first..)
                    .zip(many)
                    .map(|(nonce, intention)| intention.under(self.client, nonce))
                    .collect();
                self.store.propose(&numbered)?
            }
        };
        self.next += intentions.len() as u64;
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

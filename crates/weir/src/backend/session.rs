//! Sends the numbered intentions of a session to the store.

use std::sync::Arc;

use weir_core::{ClientId, ErrorCode, Intention};
use weir_store::{Proposal, Store, StoreError};

use super::Backend;
use crate::error::remote_error;
use crate::remote::link::Link;

/// How the intentions of a session reach the store.
#[derive(Debug)]
pub(crate) enum Route {
    /// Directly to the local store. The session assigns the nonces.
    Local { store: Arc<Store>, next: u64 },
    /// Over a separate connection, which assigns the nonces; or the reason why there is none.
    Remote(Result<Link, (ErrorCode, String)>),
}

impl Backend {
    pub(crate) fn session(&self, client: ClientId) -> Route {
        match self {
            Self::Local(store) => Route::Local {
                next: store.last_nonce(client) + 1,
                store: Arc::clone(store),
            },
            Self::Remote(remote) => {
                Route::Remote(remote.session(client).map_err(|error| match error {
                    StoreError::Remote { code, text } => (code, text),
                    other => (ErrorCode::Io, other.to_string()),
                }))
            }
        }
    }
}

impl Route {
    /// The next nonce; 1 while a server cannot be reached.
    pub(crate) fn next(&self) -> u64 {
        match self {
            Self::Local { next, .. } => *next,
            Self::Remote(Ok(link)) => link.next(),
            Self::Remote(Err(_)) => 1,
        }
    }

    /// The next nonce, or an error if a server cannot be reached.
    pub(crate) fn try_next(&self) -> Result<u64, StoreError> {
        match self {
            Self::Local { next, .. } => Ok(*next),
            Self::Remote(Ok(link)) => link.try_next(),
            Self::Remote(Err((code, text))) => Err(remote_error(*code, text.clone())),
        }
    }

    /// Continues at `nonce`. Over a connection, first waits for the writes in flight.
    pub(crate) fn rewind(&mut self, nonce: u64) -> Result<(), StoreError> {
        match self {
            Self::Local { next, .. } => *next = nonce,
            Self::Remote(Ok(link)) => link.rewind(nonce)?,
            Self::Remote(Err(_)) => {}
        }
        Ok(())
    }

    /// Proposes intentions under the next nonces of a client, to a local store by `propose`. Also
    /// returns the first nonce.
    pub(crate) fn propose(
        &mut self,
        client: ClientId,
        intentions: &[Intention<'_>],
        propose: fn(&Store, &[Intention<'_>]) -> Result<Proposal, StoreError>,
    ) -> Result<(Proposal, u64), StoreError> {
        let (store, next) = match self {
            Self::Local { store, next } => (store, next),
            Self::Remote(Ok(link)) => return link.propose(intentions),
            Self::Remote(Err((code, text))) => return Err(remote_error(*code, text.clone())),
        };
        let first = *next;
        let proposal = match intentions {
            [one] => propose(store, &[one.under(client, first)])?,
            many => {
                let numbered: Vec<Intention<'_>> = (first..)
                    .zip(many)
                    .map(|(nonce, intention)| intention.under(client, nonce))
                    .collect();
                propose(store, &numbered)?
            }
        };
        *next += intentions.len() as u64;
        Ok((proposal, first))
    }
}

//! Sessions: writers whose intentions are executed exactly once.

use std::sync::{Arc, Mutex};

use napi::Env;
use napi::bindgen_prelude::{BigInt, Object};
use napi_derive::napi;

use crate::input::{self, OpIn};
use crate::pool;
use crate::reader::with_lock;
use crate::verdict;

/// A writer whose intentions are executed exactly once.
#[napi]
pub struct Session(Arc<Mutex<weir::Session>>);

impl Session {
    pub(crate) fn new(session: weir::Session) -> Self {
        Self(Arc::new(Mutex::new(session)))
    }
}

#[napi]
impl Session {
    /// The number of the next intention.
    #[napi]
    pub fn next_nonce<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        let session = Arc::clone(&self.0);
        pool::promise(env, move || {
            with_lock(&session, |session| {
                Ok(BigInt::from(session.try_next_nonce()?))
            })
        })
    }

    /// Sets the next nonce back.
    #[napi]
    pub fn resume<'env>(&self, env: &'env Env, nonce: BigInt) -> napi::Result<Object<'env>> {
        let session = Arc::clone(&self.0);
        let nonce = input::number("a nonce", &nonce)?;
        pool::promise(env, move || {
            with_lock(&session, |session| Ok(session.try_resume(nonce)?))
        })
    }

    /// Sends intentions with the next nonces.
    #[napi]
    pub fn send<'env>(&self, env: &'env Env, ops: Vec<OpIn>) -> napi::Result<Object<'env>> {
        let (owned, _) = input::to_owned_intentions(ops)?;
        let borrowed = input::borrow(&owned)?;
        let proposal = with_lock(&self.0, |session| {
            Ok(session.send(&input::intentions(&borrowed))?.into_proposal())
        })?;
        verdict::promise(env, proposal)
    }

    /// Like `send`. Returns two promises: that the intentions are queued for the log, and of their
    /// verdicts.
    #[napi]
    pub fn send_with_receipt<'env>(
        &self,
        env: &'env Env,
        ops: Vec<OpIn>,
    ) -> napi::Result<Vec<Object<'env>>> {
        let (owned, _) = input::to_owned_intentions(ops)?;
        let borrowed = input::borrow(&owned)?;
        let proposal = with_lock(&self.0, |session| {
            Ok(session.send(&input::intentions(&borrowed))?.into_proposal())
        })?;
        verdict::promises(env, proposal)
    }
}

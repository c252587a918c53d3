//! Verdicts, and promises of them, which occupy no thread.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use napi::bindgen_prelude::{BigInt, Object};
use napi::{Env, JsDeferred};
use napi_derive::napi;
use weir::{Commit, Detail, ErrorCode, Outcome, Outcomes, Proposal, StoreError};

use crate::error::{Failure, Result};
use crate::pool::Resolver;

/// A verdict, as passed to JavaScript.
#[napi(object)]
pub struct VerdictOut {
    pub effect: String,
    pub reason: Option<String>,
    pub number: Option<u32>,
    /// The meaning of the reason, with the details.
    pub explanation: Option<String>,
    pub detail: Option<DetailOut>,
    pub intention: BigInt,
    pub offset: Option<BigInt>,
    pub records: u32,
    pub replayed: bool,
    pub fuel: BigInt,
}

/// Details of the reason.
#[napi(object)]
#[derive(Default)]
pub struct DetailOut {
    pub actual: Option<BigInt>,
    pub limit: Option<BigInt>,
    pub index: Option<u32>,
    pub reason: Option<String>,
    pub code: Option<u32>,
    pub text: Option<String>,
    pub trap: Option<String>,
}

impl VerdictOut {
    /// Converts a verdict of the store.
    pub(crate) fn new(commit: &Commit, replayed: bool) -> Self {
        let detail = match &commit.detail {
            Detail::None => None,
            Detail::Actual(offset) => Some(DetailOut {
                actual: Some((*offset).into()),
                ..DetailOut::default()
            }),
            Detail::Limit(limit) => Some(DetailOut {
                limit: Some((*limit).into()),
                ..DetailOut::default()
            }),
            Detail::Operation { index, reason } => Some(DetailOut {
                index: Some(*index),
                reason: Some(reason.name().to_owned()),
                ..DetailOut::default()
            }),
            Detail::Rejected { code, text } => Some(DetailOut {
                code: Some(u32::from(*code)),
                text: Some(text.to_string()),
                ..DetailOut::default()
            }),
            Detail::Trapped(kind) => Some(DetailOut {
                trap: Some(kind.name().to_owned()),
                ..DetailOut::default()
            }),
            Detail::Text(text) => Some(DetailOut {
                text: Some(text.to_string()),
                ..DetailOut::default()
            }),
        };
        Self {
            effect: commit.effect.name().to_owned(),
            reason: commit.reason.map(|code| code.name().to_owned()),
            number: commit.reason.map(|code| u32::from(code.number())),
            explanation: commit.reason.map(|code| explanation(code, &commit.detail)),
            detail,
            intention: commit.intention.0.into(),
            offset: (commit.records > 0).then(|| commit.first.0.into()),
            records: commit.records,
            replayed,
            fuel: commit.fuel.into(),
        }
    }

    /// The verdicts of all intentions of a call.
    pub(crate) fn all(outcomes: &Outcomes) -> Result<Vec<Self>> {
        outcomes
            .iter()
            .map(|outcome| match outcome {
                Outcome::Committed(commit) => Ok(Self::new(&commit, false)),
                Outcome::Replayed(commit) => Ok(Self::new(&commit, true)),
                Outcome::Refused { code, expected } => Err(Failure::nonce(code, expected)),
            })
            .collect()
    }
}

/// The meaning of a reason, with its details.
fn explanation(code: ErrorCode, detail: &Detail) -> String {
    let detail = detail.to_string();
    if detail.is_empty() {
        code.sentence().to_owned()
    } else {
        format!("{} ({detail})", code.sentence())
    }
}

/// Throws the error for a verdict with the given number of its reason.
///
/// # Errors
/// The error with this number, always.
#[napi]
pub fn verdict_error(number: u32, explanation: String) -> napi::Result<()> {
    let code = u16::try_from(number).ok().and_then(ErrorCode::from_number);
    let code = code.ok_or_else(|| Failure::option("a reason", &number.to_string()))?;
    Err(Failure::new(code, explanation).into())
}

type Deferred = JsDeferred<Vec<VerdictOut>, Resolver<Vec<VerdictOut>>>;

/// A promise that resolves when the writes are queued for the log.
type Received = JsDeferred<(), Resolver<()>>;

/// Writes that were sent, and their promises.
struct PendingWrite {
    proposal: Proposal,
    received: Option<Received>,
    deferred: Deferred,
}

/// Resolves the promises of sent writes.
struct PromiseWaker(Mutex<Option<PendingWrite>>);

impl Wake for PromiseWaker {
    fn wake(self: Arc<Self>) {
        self.poll_proposal();
    }
}

impl PromiseWaker {
    fn poll_proposal(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(write) = pending.as_mut() else {
            return;
        };
        let mut context = Context::from_waker(&waker);
        if write.received.is_some() {
            if write.proposal.poll_received(&mut context).is_pending() {
                return;
            }
            if let Some(received) = write.received.take() {
                received.resolve(Box::new(|_| Ok(())));
            }
        }
        let Poll::Ready(result) = Pin::new(&mut write.proposal).poll(&mut context) else {
            return;
        };
        let Some(PendingWrite { deferred, .. }) = pending.take() else {
            return;
        };
        drop(pending);
        settle(deferred, result);
    }
}

fn settle(deferred: Deferred, result: Result<Outcomes, StoreError>) {
    match result.map_err(Failure::from) {
        // JavaScript objects are created on the thread of the event loop, not on that of the store.
        Ok(outcomes) => deferred.resolve(Box::new(move |_| Ok(VerdictOut::all(&outcomes)?))),
        Err(failure) => deferred.reject(failure.into()),
    }
}

/// Returns a promise of the verdicts of a proposal.
///
/// # Errors
/// If the runtime cannot create a promise.
pub(crate) fn promise(env: &Env, proposal: Proposal) -> napi::Result<Object<'_>> {
    let (deferred, promise) = env.create_deferred()?;
    let write = PendingWrite {
        proposal,
        received: None,
        deferred,
    };
    Arc::new(PromiseWaker(Mutex::new(Some(write)))).poll_proposal();
    Ok(promise)
}

/// Returns two promises: one resolves when the intentions of a proposal are queued for the log, the
/// other with their verdicts.
///
/// # Errors
/// If the runtime cannot create a promise.
pub(crate) fn promises(env: &Env, proposal: Proposal) -> napi::Result<Vec<Object<'_>>> {
    let (received, first) = env.create_deferred()?;
    let (deferred, second) = env.create_deferred()?;
    let write = PendingWrite {
        proposal,
        received: Some(received),
        deferred,
    };
    Arc::new(PromiseWaker(Mutex::new(Some(write)))).poll_proposal();
    Ok(vec![first, second])
}

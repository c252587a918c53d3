//! Writes: reads the intentions of the caller, executes them, and returns verdicts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir::{
    ClientId, CodeHash, Commit, Detail, Effect, ErrorCode, Expect, Intention, Operation, Outcome,
    Outcomes, Proposal, TopicOptions, TxnOp,
};

use crate::deadline::{CHECK_INTERVAL, CancelToken, WaitContext};
use crate::error::{Fail, Kind, number};
use crate::handle::{Caller, ELEMENTS_MAX, zeroed};
use crate::page::Page;
use crate::raw;
use crate::registry::{self, Exclusive, ReservedSlot};
use crate::store::{Store, check_flags, get_store, topic_options};

/// Arrays of the intentions of the caller, in the form of the store.
#[derive(Default)]
struct Parts<'a> {
    expects: Vec<Expect<'a>>,
    steps: Vec<TxnOp<'a>>,
    options: Option<TopicOptions>,
}

fn parts<'a>(c: &'a Caller, from: &raw::Intention) -> Result<Parts<'a>, Fail> {
    let mut parts = Parts::default();
    for expect in c.array(from.expects, from.expect_count)? {
        let key = match expect.has_key {
            0 => None,
            _ => Some(c.short(expect.key)?),
        };
        parts.expects.push(match expect.kind {
            1 => Expect::KeyOffset(key, expect.offset),
            2 => Expect::KeyAbsent(key),
            3 => Expect::KeyPresent(key),
            4 => Expect::TopicOffset(expect.offset),
            5 => Expect::TopicAbsentOr(expect.offset),
            6 => Expect::TopicEmpty,
            7 => Expect::Incarnation(expect.offset),
            other => return Err(Fail::option("the kind of a condition", other)),
        });
    }
    for step in c.array(from.steps, from.step_count)? {
        check_flags(step.reserved, 0, "reserved")?;
        let (key, meta) = (c.short(step.key)?, c.short(step.meta)?);
        parts.steps.push(match step.operation {
            1 => TxnOp::Put {
                key,
                value: c.bytes(step.value)?,
                meta,
            },
            2 => TxnOp::Delete { key, meta },
            other => return Err(Fail::option("the operation of a step", other)),
        });
    }
    if matches!(from.operation, 4 | 6) {
        parts.options = Some(topic_options(c, from.options)?);
    }
    Ok(parts)
}

fn intention<'a>(
    c: &'a Caller,
    from: &raw::Intention,
    parts: &'a Parts<'a>,
) -> Result<Intention<'a>, Fail> {
    let options = || {
        let options = parts.options.as_ref();
        options.ok_or_else(|| Fail::of(ErrorCode::Internal))
    };
    let key = c.short(from.key)?;
    let (code, args) = (c.bytes(from.code)?, c.bytes(from.args)?);
    let operation = match from.operation {
        1 => Operation::Put {
            key,
            value: c.bytes(from.value)?,
        },
        2 => Operation::Delete { key },
        3 => Operation::Txn { ops: &parts.steps },
        4 if code.is_empty() => Operation::Create {
            options: options()?,
        },
        4 => Operation::CreateProgram {
            options: options()?,
            code,
            args,
        },
        5 => Operation::Destroy,
        6 => Operation::Alter {
            options: options()?,
        },
        7 => Operation::Replace {
            expected: match c.bytes(from.replaced)? {
                [] => None,
                hash => {
                    let hash = hash.try_into();
                    let hash = hash.map_err(|_| Fail::option("the hash", "not of 32 bytes"))?;
                    Some(CodeHash(hash))
                }
            },
            code,
            args,
        },
        other => return Err(Fail::option("the operation", other)),
    };
    let mut intention = Intention::new(c.text(from.topic, "the topic")?, operation);
    intention.expect = &parts.expects;
    intention.meta = c.short(from.meta)?;
    Ok(intention)
}

/// Reads the intentions of the caller and calls `action` with them.
fn with_intentions<T>(
    c: &Caller,
    intentions: *const raw::Intention,
    count: usize,
    action: impl FnOnce(&[Intention<'_>]) -> Result<T, Fail>,
) -> Result<T, Fail> {
    let given = c.stepped(intentions, count, ELEMENTS_MAX)?;
    if given.is_empty() {
        return Err(Fail::option("the number of intentions", 0));
    }
    let indexed = given.iter().enumerate();
    let all_parts: Vec<Parts<'_>> = indexed
        .map(|(at, from)| parts(c, from).map_err(|fail| fail.at_index(at)))
        .collect::<Result<_, _>>()?;
    let indexed = given.iter().zip(&all_parts).enumerate();
    let all: Vec<Intention<'_>> = indexed
        .map(|(at, (from, parts))| intention(c, from, parts).map_err(|fail| fail.at_index(at)))
        .collect::<Result<_, _>>()?;
    action(&all)
}

/// A verdict in the form of the caller, and its text.
fn verdict(outcome: &Outcome, nonce: u64) -> (raw::Verdict, Option<Arc<str>>) {
    let mut verdict = zeroed::<raw::Verdict>();
    let commit = match outcome {
        Outcome::Committed(commit) => commit,
        Outcome::Replayed(commit) => {
            verdict.flags = 1;
            commit
        }
        Outcome::Refused { code, expected } => {
            verdict.effect = 4;
            verdict.reason = number(*code);
            verdict.nonce = nonce;
            (verdict.detail_kind, verdict.detail) = (7, *expected);
            return (verdict, None);
        }
    };
    let text = detail(commit, &mut verdict);
    verdict.effect = match commit.effect {
        Effect::Valid => 1,
        Effect::Invalid => 2,
        Effect::Error => 3,
    };
    verdict.reason = commit.reason.map_or(0, number);
    verdict.intention = commit.intention.0;
    verdict.offset = if commit.records > 0 {
        commit.first.0
    } else {
        0
    };
    verdict.nonce = commit.nonce;
    verdict.fuel = commit.fuel;
    verdict.records = commit.records;
    (verdict, text)
}

fn detail(commit: &Commit, verdict: &mut raw::Verdict) -> Option<Arc<str>> {
    let (kind, value, text) = match &commit.detail {
        Detail::None => (0, 0, None),
        Detail::Actual(offset) => (1, *offset, None),
        Detail::Limit(limit) => (2, *limit, None),
        Detail::Operation { index, reason } => {
            verdict.detail_reason = number(*reason);
            (3, u64::from(*index), None)
        }
        Detail::Rejected { code, text } => (4, u64::from(*code), Some(Arc::clone(text))),
        Detail::Trapped(kind) => (5, *kind as u64, Some(Arc::from(kind.name()))),
        Detail::Text(text) => (6, 0, Some(Arc::clone(text))),
    };
    (verdict.detail_kind, verdict.detail) = (kind, value);
    text
}

/// Writes the verdicts of intentions. `nonce` is the nonce of the first one.
fn write_verdicts(
    c: &Caller,
    outcomes: &Outcomes,
    first: u64,
    verdicts: *mut raw::Verdict,
    texts: Option<TextsAt>,
) -> Result<Kind, Fail> {
    let mut owned_texts = Vec::new();
    let all: Vec<raw::Verdict> = (first..)
        .zip(outcomes.iter())
        .map(|(nonce, outcome)| {
            let (verdict, text) = verdict(&outcome, nonce);
            owned_texts.push(text);
            verdict
        })
        .collect();
    if let Some((slot, texts)) = texts {
        if owned_texts.iter().any(Option::is_some) {
            let owned_texts = owned_texts
                .iter()
                .map(|text| text.as_deref().unwrap_or_default());
            Page::texts(owned_texts).into_slot(slot, c, texts)?;
        } else {
            c.write(texts, std::ptr::null_mut())?;
        }
    }
    c.write_all(verdicts, &all)?;
    Ok(Kind::Ok)
}

/// The destination of the texts of verdicts.
type TextsAt = (ReservedSlot, *mut *mut raw::Page);

/// Checks that verdicts can be written, before the intentions are sent.
fn check_verdict_output(
    c: &Caller,
    verdicts: *mut raw::Verdict,
    count: usize,
    texts: *mut *mut raw::Page,
) -> Result<Option<TextsAt>, Fail> {
    if count > ELEMENTS_MAX {
        return Err(Fail::of(ErrorCode::BadLength));
    }
    c.check_output(verdicts, count)?;
    if texts.is_null() {
        return Ok(None);
    }
    c.check_output(texts, 1)?;
    Ok(Some((registry::reserve()?, texts)))
}

pub(crate) fn submit(
    c: &Caller,
    store: *mut raw::Weir,
    intentions: *const raw::Intention,
    count: usize,
    verdicts: *mut raw::Verdict,
    texts: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    let store = get_store(store)?;
    let texts = check_verdict_output(c, verdicts, count, texts)?;
    let waits = store.wait_context();
    // Nothing can end the commit of a caller.
    let propose = if waits.can_end() {
        weir::Weir::propose
    } else {
        weir::Weir::propose_inline
    };
    let propose = |all: &[Intention<'_>]| waits.run(|| Ok(propose(&store.weir, all)?));
    let proposal = with_intentions(c, intentions, count, propose)?;
    write_verdicts(c, &waits.verdicts(proposal)?, 0, verdicts, texts)
}

/// Pending verdicts, as a handle of the caller.
#[derive(Debug)]
pub(crate) struct Pending {
    /// `None` after the verdicts were returned.
    proposal: Exclusive<Option<Proposal>>,
    count: usize,
    first: u64,
    cancel_token: Arc<CancelToken>,
}

fn pending(
    c: &Caller,
    cancel_token: Arc<CancelToken>,
    proposal: Proposal,
    (count, first): (usize, u64),
    (slot, out): (ReservedSlot, *mut *mut raw::Pending),
) -> Result<Kind, Fail> {
    let pending = Pending {
        proposal: Exclusive::new(Some(proposal)),
        count,
        first,
        cancel_token,
    };
    c.write(out, slot.fill(Arc::new(pending))?)?;
    Ok(Kind::Ok)
}

pub(crate) fn send(
    c: &Caller,
    store: *mut raw::Weir,
    intentions: *const raw::Intention,
    count: usize,
    out: *mut *mut raw::Pending,
) -> Result<Kind, Fail> {
    let store = get_store(store)?;
    c.check_output(out, 1)?;
    let slot = registry::reserve()?;
    let propose = |all: &[Intention<'_>]| store.call(|weir| Ok(weir.propose(all)?));
    let proposal = with_intentions(c, intentions, count, propose)?;
    let cancel_token = store.cancel_token(CHECK_INTERVAL, None);
    pending(c, cancel_token, proposal, (count, 0), (slot, out))
}

pub(crate) fn wait(
    c: &Caller,
    pending: *mut raw::Pending,
    timeout_ms: u64,
    verdicts: *mut raw::Verdict,
    capacity: usize,
    texts: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    let pending = registry::get::<Pending, _>(pending)?;
    let mut proposal = pending.proposal.lock()?;
    if capacity < pending.count {
        return Err(Fail::of(ErrorCode::BadLength));
    }
    let texts = check_verdict_output(c, verdicts, pending.count, texts)?;
    let returned_already = || Fail::option("the handle", "one whose verdicts were returned");
    if proposal.is_none() {
        return Err(returned_already());
    }
    // A store that is closing still returns the verdicts of sent intentions, so the token is not
    // checked.
    let outcomes = pending.cancel_token.wait_on(timeout_ms, |until| {
        let waiting = proposal.take().ok_or_else(returned_already)?;
        let now = Instant::now();
        let time = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        match waiting.wait_for(time) {
            Ok(outcomes) => Ok(Some(outcomes?)),
            Err(waiting) => {
                *proposal = Some(waiting);
                Ok(None)
            }
        }
    })?;
    match outcomes {
        Some(outcomes) => write_verdicts(c, &outcomes, pending.first, verdicts, texts),
        None => Ok(Kind::Timeout),
    }
}

pub(crate) fn pending_received(
    _: &Caller,
    pending: *mut raw::Pending,
    timeout_ms: u64,
) -> Result<Kind, Fail> {
    let pending = registry::get::<Pending, _>(pending)?;
    let proposal = pending.proposal.lock()?;
    let received = pending.cancel_token.wait_on(timeout_ms, |until| {
        // The verdicts were returned already, so the intentions were queued.
        let Some(proposal) = proposal.as_ref() else {
            return Ok(Some(()));
        };
        let now = Instant::now();
        let time = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        Ok(proposal.wait_received(time).then_some(()))
    })?;
    Ok(received.map_or(Kind::Timeout, |()| Kind::Ok))
}

pub(crate) fn pending_free(pending: *mut raw::Pending) {
    if let Ok(pending) = registry::remove::<Pending, _>(pending) {
        pending.cancel_token.free();
    }
}

/// A session, as a handle of the caller.
#[derive(Debug)]
pub(crate) struct Session {
    inner: Exclusive<weir::Session>,
    store: Arc<Store>,
    cancel_token: Arc<CancelToken>,
}

pub(crate) fn session_open(
    c: &Caller,
    store: *mut raw::Weir,
    client: raw::Slice,
    out: *mut *mut raw::Session,
) -> Result<Kind, Fail> {
    let store = get_store(store)?;
    c.check_output(out, 1)?;
    let client = c.bytes(client)?.try_into().map(ClientId);
    let client = client.ok().filter(|client| !client.is_none());
    let client = client.ok_or_else(|| Fail::option("the client", "not 16 bytes, or all zero"))?;
    let session = store.call(|weir| {
        let session = weir.session(client);
        session.try_next_nonce()?;
        Ok(session)
    })?;
    let session = Session {
        inner: Exclusive::new(session),
        cancel_token: store.session_token(),
        store,
    };
    c.write(out, registry::insert(Arc::new(session))?)?;
    Ok(Kind::Ok)
}

/// A session whose store is open. At a server, a session has its own connection, which a close of the
/// store does not end.
fn get_session(session: *mut raw::Session) -> Result<Arc<Session>, Fail> {
    let session = registry::get::<Session, _>(session)?;
    session.cancel_token.check_open()?;
    Ok(session)
}

fn session_propose(
    c: &Caller,
    waits: &WaitContext,
    session: &mut weir::Session,
    intentions: *const raw::Intention,
    count: usize,
) -> Result<(Proposal, u64), Fail> {
    with_intentions(c, intentions, count, |all| {
        waits.run(|| {
            let first = session.try_next_nonce()?;
            Ok((session.send(all)?.into_proposal(), first))
        })
    })
}

pub(crate) fn session_submit(
    c: &Caller,
    session: *mut raw::Session,
    intentions: *const raw::Intention,
    count: usize,
    verdicts: *mut raw::Verdict,
    texts: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    let session = get_session(session)?;
    let mut inner = session.inner.lock()?;
    let texts = check_verdict_output(c, verdicts, count, texts)?;
    let waits = session.cancel_token.wait_context();
    let (proposal, first) = session_propose(c, &waits, &mut inner, intentions, count)?;
    write_verdicts(c, &waits.verdicts(proposal)?, first, verdicts, texts)
}

pub(crate) fn session_send(
    c: &Caller,
    session: *mut raw::Session,
    intentions: *const raw::Intention,
    count: usize,
    out: *mut *mut raw::Pending,
) -> Result<Kind, Fail> {
    let session = get_session(session)?;
    let mut inner = session.inner.lock()?;
    c.check_output(out, 1)?;
    let slot = registry::reserve()?;
    let waits = session.cancel_token.wait_context();
    let (proposal, first) = session_propose(c, &waits, &mut inner, intentions, count)?;
    let cancel_token = session.store.session_token();
    pending(c, cancel_token, proposal, (count, first), (slot, out))
}

pub(crate) fn session_next_nonce(
    c: &Caller,
    session: *mut raw::Session,
    out: *mut u64,
) -> Result<Kind, Fail> {
    let session = get_session(session)?;
    let inner = session.inner.lock()?;
    let next = session
        .cancel_token
        .wait_context()
        .run(|| Ok(inner.try_next_nonce()?))?;
    c.write(out, next)?;
    Ok(Kind::Ok)
}

pub(crate) fn session_resume(
    _: &Caller,
    session: *mut raw::Session,
    nonce: u64,
) -> Result<Kind, Fail> {
    let session = get_session(session)?;
    let mut inner = session.inner.lock()?;
    session
        .cancel_token
        .wait_context()
        .run(|| Ok(inner.try_resume(nonce)?))?;
    Ok(Kind::Ok)
}

pub(crate) fn session_cancel(session: *mut raw::Session) -> Result<Kind, Fail> {
    registry::get::<Session, _>(session)?.cancel_token.cancel();
    Ok(Kind::Ok)
}

pub(crate) fn session_free(session: *mut raw::Session) {
    if let Ok(session) = registry::remove::<Session, _>(session) {
        session.cancel_token.free();
    }
}

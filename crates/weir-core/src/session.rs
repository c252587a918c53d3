//! Client sessions: the nonces that were executed, and their outcomes.
//!
//! The table makes retries harmless: apply checks each nonce against state that is part of the
//! machine. The limits (I6):
//! - at most [`SESSIONS_MAX`] sessions
//! - the outcomes of the last [`SESSION_WINDOW`] nonces of each session, run-length coded
//! - a limited number of bytes of the texts in these outcomes (`texts`)
//!
//! Ids that are used for one intention only are stored in a separate table, see [`ONCE`].

use crate::exact::to_usize;
use std::collections::{BTreeMap, VecDeque};

use crate::effect::{Commit, Detail, Effect};
use crate::error_code::ErrorCode;
use crate::ids::{ClientId, ConsequenceOffset, IntentionOffset};
use crate::intention::ONCE;
use crate::limits::{DETAIL_TEXT_BYTES_MAX, SESSION_TTL_MS, SESSION_WINDOW, SESSIONS_MAX};
use crate::program::TrapKind;
use crate::snapshot::{Input, SnapshotError, Writer};
use std::sync::Arc;

mod chunks;
mod once;
mod shared;
mod texts;

use once::OnceTable;
use shared::SharedSession;
use texts::Texts;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    count: u64,
    commit: Commit,
}

/// Result of the check of a nonce before execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NonceCheck {
    /// The next nonce: the intention is executed.
    New,
    /// The nonce was executed before with the same content.
    Before(Commit),
    /// The nonce is refused. The number is the next nonce of the session.
    Refuse(ErrorCode, u64),
}

/// The history of one client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    last: u64,
    runs: VecDeque<Run>,
    texts: Texts,
    /// Content hashes of the newest nonces, oldest first.
    fingerprints: VecDeque<u64>,
    used: IntentionOffset,
    used_ms: u64,
}

impl Session {
    #[inline]
    pub(crate) fn check(&self, nonce: u64, fingerprint: u64) -> NonceCheck {
        if nonce == self.last + 1 {
            return NonceCheck::New;
        }
        if nonce > self.last {
            return NonceCheck::Refuse(ErrorCode::NonceGap, self.last + 1);
        }
        let kept = self.fingerprints.len() as u64;
        let oldest = self.last + 1 - kept;
        if nonce < oldest {
            return NonceCheck::Refuse(ErrorCode::SessionExpired, self.last + 1);
        }
        let index = to_usize(nonce - oldest, "it is below the number of fingerprints");
        if self.fingerprints.get(index) != Some(&fingerprint) {
            return NonceCheck::Refuse(ErrorCode::NonceReused, self.last + 1);
        }
        match self.outcome(nonce) {
            Some(commit) => NonceCheck::Before(commit),
            None => NonceCheck::Refuse(ErrorCode::SessionExpired, self.last + 1),
        }
    }

    fn outcome(&self, nonce: u64) -> Option<Commit> {
        let at = self.runs.partition_point(|run| run.commit.nonce <= nonce);
        let run = self.runs.get(at.checked_sub(1)?)?;
        let n = nonce - run.commit.nonce;
        (n < run.count).then(|| run.commit.nth(n))
    }

    #[inline]
    pub(crate) fn executed(&mut self, commit: &Commit, fingerprint: u64, time_ms: u64) {
        assert!(
            commit.nonce == self.last + 1,
            "nonces are executed in order (I6)"
        );
        self.last = commit.nonce;
        self.used = commit.intention;
        self.used_ms = time_ms;
        self.fingerprints.push_back(fingerprint);
        match self.runs.back_mut() {
            Some(run) if run.commit.precedes_in_run(commit, run.count) => run.count += 1,
            _ => self.push(Run {
                count: 1,
                commit: commit.clone(),
            }),
        }
        if self.fingerprints.len() as u64 > SESSION_WINDOW {
            self.fingerprints.pop_front();
            if let Some(run) = self.runs.front_mut() {
                run.count -= 1;
                if run.count == 0 {
                    self.texts.remove(&run.commit);
                    self.runs.pop_front();
                } else {
                    run.commit = run.commit.nth(1);
                }
            }
        }
        if self.texts.are_too_many() {
            self.drop_texts();
        }
    }

    fn push(&mut self, run: Run) {
        self.texts.add(&run.commit);
        self.runs.push_back(run);
    }
}

/// All sessions, ordered by client id.
#[derive(Clone, Debug, Default)]
pub struct SessionTable {
    sessions: BTreeMap<ClientId, SharedSession>,
    /// Clients by their last use at the time of the last sort, oldest first. A client used since
    /// then is younger than every client in this list. The first client whose listed use is still
    /// its last use is therefore the oldest. Derived from `sessions`; avoids a scan of a full table
    /// for each new client.
    ages: VecDeque<(IntentionOffset, ClientId)>,
    once: OnceTable,
}

impl SessionTable {
    /// Makes the next clone cheap: the clone shares all sessions.
    pub(crate) fn freeze(&mut self) {
        self.sessions.values_mut().for_each(SharedSession::freeze);
    }

    /// Number of sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Number of stored ids that are used for one intention only.
    #[must_use]
    pub fn once_len(&self) -> usize {
        self.once.len()
    }

    /// Whether there is no session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Last executed nonce of a client; 0 for an unknown client.
    #[must_use]
    pub fn last_nonce(&self, client: ClientId) -> u64 {
        self.sessions.get(&client).map_or(0, |session| session.last)
    }

    /// The stored outcome of a nonce.
    #[must_use]
    pub fn outcome(&self, client: ClientId, nonce: u64) -> Option<Commit> {
        if nonce == ONCE {
            return self.once.outcome(client);
        }
        self.sessions.get(&client)?.outcome(nonce)
    }

    /// Checks a client's nonce. Changes nothing observable, because a refused nonce must leave no
    /// trace.
    #[inline]
    pub(crate) fn check(
        &mut self,
        client: ClientId,
        nonce: u64,
        fingerprint: u64,
        time_ms: u64,
    ) -> NonceCheck {
        if let Some(session) = self.sessions.get(&client) {
            if nonce == ONCE {
                return NonceCheck::Refuse(ErrorCode::NonceReused, session.last + 1);
            }
            return session.check(nonce, fingerprint);
        }
        if nonce == ONCE {
            return self.once.check(client, fingerprint, time_ms);
        }
        if self.once.contains(client) {
            return NonceCheck::Refuse(ErrorCode::NonceReused, ONCE);
        }
        if nonce != 1 {
            return NonceCheck::Refuse(ErrorCode::SessionExpired, 1);
        }
        if self.sessions.len() < SESSIONS_MAX || self.idle(time_ms).is_some() {
            NonceCheck::New
        } else {
            NonceCheck::Refuse(ErrorCode::Busy, 1)
        }
    }

    /// The session that was used longest ago, if it is older than [`SESSION_TTL_MS`]. A younger
    /// session is never evicted, because a retry of its client would then be executed twice.
    fn idle(&mut self, time_ms: u64) -> Option<ClientId> {
        let session = |(used, client): &(IntentionOffset, ClientId)| {
            let session = self.sessions.get(client);
            session.filter(|session| session.used == *used)
        };
        while self.ages.front().is_some_and(|age| session(age).is_none()) {
            self.ages.pop_front();
        }
        if self.ages.is_empty() {
            let ages = self.sessions.iter().map(|(id, s)| (s.used, *id));
            let mut ages: Vec<_> = ages.collect();
            ages.sort_unstable();
            self.ages = ages.into();
        }
        let oldest = self.ages.front()?;
        let used_ms = session(oldest)?.used_ms;
        (time_ms.saturating_sub(used_ms) >= SESSION_TTL_MS).then_some(oldest.1)
    }

    /// Stores the outcome of the client's next nonce. If the table is full, a new client evicts an
    /// expired session (I6).
    #[inline]
    pub(crate) fn executed(
        &mut self,
        client: ClientId,
        commit: &Commit,
        fingerprint: u64,
        time_ms: u64,
    ) {
        if commit.nonce == ONCE {
            self.once.executed(client, commit, fingerprint, time_ms);
            return;
        }
        if let Some(session) = self.sessions.get_mut(&client) {
            session.executed(commit, fingerprint, time_ms);
            return;
        }
        if self.sessions.len() >= SESSIONS_MAX
            && let Some(id) = self.idle(time_ms)
        {
            self.sessions.remove(&id);
        }
        let session = self.sessions.entry(client).or_default();
        session.executed(commit, fingerprint, time_ms);
    }

    /// Drops the sessions that were last used before `before_ms`, except that of the client
    /// `current`, which is in use.
    pub(crate) fn expire(&mut self, before_ms: u64, current: ClientId) {
        self.sessions
            .retain(|client, session| session.used_ms >= before_ms || *client == current);
        self.once.expire(before_ms);
    }

    pub(crate) fn fold(&self, digest: crate::Digest) -> crate::Digest {
        let digest = self.sessions.iter().fold(digest, |digest, (id, session)| {
            digest
                .fold(crate::digest::hash(0, &id.0))
                .fold(session.last)
                .fold(session.used.0)
        });
        self.once.fold(digest)
    }

    pub(crate) fn save(&self, out: &mut Writer<'_>) -> Result<(), SnapshotError> {
        let has_once = self.once.len() > 0;
        out.number(self.sessions.len() as u64 + if has_once { ONCE_TABLE_FOLLOWS } else { 0 })?;
        for (id, session) in &self.sessions {
            out.bytes(&id.0)?;
            out.number(session.last)?;
            out.number(session.used.0)?;
            out.number(session.used_ms)?;
            out.number(session.fingerprints.len() as u64)?;
            for fingerprint in &session.fingerprints {
                out.word(*fingerprint)?;
            }
            out.number(session.runs.len() as u64)?;
            for run in &session.runs {
                out.number(run.count)?;
                save_commit(&run.commit, out)?;
            }
        }
        if has_once {
            self.once.save(out)
        } else {
            Ok(())
        }
    }

    pub(crate) fn load(
        input: &mut Input<'_>,
        applied: IntentionOffset,
    ) -> Result<Self, SnapshotError> {
        let mut table = Self::default();
        let mut before = ClientId::NONE;
        let what = "at most 4,096 sessions";
        let count = input.count(ONCE_TABLE_FOLLOWS + SESSIONS_MAX as u64, what)?;
        for _ in 0..count.checked_sub(ONCE_TABLE_FOLLOWS).unwrap_or(count) {
            let id = ClientId(input.array()?);
            if id <= before {
                return Err(SnapshotError::Malformed("client ids in ascending order"));
            }
            let session = SharedSession::Own(load_session(input, applied)?);
            table.sessions.insert(id, session);
            before = id;
        }
        if count >= ONCE_TABLE_FOLLOWS {
            table.once = OnceTable::load(input, applied)?;
            if table.sessions.keys().any(|id| table.once.contains(*id)) {
                return Err(SnapshotError::Malformed(
                    "no session with an id that is used once",
                ));
            }
        }
        Ok(table)
    }
}

/// Added to the number of sessions in a snapshot if ids that are used once follow the sessions.
/// States without such ids have the encoding of earlier versions.
const ONCE_TABLE_FOLLOWS: u64 = SESSIONS_MAX as u64 + 1;

fn load_session(input: &mut Input<'_>, applied: IntentionOffset) -> Result<Session, SnapshotError> {
    let mut session = Session {
        last: input.counter()?,
        used: IntentionOffset(input.number()?),
        used_ms: input.number()?,
        ..Session::default()
    };
    for _ in 0..input.count(SESSION_WINDOW, "a window of at most 10,000")? {
        session.fingerprints.push_back(input.word()?);
    }
    let kept = session.fingerprints.len() as u64;
    let whole = kept == session.last.min(SESSION_WINDOW) && kept != 0;
    if !whole || session.used > applied {
        return Err(SnapshotError::Malformed("a session with its window"));
    }
    let mut nonce = session.last - kept + 1;
    let mut newest = 0;
    for _ in 0..input.count(kept, "no more runs than nonces")? {
        let count = input.count(session.last + 1 - nonce, "no more outcomes than nonces")?;
        let commit = load_commit(input)?;
        let before = session.runs.back();
        let longer = before.is_some_and(|run| run.commit.precedes_in_run(&commit, run.count));
        let one_by_one = count == 1 || (count > 1 && commit.records <= 1);
        if !one_by_one || longer || commit.nonce != nonce || commit.intention.0 <= newest {
            return Err(SnapshotError::Malformed("a run that continues the window"));
        }
        nonce += count;
        newest = commit.intention.0 + count - 1;
        session.push(Run { count, commit });
    }
    if session.texts.are_too_many() {
        return Err(SnapshotError::Malformed("texts of at most 64 KiB"));
    }
    if nonce != session.last + 1 || newest != session.used.0 {
        return Err(SnapshotError::Malformed("as many outcomes as nonces"));
    }
    Ok(session)
}

fn save_commit(commit: &Commit, out: &mut Writer<'_>) -> Result<(), SnapshotError> {
    out.number(commit.nonce)?;
    out.number(commit.effect as u64)?;
    out.number(commit.reason.map_or(0, |reason| u64::from(reason.number())))?;
    let (kind, a, b) = match &commit.detail {
        Detail::None => (0, 0, 0),
        Detail::Actual(n) => (1, *n, 0),
        Detail::Limit(n) => (2, *n, 0),
        Detail::Operation { index, reason } => (3, u64::from(*index), u64::from(reason.number())),
        Detail::Rejected { code, .. } => (REJECTED, u64::from(*code), 0),
        Detail::Trapped(kind) => (TRAPPED, *kind as u64, 0),
        Detail::Text(_) => (TEXT, 0, 0),
    };
    for n in [
        kind,
        a,
        b,
        commit.intention.0,
        commit.first.0,
        u64::from(commit.records),
    ] {
        out.number(n)?;
    }
    match &commit.detail {
        Detail::Rejected { text, .. } | Detail::Text(text) => out.bytes(text.as_bytes()),
        _ => Ok(()),
    }
}

/// Numbers of the details that have data after the commit: a text, or the kind of a trap.
const REJECTED: u64 = 4;
const TRAPPED: u64 = 5;
const TEXT: u64 = 6;

fn load_text(input: &mut Input<'_>) -> Result<Arc<str>, SnapshotError> {
    let what = "a text of at most 1,024 bytes";
    let text = String::from_utf8(input.bytes(DETAIL_TEXT_BYTES_MAX, what)?);
    text.map(Arc::from)
        .map_err(|_| SnapshotError::Malformed(what))
}

fn load_commit(input: &mut Input<'_>) -> Result<Commit, SnapshotError> {
    let code = |n: u64| {
        let known = u16::try_from(n).ok().and_then(ErrorCode::from_number);
        known.ok_or(SnapshotError::Malformed("a known reason"))
    };
    let small = |n: u64| u32::try_from(n).map_err(|_| SnapshotError::Malformed("32 bits"));
    let nonce = input.number()?;
    let effect = u8::try_from(input.number()?)
        .ok()
        .and_then(Effect::from_number);
    let effect = effect.ok_or(SnapshotError::Malformed("an effect"))?;
    let reason = match input.number()? {
        0 => None,
        n => Some(code(n)?),
    };
    let (kind, a, b) = (input.number()?, input.number()?, input.number()?);
    let detail = match (kind, a, b) {
        (0, 0, 0) => Detail::None,
        (1, n, 0) => Detail::Actual(n),
        (2, n, 0) => Detail::Limit(n),
        (3, index, reason) => Detail::Operation {
            index: small(index)?,
            reason: code(reason)?,
        },
        (REJECTED, a, 0) => Detail::Rejected {
            code: u16::try_from(a).map_err(|_| SnapshotError::Malformed("a code of 16 bits"))?,
            text: Arc::default(),
        },
        (TRAPPED, a, 0) => {
            let kind = u8::try_from(a).ok().and_then(TrapKind::from_number);
            Detail::Trapped(kind.ok_or(SnapshotError::Malformed("a known trap"))?)
        }
        (TEXT, 0, 0) => Detail::Text(Arc::default()),
        _ => return Err(SnapshotError::Malformed("a detail")),
    };
    let mut commit = Commit {
        nonce,
        effect,
        reason,
        detail,
        intention: IntentionOffset(input.counter()?),
        first: ConsequenceOffset(input.counter()?),
        records: small(input.number()?)?,
        fuel: 0,
    };
    if let Detail::Rejected { text, .. } | Detail::Text(text) = &mut commit.detail {
        *text = load_text(input)?;
    }
    let is_valid = effect == Effect::Valid;
    let plain = commit.records == 0 || is_valid;
    let numbered = (commit.records == 0) == (commit.first == ConsequenceOffset::ZERO);
    let explained =
        Effect::of(reason) == Some(effect) && (commit.detail == Detail::None || !is_valid);
    if plain && numbered && explained {
        Ok(commit)
    } else {
        Err(SnapshotError::Malformed("a consistent outcome"))
    }
}

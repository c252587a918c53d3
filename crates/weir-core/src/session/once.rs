//! The table of ids that are used for one intention only.
//!
//! An intention with the nonce [`ONCE`] is executed once for its client id, which has no other use:
//! it is the hash of an idempotency key. Such an id occupies no session. The table is a queue in
//! order of execution, with an index.
//!
//! An id expires after a day. If the table is full, the oldest id is evicted if it is older than
//! [`ONCE_MS_MIN`]; otherwise a new id is refused. A lookup does not renew an id.
//!
//! Invariants:
//! - No id is removed before [`ONCE_MS_MIN`].
//! - Every id in the index is in the queue.

use super::chunks::{Index, Queue};
use super::{NonceCheck, load_commit, save_commit};
use crate::effect::{Commit, Detail};
use crate::error_code::ErrorCode;
use crate::ids::{ClientId, IntentionOffset};
use crate::intention::ONCE;
use crate::limits::{ONCE_IDS_MAX, ONCE_MS_MAX, ONCE_MS_MIN, ONCE_TEXT_BYTES_MAX};
use crate::snapshot::{Input, SnapshotError, Writer};
use std::sync::Arc;

#[derive(Clone, Debug)]
struct Entry {
    client: ClientId,
    fingerprint: u64,
    time_ms: u64,
    commit: Commit,
}

/// The stored form of an outcome, with a text of at most [`ONCE_TEXT_BYTES_MAX`] bytes.
fn truncate_text(mut commit: Commit) -> Commit {
    if let Detail::Rejected { text, .. } | Detail::Text(text) = &mut commit.detail
        && text.len() > ONCE_TEXT_BYTES_MAX
    {
        let end = text.floor_char_boundary(ONCE_TEXT_BYTES_MAX);
        *text = Arc::from(&text[..end]);
    }
    commit
}

fn is_text_short(commit: &Commit) -> bool {
    match &commit.detail {
        Detail::Rejected { text, .. } | Detail::Text(text) => text.len() <= ONCE_TEXT_BYTES_MAX,
        _ => true,
    }
}

/// The ids, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct OnceTable {
    entries: Queue<Entry>,
    /// Number of each id; the oldest entry has the number `first_number`. Derived from `entries`.
    index: Index,
    first_number: u64,
}

impl OnceTable {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn contains(&self, client: ClientId) -> bool {
        self.entries.len() > 0 && self.index.get(client).is_some()
    }

    fn find(&self, client: ClientId) -> Option<&Entry> {
        self.entries.get(self.position(client)?)
    }

    fn position(&self, client: ClientId) -> Option<usize> {
        let at = self.index.get(client)?.checked_sub(self.first_number)?;
        usize::try_from(at).ok()
    }

    pub(crate) fn outcome(&self, client: ClientId) -> Option<Commit> {
        Some(self.find(client)?.commit.clone())
    }

    /// Checks an id. Changes nothing.
    pub(crate) fn check(&self, client: ClientId, fingerprint: u64, time_ms: u64) -> NonceCheck {
        if let Some(entry) = self.find(client)
            && !is_expired(entry, time_ms, ONCE_MS_MAX)
        {
            return if entry.fingerprint == fingerprint {
                NonceCheck::Before(entry.commit.clone())
            } else {
                NonceCheck::Refuse(ErrorCode::NonceReused, ONCE)
            };
        }
        let oldest = self.entries.front();
        let has_room = self.len() < ONCE_IDS_MAX
            || oldest.is_none_or(|entry| is_expired(entry, time_ms, ONCE_MS_MIN));
        if has_room {
            NonceCheck::New
        } else {
            NonceCheck::Refuse(ErrorCode::Busy, ONCE)
        }
    }

    /// Stores the outcome of an id for which [`check`](Self::check) returned [`NonceCheck::New`].
    pub(crate) fn executed(
        &mut self,
        client: ClientId,
        commit: &Commit,
        fingerprint: u64,
        time_ms: u64,
    ) {
        let entry = Entry {
            client,
            fingerprint,
            time_ms,
            commit: truncate_text(commit.clone()),
        };
        while let Some(oldest) = self.entries.front() {
            let full = self.len() >= ONCE_IDS_MAX;
            let age = if full { ONCE_MS_MIN } else { ONCE_MS_MAX };
            if !is_expired(oldest, time_ms, age) {
                break;
            }
            self.remove_oldest();
        }
        self.add(entry);
    }

    fn add(&mut self, entry: Entry) {
        let number = self.first_number + self.entries.len() as u64;
        let before = self.index.insert(entry.client, number);
        assert!(before.is_none(), "an id is executed once (I6)");
        self.entries.push_back(entry);
    }

    fn remove_oldest(&mut self) {
        if let Some(entry) = self.entries.front() {
            self.index.remove(entry.client);
            self.first_number += 1;
            self.entries.drop_front();
        }
    }

    /// Drops the ids that were executed before `before_ms`.
    pub(crate) fn expire(&mut self, before_ms: u64) {
        while (self.entries.front()).is_some_and(|entry| entry.time_ms < before_ms) {
            self.remove_oldest();
        }
    }

    pub(crate) fn fold(&self, digest: crate::Digest) -> crate::Digest {
        self.entries.iter().fold(digest, |digest, entry| {
            digest
                .fold(crate::digest::hash(0, &entry.client.0))
                .fold(entry.commit.intention.0)
        })
    }

    pub(crate) fn save(&self, out: &mut Writer<'_>) -> Result<(), SnapshotError> {
        out.number(self.entries.len() as u64)?;
        let mut time_ms = 0;
        for entry in self.entries.iter() {
            out.bytes(&entry.client.0)?;
            out.word(entry.fingerprint)?;
            out.number(entry.time_ms - time_ms)?;
            time_ms = entry.time_ms;
            // The nonce is always [`ONCE`], so it is not stored.
            let commit = Commit {
                nonce: 0,
                ..entry.commit.clone()
            };
            save_commit(&commit, out)?;
        }
        Ok(())
    }

    pub(crate) fn load(
        input: &mut Input<'_>,
        applied: IntentionOffset,
    ) -> Result<Self, SnapshotError> {
        let wrong = |what| Err(SnapshotError::Malformed(what));
        let mut table = Self::default();
        let (mut time_ms, mut newest) = (0_u64, IntentionOffset::ZERO);
        let count = input.count(
            ONCE_IDS_MAX as u64,
            "at most 262,144 ids that are used once",
        )?;
        if count == 0 {
            return wrong("at least one id that is used once");
        }
        for _ in 0..count {
            let client = ClientId(input.array()?);
            let fingerprint = input.word()?;
            let Some(time) = time_ms.checked_add(input.number()?) else {
                return wrong("the time of an intention");
            };
            time_ms = time;
            let mut commit = load_commit(input)?;
            if commit.nonce != 0 || commit.intention <= newest || commit.intention > applied {
                return wrong("ids in order of their intentions");
            }
            commit.nonce = ONCE;
            newest = commit.intention;
            if client.is_none() || table.contains(client) {
                return wrong("each id that is used once only once");
            }
            if !is_text_short(&commit) {
                return wrong("a text of at most 128 bytes");
            }
            table.add(Entry {
                client,
                fingerprint,
                time_ms,
                commit,
            });
        }
        Ok(table)
    }
}

fn is_expired(entry: &Entry, time_ms: u64, age_ms: u64) -> bool {
    time_ms.saturating_sub(entry.time_ms) >= age_ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effect;
    use crate::ids::ConsequenceOffset;

    fn id(n: u64) -> ClientId {
        let mut id = [1; 16];
        id.iter_mut()
            .zip(n.to_be_bytes())
            .for_each(|(to, b)| *to = b);
        ClientId(id)
    }

    fn commit(n: u64, text: usize) -> Commit {
        let rejected = text > 0;
        Commit {
            nonce: ONCE,
            effect: if rejected {
                Effect::Invalid
            } else {
                Effect::Valid
            },
            reason: rejected.then_some(ErrorCode::Rejected),
            detail: if rejected {
                Detail::Rejected {
                    code: 1,
                    text: "x".repeat(text).into(),
                }
            } else {
                Detail::None
            },
            intention: IntentionOffset(n),
            first: ConsequenceOffset(if rejected { 0 } else { n }),
            records: u32::from(!rejected),
            fuel: 0,
        }
    }

    fn fill(table: &mut OnceTable, from: u64, time_ms: u64, text: usize) -> u64 {
        for n in from.. {
            if table.check(id(n), n, time_ms) != NonceCheck::New {
                return n;
            }
            table.executed(id(n), &commit(n, text), n, time_ms);
        }
        from
    }

    #[test]
    fn a_full_table_evicts_only_ids_that_are_old_enough() {
        let mut table = OnceTable::default();
        let next = fill(&mut table, 1, 1_000, 0);
        assert_eq!(next - 1, ONCE_IDS_MAX as u64);
        let later = 1_000 + ONCE_MS_MIN;
        let late = id(next);
        assert_eq!(
            table.check(late, 0, later - 1),
            NonceCheck::Refuse(ErrorCode::Busy, ONCE)
        );
        assert!(matches!(
            table.check(id(1), 1, later),
            NonceCheck::Before(_)
        ));
        assert_eq!(table.check(late, 0, later), NonceCheck::New);
        table.executed(late, &commit(next, 0), 0, later);
        assert_eq!(table.len(), ONCE_IDS_MAX);
        assert_eq!(table.outcome(id(1)), None);
        assert_eq!(table.outcome(id(2)), Some(commit(2, 0)));
        assert_eq!(
            table.check(id(2), 9, later),
            NonceCheck::Refuse(ErrorCode::NonceReused, ONCE)
        );
    }

    #[test]
    fn only_the_text_is_truncated() {
        let mut table = OnceTable::default();
        for (n, len) in [(1, 127), (2, 128), (3, 129), (4, 256)] {
            table.executed(id(n), &commit(n, len), n, 1);
            let short = commit(n, len.min(ONCE_TEXT_BYTES_MAX));
            assert_eq!(table.outcome(id(n)), Some(short));
        }
    }

    #[test]
    fn an_id_expires_after_a_day() {
        let mut table = OnceTable::default();
        table.executed(id(1), &commit(1, 0), 1, 5);
        assert!(matches!(
            table.check(id(1), 1, ONCE_MS_MAX + 4),
            NonceCheck::Before(_)
        ));
        assert_eq!(table.check(id(1), 2, ONCE_MS_MAX + 5), NonceCheck::New);
        table.executed(id(1), &commit(2, 0), 2, ONCE_MS_MAX + 5);
        assert_eq!(table.outcome(id(1)), Some(commit(2, 0)));
        assert_eq!(table.len(), 1);
    }
}

//! Limits the bytes of the texts of verdicts in a session.
//!
//! Outcomes have a fixed size except for two texts: the text of a program's rejection, and the
//! explanation of a rejected module. A session stores [`SESSION_TEXT_BYTES_MAX`] of them, and the
//! text of a run only once. Beyond this limit the oldest texts are dropped; effect, reason and code
//! remain.
//!
//! Invariant: runs are as long as possible, also where outcomes differed only in texts that were
//! dropped. Therefore equal histories give equal sessions.

use std::sync::Arc;

use super::{Run, Session};
use crate::effect::{Commit, Detail};
use crate::limits::{DETAIL_TEXT_BYTES_MAX, SESSION_TEXT_BYTES_MAX};

// The newest text is never dropped.
const _: () = assert!(DETAIL_TEXT_BYTES_MAX as u64 <= SESSION_TEXT_BYTES_MAX);

/// Size and position of the stored texts. Derived from the runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    bytes: u64,
    /// Runs whose first nonce is smaller have no text.
    from: u64,
}

fn bytes(commit: &Commit) -> u64 {
    match &commit.detail {
        Detail::Rejected { text, .. } | Detail::Text(text) => text.len() as u64,
        _ => 0,
    }
}

impl Texts {
    pub(super) fn are_too_many(&self) -> bool {
        self.bytes > SESSION_TEXT_BYTES_MAX
    }

    /// Adds the text of a new run.
    pub(super) fn add(&mut self, commit: &Commit) {
        self.bytes += bytes(commit);
    }

    /// Removes the text of a run.
    pub(super) fn remove(&mut self, commit: &Commit) {
        self.bytes -= bytes(commit);
    }
}

impl Session {
    /// Drops the oldest texts until the rest is within the limit.
    pub(super) fn drop_texts(&mut self) {
        while self.texts.are_too_many() {
            let from = self.texts.from;
            let mut at = self.runs.partition_point(|run| run.commit.nonce < from);
            while self.runs.get(at).is_some_and(|run| bytes(&run.commit) == 0) {
                at += 1;
            }
            let Some(run) = self.runs.get_mut(at) else {
                return;
            };
            self.texts.remove(&run.commit);
            self.texts.from = run.commit.nonce + 1;
            if let Detail::Rejected { text, .. } | Detail::Text(text) = &mut run.commit.detail {
                *text = Arc::default();
            }
            self.join(at + 1);
            self.join(at);
        }
    }

    /// Merges a run with the one before it, if they now form one run.
    fn join(&mut self, at: usize) {
        let Some(before) = at.checked_sub(1) else {
            return;
        };
        let (Some(one), Some(next)) = (self.runs.get(before), self.runs.get(at)) else {
            return;
        };
        if !one.commit.precedes_in_run(&next.commit, one.count) {
            return;
        }
        let Some(Run { count, .. }) = self.runs.remove(at) else {
            return;
        };
        if let Some(one) = self.runs.get_mut(before) {
            one.count += count;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::super::SessionTable;
    use super::*;
    use crate::effect::Effect;
    use crate::error_code::ErrorCode;
    use crate::ids::{ClientId, ConsequenceOffset, IntentionOffset};
    use crate::limits::{REJECT_TEXT_BYTES_MAX, SESSION_WINDOW};
    use crate::snapshot::{Input, Writer};

    const CLIENT: ClientId = ClientId([7; 16]);
    const FULL: u64 = SESSION_TEXT_BYTES_MAX / REJECT_TEXT_BYTES_MAX as u64;

    /// A history of rejections with different texts. Every `gap`th intention belongs to this
    /// client.
    struct RejectionHistory {
        table: SessionTable,
        next: u64,
        gap: u64,
    }

    impl RejectionHistory {
        fn new(gap: u64) -> Self {
            let table = SessionTable::default();
            Self {
                table,
                next: 1,
                gap,
            }
        }

        fn reject(&mut self, bytes: usize) {
            let nonce = self.next;
            self.next += 1;
            let mut text = format!("{nonce}");
            text = "x".repeat(bytes.saturating_sub(text.len())) + &text;
            text.truncate(bytes);
            let commit = Commit {
                nonce,
                effect: Effect::Invalid,
                reason: Some(ErrorCode::Rejected),
                detail: Detail::Rejected {
                    code: 9,
                    text: Arc::from(text),
                },
                intention: IntentionOffset(nonce * self.gap),
                first: ConsequenceOffset::ZERO,
                records: 0,
                fuel: 0,
            };
            self.table.executed(CLIENT, &commit, nonce, 5);
        }

        /// Bytes of the text that an outcome still has.
        fn left(&self, nonce: u64) -> u64 {
            let commit = self.table.outcome(CLIENT, nonce).unwrap();
            assert_eq!(commit.reason, Some(ErrorCode::Rejected));
            assert!(matches!(commit.detail, Detail::Rejected { code: 9, .. }));
            bytes(&commit)
        }

        fn saved(&self) -> Vec<u8> {
            let mut bytes = Vec::new();
            let mut out = Writer::new(&mut bytes);
            self.table.save(&mut out).unwrap();
            out.finish().unwrap();
            bytes
        }

        /// The table after a snapshot and a reload.
        fn reloaded(&self) -> Self {
            let bytes = self.saved();
            let mut from = &bytes[..];
            let mut input = Input::new(&mut from);
            let newest = IntentionOffset(self.next * self.gap);
            let table = SessionTable::load(&mut input, newest).unwrap();
            Self { table, ..*self }
        }
    }

    #[test]
    fn the_oldest_texts_are_dropped_and_their_codes_kept() {
        // Bytes of the last text, and the expected bytes of the first text.
        let most = REJECT_TEXT_BYTES_MAX as u64;
        for (last, first) in [(most - 1, most), (most, most), (most + 1, 0)] {
            let mut history = RejectionHistory::new(2);
            for _ in 1..FULL {
                history.reject(REJECT_TEXT_BYTES_MAX);
            }
            history.reject(usize::try_from(last).unwrap());
            assert_eq!((history.left(1), history.left(2)), (first, most), "{last}");
            assert_eq!(history.left(FULL), last);
        }
    }

    #[test]
    fn a_reloaded_table_continues_like_the_original() {
        for gap in [1, 2] {
            let (mut one, mut other) = (RejectionHistory::new(gap), RejectionHistory::new(gap));
            for n in 0..2 * SESSION_WINDOW {
                let bytes = [0, 200, 3, 0, 0, 100, 256][usize::try_from(n % 7).unwrap()];
                one.reject(bytes);
                other.reject(bytes);
                if n % 1000 == 999 {
                    other = other.reloaded();
                    assert_eq!(one.saved(), other.saved(), "{n}");
                }
            }
            let texts = |history: &RejectionHistory| {
                let session = history.table.sessions.get(&CLIENT).unwrap();
                let sum = session.runs.iter().map(|run| bytes(&run.commit)).sum();
                assert_eq!(session.texts.bytes, sum);
                sum
            };
            assert_eq!(texts(&one), texts(&other));
            assert!(texts(&one) <= SESSION_TEXT_BYTES_MAX);
            assert!(texts(&one) > SESSION_TEXT_BYTES_MAX - 256);
        }
    }

    #[test]
    fn a_snapshot_with_too_many_bytes_of_texts_is_rejected() {
        let mut history = RejectionHistory::new(2);
        for _ in 0..FULL {
            history.reject(REJECT_TEXT_BYTES_MAX);
        }
        history.reloaded();
        let session = history.table.sessions.get_mut(&CLIENT).unwrap();
        let mut run = session.runs.back().unwrap().clone();
        run.commit.nonce += 1;
        run.commit.intention.0 += 2;
        session.runs.push_back(run);
        session.fingerprints.push_back(0);
        session.last += 1;
        session.used.0 += 2;
        let bytes = history.saved();
        let mut from = &bytes[..];
        let loaded = SessionTable::load(&mut Input::new(&mut from), IntentionOffset(1 << 20));
        assert!(loaded.is_err());
    }
}

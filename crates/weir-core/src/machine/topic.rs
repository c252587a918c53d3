//! State of one topic name: its last offset, which survives destruction, and the live topic.

use std::collections::BTreeMap;

use super::groups::Groups;
use super::running::RunningProgram;
use crate::digest::Digest;
use crate::effect::{Detail, Rejection};
use crate::error_code::ErrorCode;
use crate::ids::{ConsequenceOffset, IntentionOffset, TopicName};
use crate::intention::{Expect, TxnOp};
use crate::keys::KeyIndex;
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::options::TopicOptions;

/// A topic name that was created at least once.
#[derive(Clone, Debug)]
pub(crate) struct Topic {
    pub(crate) name: TopicName,
    /// Hash of the name, part of the hash of every intention that names it.
    pub(crate) name_hash: u64,
    /// Offset of the newest record; survives destruction (T4).
    pub(crate) last: ConsequenceOffset,
    /// Offset of the newest record that reads no longer return; zero for none. Only grows, is at
    /// most `last`, and survives destruction.
    pub(crate) trimmed: ConsequenceOffset,
    /// Digest of the history (G11).
    pub(crate) digest: Digest,
    pub(crate) live: Option<LiveTopic>,
    /// Groups survive destruction, as their offsets do.
    pub(crate) groups: Groups,
}

/// State that exists only while the topic lives.
#[derive(Clone, Debug)]
pub(crate) struct LiveTopic {
    /// Intention offset of the CREATE.
    pub(crate) incarnation: IntentionOffset,
    /// Offset of the CREATE record.
    pub(crate) created: ConsequenceOffset,
    pub(crate) options: TopicOptions,
    pub(crate) keys: KeyIndex,
    /// The program that judges each write; `None` in a plain topic.
    pub(crate) program: Option<Box<RunningProgram>>,
    /// In quarantine (P8): no write is accepted.
    pub(crate) stopped: bool,
}

/// Folds the state of a topic into a digest.
pub(super) fn fold(digest: Digest, topic: &Topic) -> Digest {
    let live = topic.live.as_ref();
    let groups = topic.groups.values();
    let digest = groups.fold(digest, |digest, group| group.fold(digest));
    let digest = match topic.trimmed {
        ConsequenceOffset::ZERO => digest,
        trimmed => digest.fold(trimmed.0),
    };
    digest
        .fold(topic.digest.0)
        .fold(topic.last.0)
        .fold(live.map_or(0, |live| live.incarnation.0))
        .fold(live.map_or(0, |live| live.keys.len() as u64))
}

/// Checks one condition against the topic, which may be unknown or destroyed.
pub(crate) fn check_condition(
    expect: &Expect<'_>,
    topic: Option<&Topic>,
    own_key: &[u8],
) -> Result<(), Rejection> {
    let live = topic.and_then(|topic| topic.live.as_ref());
    let last = topic.map_or(0, |topic| topic.last.0);
    let key_offset = |key: Option<&[u8]>| {
        let key = key.unwrap_or(own_key);
        live.and_then(|live| live.keys.get(key))
            .map_or(0, |offset| offset.0)
    };
    let (holds, actual) = match expect {
        Expect::KeyOffset(key, n) => {
            let offset = key_offset(*key);
            (offset == *n && offset != 0, offset)
        }
        Expect::KeyAbsent(key) => (key_offset(*key) == 0, key_offset(*key)),
        Expect::KeyPresent(key) => (key_offset(*key) != 0, 0),
        Expect::TopicOffset(n) => (live.is_some() && last == *n, last),
        Expect::TopicAbsentOr(n) => (live.is_none() || last == *n, last),
        Expect::TopicEmpty => (live.is_some_and(|live| live.created.0 == last), last),
        Expect::Incarnation(n) => {
            let incarnation = live.map_or(0, |live| live.incarnation.0);
            (incarnation == *n && incarnation != 0, incarnation)
        }
        Expect::Options(n) => (live.is_some_and(|live| live.options.fingerprint() == *n), 0),
    };
    if holds {
        return Ok(());
    }
    Err(Rejection {
        reason: ErrorCode::Conflict,
        detail: Detail::Actual(actual),
    })
}

/// Limits on keys and values from the options of a topic; `None`: no limit in the options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    key_max: Option<u64>,
    value_max: Option<u64>,
}

impl Bounds {
    /// See [`LiveTopic::admits`].
    #[inline]
    pub(crate) fn admit(self, key: &[u8], value: Option<&[u8]>) -> Result<(), Rejection> {
        let key_max = self.key_max.filter(|_| value.is_some());
        let key_max = key_max.unwrap_or(KEY_BYTES_MAX as u64);
        if key.len() as u64 > key_max {
            return Err(Rejection::limit(ErrorCode::Limit, key_max));
        }
        let value = value.unwrap_or_default();
        let value_max = self.value_max.unwrap_or(VALUE_BYTES_MAX as u64);
        if value.len() as u64 > value_max {
            return Err(Rejection::limit(ErrorCode::Limit, value_max));
        }
        Ok(())
    }
}

impl LiveTopic {
    /// Checks the limits for a record: a PUT with a value, or a DELETE with `None`. Every key that
    /// could ever be set can be deleted, whatever the current options are.
    #[inline]
    pub(crate) fn admits(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), Rejection> {
        self.bounds().admit(key, value)
    }

    /// Limits on the bytes of keys and values.
    #[inline]
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            key_max: self.options.key_bytes_max,
            value_max: self.options.value_bytes_max,
        }
    }

    /// Checks that the topic stays within its quota of keys after a PUT of `key`.
    #[inline]
    pub(crate) fn has_room(&self, key: &[u8]) -> Result<(), Rejection> {
        let Some(max) = self.options.keys_max else {
            return Ok(());
        };
        if key.is_empty() || (self.keys.len() as u64) < max || self.keys.get(key).is_some() {
            return Ok(());
        }
        Err(Rejection::limit(ErrorCode::Quota, max))
    }

    /// Checks the steps of a transaction in order. Each step sees the effect of the steps before
    /// it. Changes nothing.
    pub(crate) fn admits_all<'a>(
        &self,
        steps: impl Iterator<Item = TxnOp<'a>>,
    ) -> Result<(), Rejection> {
        let mut overlay: BTreeMap<&[u8], bool> = BTreeMap::new();
        let mut keys = self.keys.len() as u64;
        for (index, step) in (0_u32..).zip(steps) {
            let (key, value) = match step {
                TxnOp::Put { key, value, .. } => (key, Some(value)),
                TxnOp::Delete { key, .. } => (key, None),
            };
            let put = value.is_some();
            let aborted = |reason| Rejection {
                reason: ErrorCode::TxnAborted,
                detail: Detail::Operation { index, reason },
            };
            self.admits(key, value)
                .map_err(|rejection| aborted(rejection.reason))?;
            let Some(max) = self.options.keys_max else {
                continue;
            };
            if key.is_empty() {
                continue;
            }
            let present = overlay
                .insert(key, put)
                .unwrap_or_else(|| self.keys.get(key).is_some());
            match (present, put) {
                (false, true) if keys >= max => return Err(aborted(ErrorCode::Quota)),
                (false, true) => keys += 1,
                (true, false) => keys -= 1,
                _ => {}
            }
        }
        Ok(())
    }
}

//! The model: the expected behavior of the machine, written as simply as possible with sorted maps
//! and lists, without bytes, run lengths or digests. It follows the rules, not the code of the
//! machine, and may be slow.

use std::collections::BTreeMap;

use weir_core::limits::{SESSION_WINDOW, SESSIONS_MAX};

use super::script::{Condition, Limits, OwnedOperation, Step};

/// The verdict on an intention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) nonce: u64,
    /// The name of the reason; `None` is VALID.
    pub(crate) reason: Option<&'static str>,
    /// Actual offset, limit, or failed step with the name of its reason.
    pub(crate) detail: Option<(u64, &'static str)>,
    pub(crate) intention: u64,
    /// Offset of the first record; 0 if there is none.
    pub(crate) first: u64,
    pub(crate) records: u64,
}

/// The outcome of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepResult {
    Committed(Answer),
    Replayed(Answer),
    Refused(&'static str, u64),
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) topic: String,
    pub(crate) offset: u64,
    pub(crate) intention: u64,
    pub(crate) time_ms: u64,
    pub(crate) client: u8,
    pub(crate) nonce: u64,
    pub(crate) last: bool,
    pub(crate) txn: bool,
    pub(crate) kind: &'static str,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) meta: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Topic {
    pub(crate) last: u64,
    pub(crate) live: Option<LiveTopic>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct LiveTopic {
    pub(crate) incarnation: u64,
    pub(crate) created: u64,
    pub(crate) limits: Limits,
    pub(crate) keys: BTreeMap<Vec<u8>, u64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    pub(crate) last: u64,
    used: u64,
    used_ms: u64,
    answers: BTreeMap<u64, (Content, Answer)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Fingerprint(u64),
    Full(String, OwnedOperation, Vec<Condition>, Vec<u8>),
}

type StepError = (&'static str, Option<(u64, &'static str)>);

/// The whole state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) applied: u64,
    pub(crate) time_ms: u64,
    pub(crate) topics: BTreeMap<String, Topic>,
    pub(crate) sessions: BTreeMap<u64, Session>,
    /// All records, in order.
    pub(crate) records: Vec<Entry>,
}

impl Oracle {
    /// Sets the stamp of a batch. Time never decreases.
    pub(crate) fn begin(&mut self, time_ms: u64) {
        self.time_ms = self.time_ms.max(time_ms);
    }

    pub(crate) fn step(&mut self, step: &Step) -> StepResult {
        self.step_of(u64::from(step.client), step)
    }

    /// Executes a step of the client with this number.
    pub(crate) fn step_of(&mut self, client: u64, step: &Step) -> StepResult {
        let content = content(step);
        if client != 0 {
            let Some(session) = self.sessions.get(&client) else {
                if step.nonce != 1 {
                    return StepResult::Refused("SESSION_EXPIRED", 1);
                }
                if self.sessions.len() == SESSIONS_MAX && self.oldest().is_none() {
                    return StepResult::Refused("BUSY", 1);
                }
                return StepResult::Committed(self.execute(client, step, content));
            };
            let expected = session.last + 1;
            if step.nonce > expected {
                return StepResult::Refused("NONCE_GAP", expected);
            }
            if step.nonce < expected {
                return match session.answers.get(&step.nonce) {
                    None => StepResult::Refused("SESSION_EXPIRED", expected),
                    Some((stored, _)) if *stored != content => {
                        StepResult::Refused("NONCE_REUSED", expected)
                    }
                    Some((_, answer)) => StepResult::Replayed(answer.clone()),
                };
            }
        }
        StepResult::Committed(self.execute(client, step, content))
    }

    /// The session that was used longest ago, if that was at least a day ago.
    fn oldest(&self) -> Option<u64> {
        let oldest = self.sessions.iter().min_by_key(|(_, s)| s.used);
        let (id, session) = oldest?;
        (session.used_ms + 86_400_000 <= self.time_ms).then_some(*id)
    }

    fn execute(&mut self, client: u64, step: &Step, content: Content) -> Answer {
        let intention = self.applied + 1;
        let before = self.records.len();
        let verdict = self.decide(client, step, intention);
        self.applied = intention;
        let new = &mut self.records[before..];
        let count = new.len();
        for (n, record) in new.iter_mut().enumerate() {
            record.last = n + 1 == count;
        }
        let answer = Answer {
            nonce: step.nonce,
            reason: verdict.as_ref().err().map(|no| no.0),
            detail: verdict.err().and_then(|no| no.1),
            intention,
            first: new.first().map_or(0, |record| record.offset),
            records: count as u64,
        };
        if client != 0 {
            if !self.sessions.contains_key(&client) && self.sessions.len() == SESSIONS_MAX {
                let oldest = self.oldest().unwrap();
                self.sessions.remove(&oldest);
            }
            let session = self.sessions.entry(client).or_default();
            (session.last, session.used) = (step.nonce, intention);
            session.used_ms = self.time_ms;
            session
                .answers
                .insert(step.nonce, (content, answer.clone()));
            if session.answers.len() as u64 > SESSION_WINDOW {
                session.answers.pop_first();
            }
        }
        answer
    }

    fn decide(&mut self, client: u64, step: &Step, intention: u64) -> Result<(), StepError> {
        if let OwnedOperation::Expire(idle_ms) = step.operation {
            let now = self.time_ms;
            self.sessions
                .retain(|id, session| now - session.used_ms <= idle_ms || *id == client);
            return Ok(());
        }
        let topic = self.topics.get(&step.topic).cloned().unwrap_or_default();
        match (&step.operation, &topic.live) {
            (OwnedOperation::Create(_), Some(_)) => return Err(("TOPIC_EXISTS", None)),
            (OwnedOperation::Create(_), None) => {}
            (OwnedOperation::Destroy | OwnedOperation::Alter(_), None) => {
                return Err(("TOPIC_ABSENT", None));
            }
            (_, None) => return Err(("NO_TOPIC", None)),
            _ => {}
        }
        for condition in &step.conditions {
            check_condition(condition, &topic, step)
                .map_err(|actual| ("CONFLICT", Some((actual, "actual"))))?;
        }
        let mut draft = topic;
        let mut records = Vec::new();
        let mut write = |draft: &mut Topic, kind, key: &[u8], value: &[u8]| {
            draft.last += 1;
            records.push(Entry {
                topic: step.topic.clone(),
                offset: draft.last,
                intention,
                time_ms: self.time_ms,
                client: step.client,
                nonce: step.nonce,
                last: false,
                txn: matches!(step.operation, OwnedOperation::Txn(_)),
                kind,
                key: key.to_vec(),
                value: value.to_vec(),
                meta: step.meta.clone(),
            });
        };
        match &step.operation {
            OwnedOperation::Create(limits) => {
                write(&mut draft, "CREATE", &[], &[]);
                draft.live = Some(LiveTopic {
                    incarnation: intention,
                    created: draft.last,
                    limits: limits.clone(),
                    keys: BTreeMap::new(),
                });
            }
            OwnedOperation::Alter(limits) => {
                write(&mut draft, "ALTER", &[], &[]);
                draft.live.as_mut().unwrap().limits = limits.clone();
            }
            OwnedOperation::Destroy => {
                write(&mut draft, "DESTROY", &[], &[]);
                draft.live = None;
            }
            OwnedOperation::Put(key, value) => {
                set(&mut draft, key, Some(value))?;
                write(&mut draft, "PUT", key, value);
            }
            OwnedOperation::Delete(key) => {
                set(&mut draft, key, None)?;
                write(&mut draft, "DELETE", key, &[]);
            }
            OwnedOperation::Txn(steps) => {
                for (n, (key, value)) in (0..).zip(steps) {
                    set(&mut draft, key, value.as_deref())
                        .map_err(|no| ("TXN_ABORTED", Some((n, no.0))))?;
                    let kind = if value.is_some() { "PUT" } else { "DELETE" };
                    write(&mut draft, kind, key, value.as_deref().unwrap_or(&[]));
                }
            }
            OwnedOperation::Expire(_) => unreachable!("answered above"),
        }
        self.topics.insert(step.topic.clone(), draft);
        self.records.extend(records);
        Ok(())
    }
}

/// The properties that must be equal for two intentions to be repeats of each other.
fn content(step: &Step) -> Content {
    match step.fingerprint {
        Some(fingerprint) => Content::Fingerprint(fingerprint),
        None => Content::Full(
            step.topic.clone(),
            step.operation.clone(),
            step.conditions.clone(),
            step.meta.clone(),
        ),
    }
}

/// Sets or removes a key in a draft, for the record with the next offset.
fn set(draft: &mut Topic, key: &[u8], value: Option<&[u8]>) -> Result<(), StepError> {
    let offset = draft.last + 1;
    let live = draft.live.as_mut().unwrap();
    let limit = |max: u64| (max, "limit");
    let Some(value) = value else {
        live.keys.remove(key);
        return Ok(());
    };
    if let Some(max) = live.limits.key_bytes
        && key.len() as u64 > max
    {
        return Err(("LIMIT", Some(limit(max))));
    }
    if let Some(max) = live.limits.value_bytes
        && value.len() as u64 > max
    {
        return Err(("LIMIT", Some(limit(max))));
    }
    if key.is_empty() {
        return Ok(());
    }
    if let Some(max) = live.limits.keys
        && !live.keys.contains_key(key)
        && live.keys.len() as u64 >= max
    {
        return Err(("QUOTA", Some(limit(max))));
    }
    live.keys.insert(key.to_vec(), offset);
    Ok(())
}

/// Checks a condition. The error is the actual offset.
fn check_condition(condition: &Condition, topic: &Topic, step: &Step) -> Result<(), u64> {
    let own = match &step.operation {
        OwnedOperation::Put(key, _) | OwnedOperation::Delete(key) => key.clone(),
        _ => Vec::new(),
    };
    let live = topic.live.as_ref();
    let offset = |key: &Option<Vec<u8>>| {
        let key = key.as_ref().unwrap_or(&own);
        live.and_then(|live| live.keys.get(key))
            .copied()
            .unwrap_or(0)
    };
    let lives = live.is_some();
    let incarnation = live.map_or(0, |live| live.incarnation);
    let (yes, actual) = match condition {
        Condition::KeyOffset(key, n) => (offset(key) == *n && *n > 0, offset(key)),
        Condition::KeyAbsent(key) => (offset(key) == 0, offset(key)),
        Condition::KeyPresent(key) => (offset(key) > 0, 0),
        Condition::TopicOffset(n) => (lives && topic.last == *n, topic.last),
        Condition::TopicAbsentOr(n) => (!lives || topic.last == *n, topic.last),
        Condition::TopicEmpty => (
            lives && live.map_or(0, |live| live.created) == topic.last,
            topic.last,
        ),
        Condition::Incarnation(n) => (lives && incarnation == *n, incarnation),
    };
    if yes { Ok(()) } else { Err(actual) }
}

impl Session {
    /// All stored answers.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (u64, &Answer)> {
        self.answers
            .iter()
            .map(|(nonce, (_, answer))| (*nonce, answer))
    }
}

//! Calls programs to judge writes, and keeps the modules.
//!
//! Invariants:
//! - A call that is not VALID changes nothing: no record, key, state or memory (I10).
//! - Records reach the sink only after the whole intention was judged.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::change::{delete, put};
use super::running::{RunningProgram, bad};
use super::states::States;
use super::topic::{Bounds, LiveTopic, Topic};
use super::{ApplyError, RecordRange, Stamp};
use crate::batch::{Action, Item};
use crate::call_context::{CallContext, CallInfo, Emit, Source, op};
use crate::digest::{hash, mix};
use crate::effect::Detail;
use crate::effect::Rejection;
use crate::error_code::ErrorCode;
use crate::exact::to_u32;
use crate::ids::{ConsequenceOffset, TopicId};
use crate::intention::TxnOp;
use crate::program::{CodeHash, Entry, Program, ProgramHost, Refusal, Setup};
use crate::record::{ConsequenceSink, RecordFlags};

/// A module and the number of topics that run it.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) topics: u32,
}

/// Modules by hash, each stored once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Codes {
    by_hash: BTreeMap<CodeHash, Code>,
    /// Sum of the bytes of all modules.
    bytes: u64,
}

impl Codes {
    /// Whether `bytes` more may be stored, within a limit of `max` bytes.
    pub(super) fn fits(&self, bytes: u64, max: u64) -> bool {
        self.bytes.saturating_add(bytes) <= max
    }

    /// Whether a module is stored already, or fits within a limit of `max` bytes.
    pub(super) fn has_room(&self, host: &dyn ProgramHost, code: &[u8], max: u64) -> bool {
        self.fits(code.len() as u64, max) || self.by_hash.contains_key(&host.hash(code))
    }

    pub(super) fn get(&self, hash: CodeHash) -> Option<&Code> {
        self.by_hash.get(&hash)
    }

    /// All modules, in order of their hashes.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Code> {
        self.by_hash.values()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }

    /// Stores a module without counting a topic that runs it.
    pub(super) fn insert(&mut self, hash: CodeHash, bytes: Arc<[u8]>) -> &mut Code {
        let sum = &mut self.bytes;
        self.by_hash.entry(hash).or_insert_with(|| {
            *sum += bytes.len() as u64;
            Code { bytes, topics: 0 }
        })
    }

    pub(super) fn get_mut(&mut self, hash: CodeHash) -> Option<&mut Code> {
        self.by_hash.get_mut(&hash)
    }

    pub(super) fn add_topic(&mut self, hash: CodeHash, bytes: Arc<[u8]>) {
        self.insert(hash, bytes).topics += 1;
    }

    pub(super) fn remove_topic(&mut self, hash: CodeHash) {
        let Some(code) = self.by_hash.get_mut(&hash).filter(|code| code.topics > 0) else {
            unreachable!("a module is kept while a topic runs it");
        };
        code.topics -= 1;
        if code.topics == 0 {
            self.bytes -= code.bytes.len() as u64;
            self.by_hash.remove(&hash);
        }
    }
}

pub(super) fn info(stamp: &Stamp, op: u32) -> CallInfo {
    CallInfo {
        op,
        txn: false,
        intention: stamp.intention,
        term: stamp.term,
        time_ms: stamp.time_ms,
        client: stamp.client,
        nonce: stamp.nonce,
        op_index: 0,
        op_count: 1,
    }
}

/// A rejection because a limit was reached.
pub(super) fn limited(max: u64) -> Rejection {
    Rejection::limit(ErrorCode::Limit, max)
}

/// The value of a CREATE or REPLACE record: the hash of the module, then the arguments.
pub(super) fn announcement(hash: CodeHash, args: &[u8]) -> Vec<u8> {
    [&hash.0[..], args].concat()
}

/// Executes a write that the topic's program judges.
pub(super) fn write<S: ConsequenceSink + ?Sized>(
    id: TopicId,
    topic: &mut Topic,
    states: &mut States,
    item: &Item<'_>,
    stamp: &Stamp,
    sink: &mut S,
) -> Result<Result<RecordRange, Rejection>, ApplyError> {
    let absent = || Ok(Err(Rejection::without_detail(ErrorCode::NoTopic)));
    let first = topic.last.plus(1);
    let Some(live) = topic.live.as_mut() else {
        return absent();
    };
    let Some(mut running) = live.program.take() else {
        return absent();
    };
    running.begin_intention(first, item);
    let judged = judge(&mut running, live.bounds(), item, stamp);
    commit_or_revert((id, topic), states, running, judged, (item, stamp), sink)
}

/// Commits or reverts the calls of an intention, according to the verdict of the program.
pub(super) fn commit_or_revert<S: ConsequenceSink + ?Sized>(
    (id, topic): (TopicId, &mut Topic),
    states: &mut States,
    mut running: Box<RunningProgram>,
    judged: Result<Result<(), Rejection>, ApplyError>,
    (item, stamp): (&Item<'_>, &Stamp),
    sink: &mut S,
) -> Result<Result<RecordRange, Rejection>, ApplyError> {
    let first = topic.last.plus(1);
    let live = topic.live.as_ref();
    let judged = judged?.and_then(|()| match live {
        Some(live) => within_quota(&running.context, live, item),
        None => Err(Rejection::without_detail(ErrorCode::NoTopic)),
    });
    let judged = judged.and_then(|()| running.charge(states));
    running.end_intention(judged.is_ok());
    // Read after `end_intention`, which may use fuel itself.
    stamp.fuel.set(running.context.fuel());
    let verdict = judged.map(|()| {
        topic.digest = topic.digest.fold(running.context.digest());
        publish(id, topic, &running.context, item, stamp, sink, true);
        let count = running.context.emits().len();
        let first = if count == 0 {
            ConsequenceOffset::ZERO
        } else {
            first
        };
        (first, to_u32(count, "the records of a call are limited"))
    });
    if let Err(rejection) = &verdict {
        topic.digest = topic.digest.fold(detail_word(&rejection.detail));
    }
    running
        .verdicts
        .count(verdict.as_ref().err().map(|rejection| rejection.reason));
    running.context.release_memory();
    if let Some(live) = topic.live.as_mut() {
        live.program = Some(running);
    }
    Ok(verdict)
}

/// The detail of a verdict as one number, for the digest.
fn detail_word(detail: &Detail) -> u64 {
    match detail {
        Detail::Rejected { code, text } => mix(u64::from(*code), hash(4, text.as_bytes())),
        Detail::Trapped(kind) => mix(5, *kind as u64),
        Detail::Limit(max) => mix(2, *max),
        Detail::Operation { index, reason } => mix(u64::from(*index), u64::from(reason.number())),
        Detail::None | Detail::Actual(_) | Detail::Text(_) => 0,
    }
}

/// Calls the program once for each operation. Changes only the program.
pub(super) fn judge(
    running: &mut RunningProgram,
    bounds: Bounds,
    item: &Item<'_>,
    stamp: &Stamp,
) -> Result<Result<(), Rejection>, ApplyError> {
    let apply = Entry::Apply;
    match item.action {
        Action::Put { key, value } => match bounds.admit(key, Some(value)) {
            Ok(()) => running.call(apply, info(stamp, op::PUT), (key, value)),
            Err(rejection) => Ok(Err(rejection)),
        },
        Action::Delete { key } => match bounds.admit(key, None) {
            Ok(()) => running.call(apply, info(stamp, op::DELETE), (key, &[])),
            Err(rejection) => Ok(Err(rejection)),
        },
        Action::Txn(steps) => {
            for (index, step) in (0_u32..).zip(steps.iter()) {
                let (op, key, value) = match step {
                    TxnOp::Put { key, value, .. } => (op::PUT, key, Some(value)),
                    TxnOp::Delete { key, .. } => (op::DELETE, key, None),
                };
                let mut about = info(stamp, op);
                (about.txn, about.op_index, about.op_count) = (true, index, steps.len());
                let judged = match bounds.admit(key, value) {
                    Ok(()) => running.call(apply, about, (key, value.unwrap_or(&[])))?,
                    Err(rejection) => Err(rejection),
                };
                if let Err(rejection) = judged {
                    return Ok(Err(aborted(index, &rejection)));
                }
            }
            Ok(Ok(()))
        }
        _ => Ok(Ok(())),
    }
}

fn aborted(index: u32, rejection: &Rejection) -> Rejection {
    Rejection {
        reason: ErrorCode::TxnAborted,
        detail: Detail::Operation {
            index,
            reason: rejection.reason,
        },
    }
}

/// Whether the topic stays within its quota of keys after the requested records.
pub(super) fn within_quota(
    context: &CallContext,
    live: &LiveTopic,
    item: &Item<'_>,
) -> Result<(), Rejection> {
    let Some(keys_max) = live.options.keys_max else {
        return Ok(());
    };
    let mut inputs = Inputs::new(item);
    let steps = context.emits().iter().map(|emit| {
        let (key, value, _) = inputs.at(emit.op_index);
        let key = context.resolve(emit.key, key, value);
        let (value, meta) = (&[][..], &[][..]);
        if emit.delete {
            TxnOp::Delete { key, meta }
        } else {
            TxnOp::Put { key, value, meta }
        }
    });
    live.admits_all(steps)
        .map_err(|rejection| match rejection.detail {
            Detail::Operation { reason, .. } => Rejection {
                reason,
                detail: Detail::Limit(keys_max),
            },
            _ => rejection,
        })
}

/// Key, value and metadata of each operation. Must be read in ascending order of indexes.
struct Inputs<'a> {
    item: Item<'a>,
    steps: Option<Box<dyn Iterator<Item = TxnOp<'a>> + 'a>>,
    next: u32,
    current: (&'a [u8], &'a [u8], &'a [u8]),
}

impl<'a> Inputs<'a> {
    fn new(item: &Item<'a>) -> Self {
        let (steps, current) = match item.action {
            Action::Put { key, value } => (None, (key, value, item.meta)),
            Action::Delete { key } => (None, (key, &[][..], item.meta)),
            Action::Txn(steps) => {
                let steps: Box<dyn Iterator<Item = TxnOp<'a>> + 'a> = Box::new(steps.iter());
                (Some(steps), (&[][..], &[][..], &[][..]))
            }
            _ => (None, (&[][..], &[][..], item.meta)),
        };
        Self {
            item: *item,
            steps,
            next: 0,
            current,
        }
    }

    fn at(&mut self, index: u32) -> (&'a [u8], &'a [u8], &'a [u8]) {
        let Some(steps) = &mut self.steps else {
            return self.current;
        };
        while self.next <= index {
            self.next += 1;
            self.current = match steps.next() {
                Some(TxnOp::Put { key, value, meta }) => (key, value, meta),
                Some(TxnOp::Delete { key, meta }) => (key, &[], meta),
                None => (&[], &[], self.item.meta),
            };
        }
        self.current
    }
}

/// Writes the requested records. The last record has the flag LAST.
pub(super) fn publish<S: ConsequenceSink + ?Sized>(
    id: TopicId,
    topic: &mut Topic,
    context: &CallContext,
    item: &Item<'_>,
    stamp: &Stamp,
    sink: &mut S,
    may_be_txn: bool,
) {
    let txn = may_be_txn && matches!(item.action, Action::Txn(_));
    let base = if txn { RecordFlags::TXN } else { 0 };
    let mut inputs = Inputs::new(item);
    let emits = context.emits();
    for (left, wanted) in (0..emits.len()).rev().zip(emits) {
        let flags = base | if left == 0 { RecordFlags::LAST } else { 0 };
        let (key, value, meta) = inputs.at(wanted.op_index);
        let Emit {
            key: key_source,
            value: value_source,
            delete: is_delete,
            ..
        } = *wanted;
        let record_key = match key_source {
            Source::Key => key,
            other => context.resolve(other, key, value),
        };
        if is_delete {
            delete(id, topic, stamp, sink, flags, (record_key, meta));
        } else {
            let record_value = context.resolve(value_source, key, value);
            put(
                id,
                topic,
                stamp,
                sink,
                flags,
                (record_key, record_value, meta),
            );
        }
    }
}

/// Asks the host to admit a module for a topic with these options.
pub(super) fn admit(
    host: &dyn ProgramHost,
    code: &[u8],
    setup: &Setup,
    stamp: &Stamp,
) -> Result<Result<Box<dyn Program>, Rejection>, ApplyError> {
    match host.admit(code, setup) {
        Ok(program) => Ok(Ok(program)),
        Err(Refusal::Bad(sentence)) => Ok(Err(bad(&sentence))),
        Err(Refusal::Unable(why)) => Err(ApplyError::ProgramUnable {
            intention: stamp.intention,
            why,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct First;

    impl ProgramHost for First {
        fn hash(&self, code: &[u8]) -> CodeHash {
            CodeHash([code.first().copied().unwrap_or(0); 32])
        }

        fn admit(&self, _: &[u8], _: &Setup) -> Result<Box<dyn Program>, Refusal> {
            Err(Refusal::Bad("none".to_owned()))
        }

        fn fingerprint(&self) -> String {
            "none".to_owned()
        }
    }

    #[test]
    fn modules_are_counted_once_and_bounded() {
        let mut codes = Codes::default();
        let one: Arc<[u8]> = Arc::from([1; 60]);
        let hash = First.hash(&one);
        codes.add_topic(hash, Arc::clone(&one));
        codes.add_topic(hash, Arc::clone(&one));
        let has_room = |codes: &Codes, code: &[u8]| codes.has_room(&First, code, 100);
        assert!(has_room(&codes, &[2; 40]));
        assert!(has_room(&codes, &one), "kept already");
        assert!(!has_room(&codes, &[2; 41]));
        codes.remove_topic(hash);
        assert!(!has_room(&codes, &[2; 41]), "one topic left");
        codes.remove_topic(hash);
        assert!(has_room(&codes, &[2; 100]) && !has_room(&codes, &[2; 101]));
        assert!(codes.is_empty());
    }
}

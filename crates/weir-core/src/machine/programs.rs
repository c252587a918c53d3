//! The part of the machine that lets programs judge.
//!
//! A call that is not VALID leaves nothing behind: neither record nor key nor
//! state nor memory (I10). Records reach the sink only when the whole
//! intention has been judged.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::change::{delete, put};
use super::states::States;
use super::{ApplyError, Emitted, Stamp};
use crate::batch::{Action, Item};
use crate::desk::{CallInfo, Desk, Emit, Source, op};
use crate::digest::{hash, mix};
use crate::effect::Detail;
use crate::error_code::ErrorCode;
use crate::exact::to_u32;
use crate::ids::{ConsequenceOffset, TopicId};
use crate::intention::TxnOp;
use crate::kv::KvMap;
use crate::limits::{DETAIL_TEXT_BYTES_MAX, START_FUEL, STATE_ENTRY_BYTES};
use crate::options::TopicOptions;
use crate::program::{
    CodeHash, Entry, Facts, Program, ProgramCounts, ProgramHost, Refusal, Setup, StateMode, Trap,
    Verdict,
};
use crate::record::{ConsequenceSink, RecordFlags};
use crate::topic::{Bounds, Live, No, Topic};

/// A program at work in a topic.
pub(crate) struct Running {
    pub(crate) code: CodeHash,
    pub(crate) args: Arc<[u8]>,
    pub(crate) meter: u32,
    pub(crate) mode: StateMode,
    facts: Facts,
    program: Box<dyn Program>,
    pub(crate) desk: Box<Desk>,
    /// The topic's keys are kept on the desk.
    pub(crate) watches: bool,
    /// Principal of the CREATE, to whom the state is charged.
    pub(crate) owner: Arc<[u8]>,
    /// Bytes that it is charged for.
    pub(crate) charged: u64,
    pub(crate) counts: ProgramCounts,
}

impl Clone for Running {
    fn clone(&self) -> Self {
        Self {
            code: self.code,
            args: Arc::clone(&self.args),
            meter: self.meter,
            mode: self.mode,
            facts: self.facts,
            program: self.program.fork(),
            desk: Box::new(self.desk.kept()),
            watches: self.watches,
            owner: Arc::clone(&self.owner),
            charged: self.charged,
            counts: self.counts,
        }
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("code", &self.code)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl Running {
    pub(crate) fn new(
        (code, meter): (CodeHash, u32),
        args: Arc<[u8]>,
        mode: StateMode,
        program: Box<dyn Program>,
        desk: Desk,
        watches: bool,
        owner: Arc<[u8]>,
    ) -> Self {
        Self {
            code,
            args,
            meter,
            mode,
            facts: program.facts(),
            program,
            desk: Box::new(desk),
            watches,
            owner,
            charged: 0,
            counts: ProgramCounts::default(),
        }
    }

    /// One call; everything but VALID is an `Err`.
    pub(super) fn call(
        &mut self,
        entry: Entry,
        info: CallInfo,
        (key, value): (&[u8], &[u8]),
    ) -> Result<Result<(), No>, ApplyError> {
        let copies = self.facts.reads_input || self.watches;
        self.desk.lay(info, key, value, copies);
        // The calls of a transaction share what one start may use.
        let most = self.desk.limits().fuel_max.max(START_FUEL);
        let left = most.saturating_sub(self.desk.fuel());
        let fuel = match entry {
            Entry::Apply => self.desk.limits().fuel_max.min(left),
            Entry::Init | Entry::Upgrade => most,
        };
        let reason = |reason, detail| Ok(Err(No { reason, detail }));
        let before = self.desk.fuel();
        let judged = self.program.judge(entry, fuel, &mut self.desk);
        self.counts.calls += 1;
        self.counts.fuel += self.desk.fuel() - before;
        match judged {
            Ok(Verdict::Valid) => {}
            Ok(Verdict::Reject(_)) => self.counts.rejects += 1,
            Err(_) => self.counts.traps += 1,
        }
        match judged {
            Ok(Verdict::Valid) => Ok(Ok(())),
            Ok(Verdict::Reject(code)) => {
                let text = String::from_utf8_lossy(self.desk.text());
                let text = Arc::from(text.as_ref());
                reason(ErrorCode::Rejected, Detail::Rejected { code, text })
            }
            Err(Trap::Trapped(kind)) => reason(ErrorCode::Trap, Detail::Trapped(kind)),
            Err(Trap::OutOfFuel) => reason(ErrorCode::OutOfFuel, Detail::Limit(fuel)),
            Err(Trap::Limit(max)) => reason(ErrorCode::Limit, Detail::Limit(max)),
            Err(Trap::Unable(why)) => Err(ApplyError::ProgramUnable {
                intention: info.intention,
                why,
            }),
        }
    }

    /// Makes ready for an intention whose first record has this offset.
    pub(super) fn open(&mut self, first: ConsequenceOffset, item: &Item<'_>) {
        self.desk.open(first);
        self.desk.lay_principal(item.principal);
    }

    /// Keeps what the calls of an intention did, or takes it back.
    pub(super) fn settle(&mut self, kept: bool) {
        self.program.settle(kept, &mut self.desk);
        if kept {
            self.desk.keep();
        } else {
            self.desk.revert();
        }
    }

    /// Whether the topic may have these options from now on; a sentence if
    /// not.
    pub(super) fn may_have(&self, options: &TopicOptions) -> Result<(), No> {
        if options.program.state != self.mode {
            return Err(bad("the state mode of a topic is fixed when it is created"));
        }
        let setup = setup(options, self.mode, self.meter);
        self.program.fits(&setup).map_err(|sentence| bad(&sentence))
    }

    /// Whether its module can have left these memory and globals.
    pub(super) fn accepts_image(&self) -> bool {
        self.program.accepts(self.desk.image())
    }

    /// Whether its module needs the topic's keys.
    pub(super) fn reads_keys(&self) -> bool {
        self.facts.reads_keys
    }

    /// Bytes that its state as it is now should be charged with.
    pub(super) fn weight(&self) -> u64 {
        let of = |map: &KvMap| map.bytes() + STATE_ENTRY_BYTES * map.len() as u64;
        let own = match self.mode {
            StateMode::None => 0,
            StateMode::Kv => of(self.desk.state()),
            StateMode::Memory => self.facts.memory_bytes_max,
        };
        own + self.desk.keys().map_or(0, of)
    }

    /// Charges its state, or says which cap that would break.
    pub(super) fn charge(&mut self, states: &mut States) -> Result<(), No> {
        let weight = self.weight();
        if weight != self.charged {
            states.charge(&self.owner, self.charged, weight)?;
            self.charged = weight;
        }
        Ok(())
    }

    /// Bytes of what it keeps.
    pub(crate) fn state_bytes(&self) -> u64 {
        self.desk.state().bytes() + self.desk.image().memory.len() as u64
    }
}

/// A module and how many topics run it.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) topics: u32,
}

/// Modules by their hash, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Codes {
    by_hash: BTreeMap<CodeHash, Code>,
    /// Bytes of all.
    bytes: u64,
}

impl Codes {
    /// Whether so many bytes more may be kept, whatever modules they are.
    pub(super) fn fits(&self, bytes: u64, max: u64) -> bool {
        self.bytes.saturating_add(bytes) <= max
    }

    /// Whether a module may be kept beside the others.
    pub(super) fn has_room(&self, host: &dyn ProgramHost, code: &[u8], max: u64) -> bool {
        self.fits(code.len() as u64, max) || self.by_hash.contains_key(&host.hash(code))
    }

    pub(super) fn get(&self, hash: CodeHash) -> Option<&Code> {
        self.by_hash.get(&hash)
    }

    /// All of them, in order of their hashes.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Code> {
        self.by_hash.values()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }

    /// Keeps a module that no topic runs yet.
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

    pub(super) fn take(&mut self, hash: CodeHash, bytes: Arc<[u8]>) {
        self.insert(hash, bytes).topics += 1;
    }

    pub(super) fn release(&mut self, hash: CodeHash) {
        let Some(code) = self.by_hash.get_mut(&hash) else {
            return;
        };
        code.topics = code.topics.saturating_sub(1);
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

pub(super) fn bad(text: &str) -> No {
    let mut end = text.len().min(DETAIL_TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    No {
        reason: ErrorCode::BadProgram,
        detail: Detail::Text(Arc::from(&text[..end])),
    }
}

/// A limit was reached.
pub(super) fn limited(max: u64) -> No {
    No::limit(ErrorCode::Limit, max)
}

/// What a CREATE or REPLACE record tells about the program.
pub(super) fn announcement(hash: CodeHash, args: &[u8]) -> Vec<u8> {
    [&hash.0[..], args].concat()
}

/// Lets the topic's program judge a write.
pub(super) fn write<S: ConsequenceSink + ?Sized>(
    id: TopicId,
    topic: &mut Topic,
    states: &mut States,
    item: &Item<'_>,
    stamp: &Stamp,
    sink: &mut S,
) -> Result<Result<Emitted, No>, ApplyError> {
    let absent = || Ok(Err(No::bare(ErrorCode::NoTopic)));
    let first = topic.last.plus(1);
    let Some(live) = topic.live.as_mut() else {
        return absent();
    };
    let Some(mut running) = live.program.take() else {
        return absent();
    };
    running.open(first, item);
    let judged = judge(&mut running, live.bounds(), item, stamp);
    settle((id, topic), states, running, judged, (item, stamp), sink)
}

/// Draws the consequences of what a program said.
pub(super) fn settle<S: ConsequenceSink + ?Sized>(
    (id, topic): (TopicId, &mut Topic),
    states: &mut States,
    mut running: Box<Running>,
    judged: Result<Result<(), No>, ApplyError>,
    (item, stamp): (&Item<'_>, &Stamp),
    sink: &mut S,
) -> Result<Result<Emitted, No>, ApplyError> {
    let first = topic.last.plus(1);
    let live = topic.live.as_ref();
    let judged = judged?.and_then(|()| match live {
        Some(live) => within_quota(&running.desk, live, item),
        None => Err(No::bare(ErrorCode::NoTopic)),
    });
    let judged = judged.and_then(|()| running.charge(states));
    running.settle(judged.is_ok());
    // After that, which may have a bill of its own.
    stamp.fuel.set(running.desk.fuel());
    let verdict = judged.map(|()| {
        topic.digest = topic.digest.fold(running.desk.folded());
        publish(id, topic, &running.desk, item, stamp, sink, true);
        let count = running.desk.emits().len();
        let first = if count == 0 {
            ConsequenceOffset::ZERO
        } else {
            first
        };
        (first, to_u32(count, "the records of a call are limited"))
    });
    if let Err(no) = &verdict {
        topic.digest = topic.digest.fold(told(&no.detail));
    }
    running.desk.rest();
    if let Some(live) = topic.live.as_mut() {
        live.program = Some(running);
    }
    Ok(verdict)
}

/// What a verdict says beyond its reason, in one number.
fn told(detail: &Detail) -> u64 {
    match detail {
        Detail::Rejected { code, text } => mix(u64::from(*code), hash(4, text.as_bytes())),
        Detail::Trapped(kind) => mix(5, *kind as u64),
        Detail::Limit(max) => mix(2, *max),
        Detail::Operation { index, reason } => mix(u64::from(*index), u64::from(reason.number())),
        Detail::None | Detail::Actual(_) | Detail::Text(_) => 0,
    }
}

/// Calls the program once for each operation. Touches nothing but the program.
pub(super) fn judge(
    running: &mut Running,
    bounds: Bounds,
    item: &Item<'_>,
    stamp: &Stamp,
) -> Result<Result<(), No>, ApplyError> {
    let apply = Entry::Apply;
    match item.action {
        Action::Put { key, value } => match bounds.admit(key, Some(value)) {
            Ok(()) => running.call(apply, info(stamp, op::PUT), (key, value)),
            Err(no) => Ok(Err(no)),
        },
        Action::Delete { key } => match bounds.admit(key, None) {
            Ok(()) => running.call(apply, info(stamp, op::DELETE), (key, &[])),
            Err(no) => Ok(Err(no)),
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
                    Err(no) => Err(no),
                };
                if let Err(no) = judged {
                    return Ok(Err(aborted(index, &no)));
                }
            }
            Ok(Ok(()))
        }
        _ => Ok(Ok(())),
    }
}

fn aborted(index: u32, no: &No) -> No {
    No {
        reason: ErrorCode::TxnAborted,
        detail: Detail::Operation {
            index,
            reason: no.reason,
        },
    }
}

/// Whether the wanted records keep the number of keys in its quota.
pub(super) fn within_quota(desk: &Desk, live: &Live, item: &Item<'_>) -> Result<(), No> {
    if live.options.keys_max.is_none() {
        return Ok(());
    }
    let mut inputs = Inputs::new(item);
    let steps = desk.emits().iter().map(|emit| {
        let (key, value, _) = inputs.at(emit.op_index);
        let key = desk.resolve(emit.key, key, value);
        let (value, meta) = (&[][..], &[][..]);
        if emit.delete {
            TxnOp::Delete { key, meta }
        } else {
            TxnOp::Put { key, value, meta }
        }
    });
    live.admits_all(steps).map_err(|no| match no.detail {
        Detail::Operation { reason, .. } => No {
            reason,
            detail: Detail::Limit(live.options.keys_max.unwrap_or(0)),
        },
        _ => no,
    })
}

/// Key, value and metadata of each operation, asked for in ascending order.
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

/// Writes the wanted records. The last one closes the intention.
pub(super) fn publish<S: ConsequenceSink + ?Sized>(
    id: TopicId,
    topic: &mut Topic,
    desk: &Desk,
    item: &Item<'_>,
    stamp: &Stamp,
    sink: &mut S,
    may_be_txn: bool,
) {
    let txn = may_be_txn && matches!(item.action, Action::Txn(_));
    let base = if txn { RecordFlags::TXN } else { 0 };
    let mut inputs = Inputs::new(item);
    let emits = desk.emits();
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
            other => desk.resolve(other, key, value),
        };
        if is_delete {
            delete(id, topic, stamp, sink, flags, (record_key, meta));
        } else {
            let record_value = desk.resolve(value_source, key, value);
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

/// What a host must know about a topic with these options.
pub(super) fn setup(options: &TopicOptions, mode: StateMode, meter: u32) -> Setup {
    Setup {
        mode,
        memory_bytes_max: options.program_limits().memory_bytes_max,
        meter,
    }
}

pub(super) fn admit(
    host: &dyn ProgramHost,
    code: &[u8],
    setup: &Setup,
    stamp: &Stamp,
) -> Result<Result<Box<dyn Program>, No>, ApplyError> {
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
        codes.take(hash, Arc::clone(&one));
        codes.take(hash, Arc::clone(&one));
        let has_room = |codes: &Codes, code: &[u8]| codes.has_room(&First, code, 100);
        assert!(has_room(&codes, &[2; 40]));
        assert!(has_room(&codes, &one), "kept already");
        assert!(!has_room(&codes, &[2; 41]));
        codes.release(hash);
        assert!(!has_room(&codes, &[2; 41]), "one topic left");
        codes.release(hash);
        assert!(has_room(&codes, &[2; 100]) && !has_room(&codes, &[2; 101]));
        assert!(codes.is_empty());
    }
}

//! Applies an intention to a live plain topic: its records and its key index.
//!
//! Invariants:
//! - A record is emitted only after every check that can reject the intention (I10).
//! - A record gets the next offset of its topic (I1).

use super::topic::Topic;
use super::{RecordRange, Stamp};
use crate::batch::{Action, Item, Steps};
use crate::effect::Rejection;
use crate::error_code::ErrorCode;
use crate::ids::{ConsequenceOffset, TopicId};
use crate::intention::TxnOp;
use crate::options::TopicOptions;
use crate::record::{ConsequenceSink, Record, RecordFlags, RecordKind};

/// Changes a live topic.
#[inline]
pub(super) fn change<S: ConsequenceSink + ?Sized>(
    id: TopicId,
    topic: &mut Topic,
    item: &Item<'_>,
    stamp: &Stamp,
    sink: &mut S,
) -> Result<RecordRange, Rejection> {
    let last = RecordFlags::LAST;
    let absent = Rejection::without_detail(ErrorCode::NoTopic);
    match item.action {
        Action::Put { key, value } => {
            let live = topic.live.as_ref().ok_or(absent)?;
            live.admits(key, Some(value))?;
            live.has_room(key)?;
            Ok((
                put(id, topic, stamp, sink, last, (key, value, item.meta)),
                1,
            ))
        }
        Action::Delete { key } => {
            topic.live.as_ref().ok_or(absent)?.admits(key, None)?;
            Ok((delete(id, topic, stamp, sink, last, (key, item.meta)), 1))
        }
        Action::Txn(steps) => transaction(id, topic, steps, stamp, sink),
        Action::Destroy => {
            let offset = emit(id, topic, stamp, sink, RecordKind::Destroy, last, |r| {
                r.meta = item.meta;
            });
            if let Some(live) = topic.live.take() {
                sink.discard(Box::new(live));
            }
            Ok((offset, 1))
        }
        Action::Alter { options } => {
            let decoded = TopicOptions::of_item(options);
            if let Some(running) = topic.live.as_mut().and_then(|live| live.program.as_mut()) {
                running.check_options(&decoded)?;
                running.context.set_limits(decoded.program_limits());
            }
            let offset = emit(id, topic, stamp, sink, RecordKind::Alter, last, |r| {
                r.value = options;
                r.meta = item.meta;
            });
            if let Some(live) = &mut topic.live {
                live.options = decoded;
            }
            Ok((offset, 1))
        }
        Action::Quarantine { stopped } => {
            if let Some(live) = &mut topic.live {
                live.stopped = stopped;
            }
            Ok((ConsequenceOffset::ZERO, 0))
        }
        Action::Create { .. }
        | Action::Replace { .. }
        | Action::Cursor { .. }
        | Action::Trim { .. }
        | Action::ExpireSessions { .. } => Err(absent),
    }
}

#[inline]
pub(super) fn put<S: ConsequenceSink + ?Sized>(
    id: TopicId,
    topic: &mut Topic,
    stamp: &Stamp,
    sink: &mut S,
    flags: u8,
    (key, value, meta): (&[u8], &[u8], &[u8]),
) -> ConsequenceOffset {
    let offset = emit(id, topic, stamp, sink, RecordKind::Put, flags, |r| {
        (r.key, r.value, r.meta) = (key, value, meta);
    });
    if !key.is_empty()
        && let Some(live) = &mut topic.live
    {
        live.keys.set(key, offset);
    }
    offset
}

pub(super) fn delete<S: ConsequenceSink + ?Sized>(
    id: TopicId,
    topic: &mut Topic,
    stamp: &Stamp,
    sink: &mut S,
    flags: u8,
    (key, meta): (&[u8], &[u8]),
) -> ConsequenceOffset {
    let offset = emit(id, topic, stamp, sink, RecordKind::Delete, flags, |r| {
        (r.key, r.meta) = (key, meta);
    });
    if let Some(live) = &mut topic.live {
        live.keys.remove(key);
    }
    offset
}

/// Writes all steps or none: every check runs before the first record is written.
fn transaction<S: ConsequenceSink + ?Sized>(
    id: TopicId,
    topic: &mut Topic,
    steps: Steps<'_>,
    stamp: &Stamp,
    sink: &mut S,
) -> Result<RecordRange, Rejection> {
    let live = topic
        .live
        .as_ref()
        .ok_or(Rejection::without_detail(ErrorCode::NoTopic))?;
    live.admits_all(steps.iter())?;
    let first = topic.last.plus(1);
    let count = steps.len();
    for (number, step) in (1_u32..).zip(steps.iter()) {
        let end = if number == count {
            RecordFlags::LAST
        } else {
            0
        };
        let flags = RecordFlags::TXN | end;
        match step {
            TxnOp::Put { key, value, meta } => {
                put(id, topic, stamp, sink, flags, (key, value, meta));
            }
            TxnOp::Delete { key, meta } => {
                delete(id, topic, stamp, sink, flags, (key, meta));
            }
        }
    }
    Ok((first, count))
}

#[inline]
pub(super) fn emit<'a, S: ConsequenceSink + ?Sized>(
    id: TopicId,
    topic: &mut Topic,
    stamp: &Stamp,
    sink: &mut S,
    kind: RecordKind,
    flags: u8,
    fill: impl FnOnce(&mut Record<'a>),
) -> ConsequenceOffset {
    let offset = topic.last.plus(1);
    assert!(offset > topic.last, "offsets are dense and ascend (I1)");
    let mut record = Record {
        offset,
        intention: stamp.intention,
        term: stamp.term,
        time_ms: stamp.time_ms,
        client: stamp.client,
        nonce: stamp.nonce,
        flags: RecordFlags(flags),
        kind,
        key: &[],
        value: &[],
        meta: &[],
    };
    fill(&mut record);
    sink.record(id, &record);
    topic.last = offset;
    offset
}

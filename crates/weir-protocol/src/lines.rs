//! Lines of text: runs of answers, and topics (docs/formats/native.md, sections 6 and 8).

use std::sync::Arc;

use crate::fields::{hex, number, put_hex, put_number, put_text, text};
use weir_core::effect::{Commit, Detail, Effect, Outcome, OutcomeRun};
use weir_core::error_code::{Class, ErrorCode};
use weir_core::limits::DETAIL_TEXT_BYTES_MAX;
use weir_core::program::TrapKind;
use weir_core::{ConsequenceOffset, IntentionOffset};

/// Appends the line of a run, without LF. `nonce` is the first nonce of the run; a refusal
/// does not contain it.
pub fn write_outcome(out: &mut Vec<u8>, nonce: u64, run: &OutcomeRun) {
    put_number(out, nonce);
    out.push(b' ');
    put_number(out, u64::from(run.count));
    out.push(b' ');
    let (commit, is_replayed) = match &run.outcome {
        Outcome::Committed(commit) => (commit, false),
        Outcome::Replayed(commit) => (commit, true),
        Outcome::Refused { code, expected } => {
            out.extend_from_slice(b"REFUSED ");
            put_number(out, u64::from(code.number()));
            out.extend_from_slice(b" 0 0 0 0 expected:");
            put_number(out, *expected);
            return;
        }
    };
    out.extend_from_slice(commit.effect.name().as_bytes());
    if is_replayed {
        out.push(b'*');
    }
    let reason = commit.reason.map_or(0, |code| u64::from(code.number()));
    let numbers = [
        reason,
        commit.intention.0,
        commit.first.0,
        u64::from(commit.records),
        commit.fuel,
    ];
    for number in numbers {
        out.push(b' ');
        put_number(out, number);
    }
    out.push(b' ');
    put_detail(out, &commit.detail);
}

/// Joins `next` to `run` and returns `true` if one line can represent both.
#[must_use]
pub fn join_runs(run: &mut OutcomeRun, next: &OutcomeRun) -> bool {
    let (Outcome::Committed(first), Outcome::Committed(second)) = (&run.outcome, &next.outcome)
    else {
        return false;
    };
    let Some(count) = run.count.checked_add(next.count) else {
        return false;
    };
    let joined = first.precedes_in_run(second, u64::from(run.count));
    if joined {
        run.count = count;
    }
    joined
}

fn put_detail(out: &mut Vec<u8>, detail: &Detail) {
    let mut word = |word: &str, numbers: &[u64]| {
        out.extend_from_slice(word.as_bytes());
        for number in numbers {
            out.push(b':');
            put_number(out, *number);
        }
    };
    match detail {
        Detail::None => word("-", &[]),
        Detail::Actual(n) => word("actual", &[*n]),
        Detail::Limit(n) => word("limit", &[*n]),
        Detail::Operation { index, reason } => {
            word("op", &[u64::from(*index), u64::from(reason.number())]);
        }
        Detail::Trapped(kind) => word("trap", &[*kind as u64]),
        Detail::Rejected { code, text } => {
            word("reject", &[u64::from(*code)]);
            out.push(b':');
            put_text(out, text);
        }
        Detail::Text(text) => {
            word("text", &[]);
            out.push(b':');
            put_text(out, text);
        }
    }
}

/// Reads the lines of a COMMITTED: the first nonce of each run, and the run. Ends after the
/// last line or the first malformed line.
#[derive(Clone, Debug)]
pub struct OutcomeLines<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> OutcomeLines<'a> {
    /// Reads the lines of a message.
    #[must_use]
    pub const fn new(lines: &'a [u8]) -> Self {
        Self { rest: Some(lines) }
    }
}

impl Iterator for OutcomeLines<'_> {
    /// First nonce and run; `None` for a malformed line.
    type Item = Option<(u64, OutcomeRun)>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = next_line(&mut self.rest)?;
        let read = outcome(line);
        if read.is_none() {
            self.rest = None;
        }
        Some(read)
    }
}

pub(crate) fn next_line<'a>(rest: &mut Option<&'a [u8]>) -> Option<&'a [u8]> {
    let text = (*rest)?;
    let end = text.iter().position(|&byte| byte == b'\n');
    *rest = end.and_then(|end| text.get(end + 1..));
    text.get(..end.unwrap_or(text.len()))
}

fn outcome(line: &[u8]) -> Option<(u64, OutcomeRun)> {
    let mut fields = line.splitn(9, |&byte| byte == b' ');
    let nonce = number(fields.next()?)?;
    let count = u32::try_from(number(fields.next()?)?).ok()?;
    let word = fields.next()?;
    let mut numbers = [0; 5];
    for slot in &mut numbers {
        *slot = number(fields.next()?)?;
    }
    let detail = fields.next()?;
    let [reason, intention, first, records, fuel] = numbers;
    let reason = match reason {
        0 => None,
        n => Some(code(n)?),
    };
    let last = u64::from(count).checked_sub(1)?;
    nonce.checked_add(last)?;
    intention.checked_add(last)?;
    first.checked_add(last)?;
    if word == b"REFUSED" {
        let code = reason.filter(|code| code.class() == Class::Refusal)?;
        let expected = number(detail.strip_prefix(b"expected:")?)?;
        if (intention, first, records, fuel) != (0, 0, 0, 0) {
            return None;
        }
        let outcome = Outcome::Refused { code, expected };
        return Some((nonce, OutcomeRun { count, outcome }));
    }
    let effect = Effect::of(reason)?;
    let is_replayed = match word.strip_prefix(effect.name().as_bytes())? {
        b"" => false,
        b"*" => true,
        _ => return None,
    };
    let detail = read_detail(detail)?;
    let records = u32::try_from(records).ok()?;
    let one_by_one = count == 1 || records <= 1;
    let numbered = (records == 0) == (first == 0);
    let is_valid = effect == Effect::Valid;
    if intention == 0
        || !one_by_one
        || !numbered
        || (is_valid && detail != Detail::None)
        || (!is_valid && records != 0)
    {
        return None;
    }
    let commit = Commit {
        nonce,
        effect,
        reason,
        detail,
        intention: IntentionOffset(intention),
        first: ConsequenceOffset(first),
        records,
        fuel,
    };
    let outcome = if is_replayed {
        Outcome::Replayed(commit)
    } else {
        Outcome::Committed(commit)
    };
    Some((nonce, OutcomeRun { count, outcome }))
}

fn code(number: u64) -> Option<ErrorCode> {
    u16::try_from(number).ok().and_then(ErrorCode::from_number)
}

fn read_detail(field: &[u8]) -> Option<Detail> {
    if field == b"-" {
        return Some(Detail::None);
    }
    let at = field.iter().position(|&byte| byte == b':')?;
    let (word, rest) = (field.get(..at)?, field.get(at + 1..)?);
    let two = || {
        let at = rest.iter().position(|&byte| byte == b':')?;
        Some((number(rest.get(..at)?)?, rest.get(at + 1..)?))
    };
    let bounded_text = |bytes: &[u8]| -> Option<Arc<str>> {
        let text = text(bytes)?;
        (text.len() <= DETAIL_TEXT_BYTES_MAX).then(|| text.into())
    };
    Some(match word {
        b"actual" => Detail::Actual(number(rest)?),
        b"limit" => Detail::Limit(number(rest)?),
        b"op" => {
            let (index, reason) = two()?;
            Detail::Operation {
                index: u32::try_from(index).ok()?,
                reason: code(number(reason)?)?,
            }
        }
        b"trap" => {
            let kind = u8::try_from(number(rest)?).ok()?;
            Detail::Trapped(TrapKind::from_number(kind)?)
        }
        b"reject" => {
            let (code, text) = two()?;
            Detail::Rejected {
                code: u16::try_from(code).ok()?,
                text: bounded_text(text)?,
            }
        }
        b"text" => Detail::Text(bounded_text(rest)?),
        _ => return None,
    })
}

/// State of a topic, as one line describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicLine<'a> {
    /// Name.
    pub name: &'a str,
    /// Number.
    pub number: u32,
    /// Intention offset of its CREATE; 0 for a destroyed topic.
    pub incarnation: u64,
    /// Offset of the first remaining record; 0 for none.
    pub first: u64,
    /// Offset of the last record.
    pub last: u64,
    /// Number of keys with a value.
    pub keys: u64,
    /// Stored size in bytes.
    pub bytes: u64,
    /// Encoded options.
    pub options: Vec<u8>,
}

/// Appends the line of a topic, without LF.
pub fn write_topic(out: &mut Vec<u8>, topic: &TopicLine<'_>) {
    out.extend_from_slice(topic.name.as_bytes());
    let numbers = [
        u64::from(topic.number),
        topic.incarnation,
        topic.first,
        topic.last,
        topic.keys,
        topic.bytes,
    ];
    for number in numbers {
        out.push(b' ');
        put_number(out, number);
    }
    out.push(b' ');
    if topic.options.is_empty() {
        out.push(b'-');
    } else {
        put_hex(out, &topic.options);
    }
}

/// Reads lines about topics.
#[derive(Clone, Debug)]
pub struct TopicLines<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> TopicLines<'a> {
    /// Reads the lines of a message; an empty message has no lines.
    #[must_use]
    pub fn new(lines: &'a [u8]) -> Self {
        Self {
            rest: Some(lines).filter(|lines| !lines.is_empty()),
        }
    }
}

impl<'a> Iterator for TopicLines<'a> {
    /// `None` for a malformed line.
    type Item = Option<TopicLine<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = next_line(&mut self.rest)?;
        let read = topic(line);
        if read.is_none() {
            self.rest = None;
        }
        Some(read)
    }
}

fn topic(line: &[u8]) -> Option<TopicLine<'_>> {
    let mut fields = line.split(|&byte| byte == b' ');
    let name = std::str::from_utf8(fields.next()?).ok()?;
    weir_core::TopicName::any(name).ok()?;
    let mut numbers = [0; 6];
    for slot in &mut numbers {
        *slot = number(fields.next()?)?;
    }
    let [id, incarnation, first, last, keys, bytes] = numbers;
    let options = match fields.next()? {
        b"-" => Vec::new(),
        digits => hex(digits).filter(|bytes| !bytes.is_empty())?,
    };
    if fields.next().is_some() {
        return None;
    }
    Some(TopicLine {
        name,
        number: u32::try_from(id).ok()?,
        incarnation,
        first,
        last,
        keys,
        bytes,
        options,
    })
}

//! Batches and transactions.
//!
//! A batch is read as it comes and cut at item boundaries into log entries of
//! at most 10,000 items or 4 MiB; no more than one such entry is held. Each
//! item has its own outcome; the answer lists them run-length coded.

mod cursor;
mod few;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use weir_core::limits::{CALL_ITEMS_MAX, EXPECTS_MAX, TXN_OPS_MAX};
use weir_core::{
    Detail, Effect, ErrorCode, Expect, Intention, Operation, Outcome, Outcomes, TxnOp,
};
use weir_store::{Proposal, StoreError};

use self::cursor::Cursor;
use self::few::{Few, Members, Word};
use super::base64;
use super::cloudevents;
use super::coding;
use super::condition::{About, Conditions, One};
use super::head::{Known, Method};
use super::json::{self, Object, number, text};
use super::limits::{ENTRY_BYTES_MAX, RUNS_MAX};
use super::meta::MetaWriter;
use super::offload;
use super::problem::{self, Kind, Problem};
use super::reply::Reply;
use super::route::Resource;
use super::service::{Call, Edge, Input, busy, lost, whole};
use super::write::{self, Session, key_of, outcomes};
use crate::admission::Permit;
use crate::room::{NoRoom, Room, SMALL_BYTES};

/// How the body of a batch is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Lines,
    Sequence,
    Events,
}

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A value.
    Values,
    /// A write with key, metadata and conditions.
    Records,
}

fn framing(call: &Call) -> Option<Framing> {
    if call.matched.resource != Resource::Events || call.head.method != Method::Post {
        return None;
    }
    let media = call.head.text(Known::ContentType)?;
    let essence = media.split(';').next().unwrap_or_default().trim();
    let is = |name: &str| essence.eq_ignore_ascii_case(name);
    if is("application/x-ndjson") || is("application/jsonl") || is("application/ndjson") {
        Some(Framing::Lines)
    } else if is("application/json-seq") {
        Some(Framing::Sequence)
    } else {
        cloudevents::is_batch(&call.head).then_some(Framing::Events)
    }
}

/// Whether the body is many events.
pub(crate) fn is_batch(call: &Call) -> bool {
    framing(call).is_some()
}

/// Whether the body is read by the batch itself, piece by piece.
pub(crate) fn is_stream(call: &Call) -> bool {
    is_batch(call)
}

/// One write of a batch.
#[derive(Debug, Default)]
struct Item {
    delete: bool,
    key: Vec<u8>,
    value: Vec<u8>,
    meta: Vec<u8>,
    expect: Vec<One>,
}

impl Item {
    /// It as a step of a transaction.
    fn step(&self) -> TxnOp<'_> {
        let (key, meta) = (&self.key, &self.meta);
        if self.delete {
            return TxnOp::Delete { key, meta };
        }
        let value = &self.value;
        TxnOp::Put { key, value, meta }
    }
}

/// An item in mode `records`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordItem<'a> {
    op: Option<Cow<'a, str>>,
    key: Option<Cow<'a, str>>,
    key64: Option<Cow<'a, str>>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    text: Option<Cow<'a, str>>,
    value64: Option<Cow<'a, str>>,
    #[serde(borrow)]
    meta: Option<Members<'a, Cow<'a, str>>>,
    #[serde(borrow)]
    expect: Option<Members<'a, Word<'a>>>,
}

fn bad(what: impl Into<String>) -> Problem {
    Problem::bad(what)
}

fn read_record(source: &str) -> Result<Item, Problem> {
    let record: RecordItem<'_> = serde_json::from_str(source)
        .map_err(|error| bad(format!("the item cannot be read: {error}")))?;
    let decode = |text: &str, what: &str| {
        base64::decode(text).ok_or_else(|| bad(format!("{what} is no base64")))
    };
    let mut item = Item {
        key: match (record.key, record.key64) {
            (Some(_), Some(_)) => return Err(bad("the item has key and key64")),
            (Some(key), None) => key.as_bytes().to_vec(),
            (None, Some(coded)) => decode(&coded, "key64")?,
            (None, None) => Vec::new(),
        },
        ..Item::default()
    };
    item.delete = match record.op.as_deref() {
        None | Some("put" | "PUT") => false,
        Some("delete" | "DELETE") => true,
        Some(_) => return Err(bad("op is put or delete")),
    };
    let mut meta = MetaWriter::default();
    match (record.value, record.text, record.value64) {
        (None, None, None) if item.delete => {}
        (Some(raw), None, None) if !item.delete => {
            item.value = raw.get().as_bytes().to_vec();
            if record
                .meta
                .as_ref()
                .is_none_or(|meta| !meta.0.contains_key("content-type"))
            {
                meta.json();
            }
        }
        (None, Some(text), None) if !item.delete => {
            item.value = text.as_bytes().to_vec();
            if record
                .meta
                .as_ref()
                .is_none_or(|meta| !meta.0.contains_key("content-type"))
            {
                meta.field("content-type", "text/plain; charset=utf-8")?;
            }
        }
        (None, None, Some(coded)) if !item.delete => {
            item.value = decode(&coded, "value64")?;
        }
        (None, None, None) => return Err(bad("the item needs value, text or value64")),
        _ => {
            return Err(bad(
                "an item has one of value, text and value64, and a delete none",
            ));
        }
    }
    for (name, value) in record.meta.iter().flat_map(|meta| &meta.0) {
        if name == "content-type" {
            write::typed(Some(value), &item.value, &mut meta)?;
        } else if !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        {
            meta.field(name, value)?;
        } else {
            return Err(bad(
                "names in meta have lower-case letters, digits and hyphens",
            ));
        }
    }
    item.meta = meta.done()?;
    let expect = record.expect.iter().flat_map(|expect| &expect.0);
    item.expect = read_expect(expect)?;
    Ok(item)
}

/// `{"key-offset":7,"key-absent":true}`.
fn read_expect<'a>(
    expect: impl Iterator<Item = (&'a Cow<'a, str>, &'a Word<'a>)>,
) -> Result<Vec<One>, Problem> {
    let mut ones = Vec::new();
    for (name, value) in expect {
        let name = name.replace('_', "-");
        let one = match value {
            Word::Yes(true) => One::read(&name, None),
            Word::Number(number) => One::read(&name, Some(&number.to_string())),
            Word::Yes(false) | Word::Text(_) => None,
        };
        ones.push(one.ok_or_else(|| bad(format!("the condition {name:?} cannot be read")))?);
    }
    Ok(ones)
}

/// Reads items one by one.
#[derive(Clone)]
struct Reader {
    framing: Framing,
    mode: Mode,
    key: Vec<u8>,
    value_max: usize,
}

impl Reader {
    fn read(&self, source: &[u8]) -> Result<Item, Problem> {
        if source.len() > self.value_max.saturating_mul(2) + (64 << 10) {
            return Err(Problem::too_large("an item", self.value_max));
        }
        let text = std::str::from_utf8(source);
        if self.framing == Framing::Events {
            let event = cloudevents::read(text.map_err(|_| bad("the event is no UTF-8"))?)?;
            let key = if event.key.is_empty() {
                self.key.clone()
            } else {
                event.key
            };
            return Ok(Item {
                key,
                meta: event.meta,
                value: event.value.into_owned(),
                ..Item::default()
            });
        }
        if self.mode == Mode::Records {
            let mut item = read_record(text.map_err(|_| bad("the item is no UTF-8"))?)?;
            if item.key.is_empty() {
                item.key.clone_from(&self.key);
            }
            return Ok(item);
        }
        if let Some(at) = json::check(source) {
            return Err(bad("the item is no JSON text").number("column", at as u64 + 1));
        }
        Ok(Item {
            key: self.key.clone(),
            value: source.trim_ascii().to_vec(),
            meta: b"json".to_vec(),
            ..Item::default()
        })
    }
}

/// What has come of a batch so far.
#[derive(Debug, Default)]
struct Summary {
    items: u64,
    valid: u64,
    runs: Vec<u8>,
    count: usize,
    first_intention: Option<u64>,
    replayed: bool,
}

impl Summary {
    fn add(&mut self, outcomes: &Outcomes) {
        for run in outcomes.runs() {
            if self.count < RUNS_MAX {
                if self.count > 0 {
                    self.runs.push(b',');
                }
                self.run(self.items, run.count, &run.outcome);
            }
            self.count += 1;
            self.items += u64::from(run.count);
            if let Some(commit) = run.outcome.commit() {
                self.first_intention.get_or_insert(commit.intention.0);
                if commit.effect == Effect::Valid {
                    self.valid += u64::from(run.count);
                }
            }
            self.replayed |= matches!(run.outcome, Outcome::Replayed(_));
        }
    }

    /// `[from, count, "valid", first offset]`, `[from, count, "invalid" or
    /// "error", code, text]`, `[from, count, "refused", code, text]`.
    fn run(&mut self, from: u64, count: u32, outcome: &Outcome) {
        let out = &mut self.runs;
        out.push(b'[');
        number(out, from);
        out.push(b',');
        number(out, count.into());
        out.push(b',');
        let (word, code, words) = match outcome {
            Outcome::Refused { code, .. } => ("refused", Some(*code), code.sentence().to_owned()),
            Outcome::Committed(commit) | Outcome::Replayed(commit) => {
                let words = match &commit.detail {
                    Detail::Rejected { text, .. } | Detail::Text(text) if !text.is_empty() => {
                        text.to_string()
                    }
                    _ => commit.reason.map_or("", ErrorCode::sentence).to_owned(),
                };
                (commit.effect.name(), commit.reason, words)
            }
        };
        text(out, &word.to_ascii_lowercase());
        match (code, outcome.commit()) {
            (Some(code), _) => {
                out.push(b',');
                number(out, code.number().into());
                out.push(b',');
                text(out, &words);
            }
            (None, Some(commit)) => {
                out.push(b',');
                number(out, commit.first.0);
            }
            (None, None) => {}
        }
        out.push(b']');
    }

    fn members(&self, object: &mut Object<'_>) {
        object
            .number("items", self.items)
            .number("valid", self.valid);
        let out = object.place("runs");
        out.push(b'[');
        out.extend_from_slice(&self.runs);
        out.push(b']');
        if self.count > RUNS_MAX {
            object.number("runs_left_out", (self.count - RUNS_MAX) as u64);
        }
    }
}

/// Which item the store does not take, and why.
type Stopped = Box<(Option<usize>, Problem)>;

/// A batch that is being written.
struct Writer<'a> {
    edge: &'a Arc<Edge>,
    call: &'a Call,
    session: Session,
    items: Vec<Item>,
    bytes: usize,
    summary: Summary,
}

impl Writer<'_> {
    async fn push(&mut self, item: Item) -> Result<(), Problem> {
        let size = item.key.len() + item.value.len() + item.meta.len() + 16;
        if !self.items.is_empty()
            && (self.items.len() >= CALL_ITEMS_MAX || self.bytes + size > ENTRY_BYTES_MAX)
        {
            self.flush().await?;
        }
        self.bytes += size;
        self.items.push(item);
        Ok(())
    }

    /// Writes what is there as one log entry.
    async fn flush(&mut self) -> Result<(), Problem> {
        if self.items.is_empty() {
            return Ok(());
        }
        let mut items = std::mem::take(&mut self.items);
        self.bytes = 0;
        // The request itself was counted as one.
        let security = &self.edge.shared.security;
        while let Err(pause) = security.admit(&self.call.principal, items.len() as u64, 0) {
            tokio::time::sleep(pause).await;
        }
        let (refused, (proposal, permit)) = match self.propose(&items) {
            Ok(proposed) => (None, proposed),
            // Those before it stand.
            Err(refused) if refused.0.is_some_and(|index| index > 0) => {
                let (index, problem) = *refused;
                items.truncate(index.unwrap_or(0));
                let proposed = self.propose(&items).map_err(|refused| refused.1)?;
                (Some(problem), proposed)
            }
            Err(refused) => return Err(refused.1),
        };
        let outcomes = outcomes(self.edge, proposal, permit).await?;
        if self.session.nonce != 0 {
            self.session.nonce += items.len() as u64;
        }
        self.summary.add(&outcomes);
        refused.map_or(Ok(()), Err)
    }

    fn propose(&self, items: &[Item]) -> Result<(Proposal, Permit), Stopped> {
        let expects: Vec<Vec<Expect<'_>>> = items
            .iter()
            .map(|item| item.expect.iter().copied().map(One::expect).collect())
            .collect();
        let mut nonce = self.session.nonce;
        let mut intentions = Vec::with_capacity(items.len());
        for (item, expect) in items.iter().zip(&expects) {
            let operation = if item.delete {
                Operation::Delete { key: &item.key }
            } else {
                Operation::Put {
                    key: &item.key,
                    value: &item.value,
                }
            };
            intentions.push(Intention {
                client: self.session.client,
                nonce,
                expect,
                meta: &item.meta,
                principal: self.call.principal.name.as_bytes(),
                ..Intention::new(&self.call.matched.topic, operation)
            });
            nonce += u64::from(nonce != 0);
        }
        let allowed = self.edge.allow(self.call, &intentions);
        allowed.map_err(|(index, problem)| Box::new((Some(index), problem)))?;
        let bytes = intentions.iter().map(Intention::size_hint).sum();
        let shared = &self.edge.shared;
        let permit = shared.room(&intentions, bytes);
        let permit = permit.ok_or_else(|| {
            let busy = Problem::new(Kind::Busy, ErrorCode::Busy.sentence());
            Box::new((None, busy.code(ErrorCode::Busy)))
        })?;
        match shared.propose(&intentions) {
            Ok(proposal) => {
                let permit = shared.admission.follow(permit, &proposal);
                Ok((proposal, permit))
            }
            Err(error) => {
                let index = if let StoreError::Refused { index, .. } = error {
                    Some(index)
                } else {
                    None
                };
                Err(Box::new((index, problem::of_store(&error))))
            }
        }
    }
}

/// A batch.
pub(crate) async fn run(edge: &Arc<Edge>, call: &Call, input: Input<'_>) -> Result<Reply, Problem> {
    let framing = framing(call).unwrap_or(Framing::Lines);
    let mode = call.query.word(
        "mode",
        &[("values", Mode::Values), ("records", Mode::Records)],
    )?;
    let atomic = call.query.flag("atomic")?;
    let conditions = Conditions::read(&call.head, About::Events)?;
    if !conditions.is_empty() && !atomic {
        return Err(bad(
            "conditions of a whole batch go with `atomic=true`; else each item has its own",
        ));
    }
    if !conditions.tags.is_empty() {
        return Err(bad("a batch takes one tag"));
    }
    let config = &edge.shared.config;
    let reader = Reader {
        framing,
        mode: mode.unwrap_or(Mode::Values),
        key: key_of(call)?,
        value_max: config.payload_max.0,
    };
    let coded = !coding::of_request(call)?.is_empty();
    if atomic || coded || framing == Framing::Events {
        let max = config.body_max.0;
        let mut room = Room::new(&edge.shared.admission);
        let body = whole(input, max, &mut room).await?;
        let body = coding::decode(call, body, max, &mut room).await?;
        // Its items are copies.
        room.cover(body.len() * 2).await.map_err(busy)?;
        return at_once(edge, call, &reader, &body, atomic.then_some(conditions)).await;
    }
    let mut writer = Writer {
        edge,
        call,
        session: Session::counted(edge, call, b"")?,
        items: Vec::new(),
        bytes: 0,
        summary: Summary::default(),
    };
    let mut stream = Stream {
        input,
        room: Room::new(&edge.shared.admission),
        buffer: Vec::new(),
        from: 0,
        ended: false,
    };
    let (mut line, mut byte) = (0_u64, 0_u64);
    let failed = loop {
        let held = writer.bytes;
        let (source, taken) = match stream.item(framing, reader.value_max, held).await {
            Ok(Some(found)) => found,
            Ok(None) => break None,
            Err(problem) => break Some(problem),
        };
        line += 1;
        let source = stream.buffer.get(source).unwrap_or_default();
        if !source.trim_ascii().is_empty() {
            match reader.read(source) {
                Ok(item) => {
                    if let Err(problem) = writer.push(item).await {
                        break Some(problem);
                    }
                }
                Err(problem) => break Some(problem),
            }
        }
        byte += taken as u64;
    };
    let flushed = writer.flush().await;
    let failed = failed.or(flushed.err());
    answer(
        call,
        &writer.summary,
        failed.map(|problem| (problem, line, byte)),
    )
}

/// Items of a body that were read, and why no more were.
struct Gathered {
    items: Vec<Item>,
    cursor: Cursor,
    failed: Option<(Problem, u64, u64)>,
    ended: bool,
}

/// Reads the next items: those of one log entry.
fn gather(reader: &Reader, body: &[u8], mut cursor: Cursor) -> Gathered {
    let (mut items, mut bytes) = (Vec::new(), 0);
    let (mut failed, mut ended) = (None, false);
    while items.len() < CALL_ITEMS_MAX && bytes < ENTRY_BYTES_MAX {
        let Some(source) = cursor.next(body) else {
            ended = true;
            break;
        };
        match reader.read(source.bytes) {
            Ok(item) => {
                bytes += source.bytes.len();
                items.push(item);
            }
            Err(problem) => {
                failed = Some((problem, source.line, source.byte as u64));
                break;
            }
        }
    }
    Gathered {
        items,
        cursor,
        failed,
        ended,
    }
}

/// A batch that is there as a whole.
async fn at_once(
    edge: &Arc<Edge>,
    call: &Call,
    reader: &Reader,
    body: &Bytes,
    atomic: Option<Conditions>,
) -> Result<Reply, Problem> {
    if reader.framing == Framing::Events {
        cloudevents::check_format(&call.head)?;
    }
    let (framing, whole) = (reader.framing, body.clone());
    let mut cursor = offload::sized(body.len(), move || Cursor::new(framing, &whole)).await?;
    if let Some(conditions) = atomic {
        let (own, whole) = (reader.clone(), body.clone());
        let items = offload::sized(body.len(), move || {
            let mut items = Vec::new();
            while let Some(source) = cursor.next(&whole) {
                if items.len() == TXN_OPS_MAX {
                    return Err(too_many());
                }
                let item = own.read(source.bytes).map_err(|problem| {
                    let problem = problem.number("line", source.line);
                    problem.number("byte", source.byte as u64)
                })?;
                items.push(item);
            }
            Ok(items)
        });
        let items = items.await?;
        let session = Session::read(edge, call, body)?;
        return all_or_none(edge, call, session, &conditions, &items).await;
    }
    let mut writer = Writer {
        edge,
        call,
        session: Session::counted(edge, call, body)?,
        items: Vec::new(),
        bytes: 0,
        summary: Summary::default(),
    };
    let mut failed = None;
    while failed.is_none() {
        let (own, whole) = (reader.clone(), body.clone());
        let gathered = offload::sized(body.len(), move || Ok(gather(&own, &whole, cursor)));
        let gathered = gathered.await?;
        for item in gathered.items {
            if let Err(problem) = writer.push(item).await {
                failed = Some((problem, 0, 0));
                break;
            }
        }
        cursor = gathered.cursor;
        failed = failed.or(gathered.failed);
        if gathered.ended {
            break;
        }
    }
    if let Err(problem) = writer.flush().await {
        failed = failed.or(Some((problem, 0, 0)));
    }
    answer(call, &writer.summary, failed)
}

fn too_many() -> Problem {
    Problem::too_large("the number of operations", TXN_OPS_MAX)
}

/// The answer to a batch.
fn answer(
    call: &Call,
    summary: &Summary,
    failed: Option<(Problem, u64, u64)>,
) -> Result<Reply, Problem> {
    if let Some((mut problem, line, byte)) = failed {
        // Some of it may be in the log, so the answer is about the batch.
        if problem.kind == Kind::BadRequest {
            problem.kind = Kind::BadItem;
        }
        let mut runs = Vec::new();
        let mut object = Object::new(&mut runs);
        summary.members(&mut object);
        object.end();
        if line > 0 {
            problem = problem.number("line", line).number("byte", byte);
        }
        problem.intention = summary.first_intention;
        return Err(problem.raw("done", runs));
    }
    let status = if summary.items == summary.valid && summary.items > 0 {
        201
    } else {
        200
    };
    let mut reply = Reply::new(status).number("weir-count", summary.items);
    if let Some(intention) = summary.first_intention {
        reply = reply.number("weir-intention", intention);
    }
    if summary.replayed {
        reply.add("weir-replayed", "?1");
    }
    reply.add("vary", "accept-encoding");
    if write::Prefer::read(&call.head).minimal && status == 201 {
        reply.status = 204;
        return Ok(reply);
    }
    let mut body = Vec::new();
    let mut object = Object::new(&mut body);
    summary.members(&mut object);
    object.end();
    Ok(reply.with("application/json", body))
}

/// Items of a body on its way. Holds one item and what came with it.
struct Stream<'a, 'r> {
    input: Input<'a>,
    /// For the item, and those that are not written.
    room: Room<'r>,
    buffer: Vec<u8>,
    from: usize,
    ended: bool,
}

impl Stream<'_, '_> {
    /// Place of the next item in the buffer, and how many bytes it took; `held`
    /// are those of items before it.
    async fn item(
        &mut self,
        framing: Framing,
        value_max: usize,
        held: usize,
    ) -> Result<Option<(std::ops::Range<usize>, usize)>, Problem> {
        let mark = if framing == Framing::Lines {
            b'\n'
        } else {
            0x1e
        };
        let mut seen = self.from;
        loop {
            let rest = self.buffer.get(seen..).unwrap_or_default();
            if let Some(at) = rest.iter().position(|byte| *byte == mark) {
                let end = seen + at;
                let range = self.from..end;
                let taken = end + 1 - self.from;
                self.from = end + 1;
                return Ok(Some((range, taken)));
            }
            if self.ended {
                let range = self.from..self.buffer.len();
                self.from = self.buffer.len();
                return Ok((!range.is_empty()).then(|| (range.clone(), range.len())));
            }
            self.buffer.drain(..self.from);
            self.from = 0;
            if self.buffer.len() > value_max.saturating_mul(2) + (64 << 10) {
                return Err(Problem::too_large("an item", value_max));
            }
            seen = self.buffer.len();
            // Small items may take their time, however many there are.
            let large = seen > SMALL_BYTES;
            let piece = match &mut self.input {
                Input::Whole(bytes) => {
                    Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty())
                }
                Input::Source(source) => {
                    source.hurry(large);
                    let piece = source.next().await.map_err(lost)?;
                    let more = piece.as_ref().map_or(0, Bytes::len);
                    if self.room.cover(seen + more + held).await.is_err() {
                        return Err(busy(NoRoom));
                    }
                    piece
                }
            };
            match piece {
                Some(piece) => self.buffer.extend_from_slice(&piece),
                None => self.ended = true,
            }
        }
    }
}

/// One intention for all items.
async fn all_or_none(
    edge: &Arc<Edge>,
    call: &Call,
    session: Session,
    conditions: &Conditions,
    items: &[Item],
) -> Result<Reply, Problem> {
    if items.len() > TXN_OPS_MAX {
        return Err(too_many());
    }
    if items.iter().any(|item| !item.expect.is_empty()) {
        return Err(bad("conditions of a transaction are given for all of it"));
    }
    let ops: Vec<TxnOp<'_>> = items.iter().map(Item::step).collect();
    let expects = conditions.expects(None);
    txn(edge, call, session, &ops, &expects).await
}

async fn txn(
    edge: &Arc<Edge>,
    call: &Call,
    session: Session,
    ops: &[TxnOp<'_>],
    expects: &[Expect<'_>],
) -> Result<Reply, Problem> {
    let (proposal, permit) = {
        let intention = Intention {
            client: session.client,
            nonce: session.nonce,
            expect: expects,
            principal: call.principal.name.as_bytes(),
            fingerprint: session.fingerprint,
            ..Intention::new(&call.matched.topic, Operation::Txn { ops })
        };
        write::propose(edge, call, std::slice::from_ref(&intention))?
    };
    let outcomes = outcomes(edge, proposal, permit).await?;
    let outcome = outcomes.runs().first().map(|run| &run.outcome);
    let commit = match outcome {
        None => return Err(Problem::new(Kind::Internal, "the store answered nothing")),
        Some(Outcome::Refused { code, expected }) => return Err(write::refused(*code, *expected)),
        Some(Outcome::Committed(commit) | Outcome::Replayed(commit)) => commit,
    };
    if commit.effect != Effect::Valid {
        let mut problem = problem::of_commit(commit);
        // Of several it is not known which one failed.
        if let [expect] = expects
            && problem.kind == Kind::Conflict
            && let Some(one) = One::of(expect)
        {
            problem = one.explain(problem);
            if let (One::TopicOffset(_), Detail::Actual(now)) = (one, &commit.detail) {
                problem = problem.field("etag", format!("\"o{now}\""));
            }
        }
        return Err(problem);
    }
    let (first, records) = (commit.first.0, u64::from(commit.records));
    let mut reply = Reply::new(201)
        .number("weir-count", records)
        .number("weir-intention", commit.intention.0);
    reply.add("weir-effect", "valid");
    if matches!(outcome, Some(Outcome::Replayed(_))) {
        reply.add("weir-replayed", "?1");
    }
    if records > 0 {
        reply = reply.number("weir-offset", first);
        reply.add(
            "location",
            format_args!("/v1/topics/{}/events/{first}", call.matched.topic),
        );
    }
    let mut body = Vec::new();
    let mut object = Object::new(&mut body);
    object
        .number("offset", first)
        .number("count", records)
        .number("intention", commit.intention.0)
        .text("effect", "valid");
    object.end();
    Ok(reply.with("application/json", body))
}

/// The body of a transaction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Transaction<'a> {
    #[serde(borrow)]
    operations: Few<&'a RawValue, TXN_OPS_MAX>,
    #[serde(borrow, default)]
    expect: Few<Members<'a, Word<'a>>, EXPECTS_MAX>,
}

/// A condition on a key names it here, since there are several.
type OfKey = (Option<Vec<u8>>, Vec<One>);

/// Operations and conditions of a transaction.
fn read_transaction(body: &[u8]) -> Result<(Vec<Item>, Vec<OfKey>), Problem> {
    let source: Transaction<'_> = serde_json::from_slice(body)
        .map_err(|error| bad(format!("the transaction cannot be read: {error}")))?;
    if source.operations.more {
        return Err(too_many());
    }
    if source.expect.more {
        return Err(Problem::too_large("the number of conditions", EXPECTS_MAX));
    }
    let mut items = Vec::with_capacity(source.operations.items.len());
    for (index, raw) in (0_u64..).zip(&source.operations.items) {
        items.push(read_record(raw.get()).map_err(|problem| problem.number("index", index))?);
    }
    if items.is_empty() {
        return Err(bad("a transaction has at least one operation"));
    }
    if items.iter().any(|item| !item.expect.is_empty()) {
        return Err(bad("conditions of a transaction are given for all of it"));
    }
    let mut keys = Vec::with_capacity(source.expect.items.len());
    for Members(members) in &source.expect.items {
        let key = match (members.get("key"), members.get("key64")) {
            (None, None) => None,
            (Some(Word::Text(key)), None) => Some(key.as_bytes().to_vec()),
            (None, Some(Word::Text(key))) => {
                Some(base64::decode(key).ok_or_else(|| bad("key64 is no base64"))?)
            }
            _ => return Err(bad("a condition has a key as text")),
        };
        let rest = members.iter();
        let rest = rest.filter(|(name, _)| !matches!(name.as_ref(), "key" | "key64"));
        keys.push((key, read_expect(rest)?));
    }
    Ok((items, keys))
}

/// Several operations, all or none.
pub(crate) async fn transaction(
    edge: &Arc<Edge>,
    call: &Call,
    body: &Bytes,
) -> Result<Reply, Problem> {
    let media = call
        .head
        .text(Known::ContentType)
        .unwrap_or("application/json");
    let essence = media.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json")
        && !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded")
    {
        return Err(Problem::new(Kind::MediaType, "a transaction is JSON")
            .raw("accept", b"[\"application/json\"]".to_vec()));
    }
    let whole = body.clone();
    let (items, keys) = offload::sized(body.len(), move || read_transaction(&whole)).await?;
    let mut expects = Conditions::read(&call.head, About::Events)?.expects(None);
    for (key, ones) in &keys {
        for one in ones {
            expects.push(match (one.expect(), key) {
                (Expect::KeyOffset(_, n), Some(key)) => Expect::KeyOffset(Some(key), n),
                (Expect::KeyAbsent(_), Some(key)) => Expect::KeyAbsent(Some(key)),
                (Expect::KeyPresent(_), Some(key)) => Expect::KeyPresent(Some(key)),
                (Expect::KeyOffset(..) | Expect::KeyAbsent(_) | Expect::KeyPresent(_), None) => {
                    return Err(bad("a condition on a key names it"));
                }
                (other, None) => other,
                (_, Some(_)) => return Err(bad("a condition on the topic has no key")),
            });
        }
    }
    let ops: Vec<TxnOp<'_>> = items.iter().map(Item::step).collect();
    let session = Session::read(edge, call, body)?;
    txn(edge, call, session, &ops, &expects).await
}

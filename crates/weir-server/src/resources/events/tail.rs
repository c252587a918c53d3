//! Live tails: server-sent events (the HTML standard, 9.2).
//!
//! The only state of a tail is its position: a client that lost its connection resumes with the
//! last id that it received. A tail reads from the store at the rate of its client, one piece at a
//! time. It is closed if the client accepts nothing for too long.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use weir_core::{ConsequenceOffset, ErrorCode, Record};
use weir_store::{Page, TopicReader};

use super::read::{Filter, start};
use crate::http::accept;
use crate::http::base64;
use crate::http::exchange::busy;
use crate::http::head::FieldName;
use crate::http::json::{Object, number};
use crate::http::offload;
use crate::http::problem::{Kind, Problem};
use crate::http::query::offset_of;
use crate::http::reply::{Body, Boxed, Reply, Source};
use crate::limits::budget::Reservation;
use crate::limits::{PROGRESS_RECORDS, RETRY_MS, TAIL_BYTES};
use crate::resources::context::{Call, Edge};
use crate::resources::hub::{Form, Piece};
use crate::resources::live::{EventStream, WaitEnd};
use crate::resources::problems;
use crate::resources::reading::reserve_block;
use crate::resources::records::{Fields, key_field, object};

/// Whether the request is for a tail.
pub(crate) fn is_requested(call: &Call) -> bool {
    call.query.bytes("live").is_some() || accept::names(&call.head, "text/event-stream")
}

/// Parses an id: an offset, or an incarnation and an offset.
fn read_id(text: &str) -> Option<(Option<u64>, u64)> {
    match text.split_once('-') {
        Some((incarnation, offset)) => Some((Some(offset_of(incarnation)?), offset_of(offset)?)),
        None => Some((None, offset_of(text)?)),
    }
}

/// Parses the id of the last event that the client received.
fn last_id(call: &Call) -> Result<Option<(Option<u64>, u64)>, Problem> {
    let id = match call.head.text(FieldName::LastEventId) {
        Some(id) if !id.is_empty() => Some(id),
        _ => call.query.text("last-event-id")?,
    };
    let id = id.map(|id| {
        read_id(id).ok_or_else(|| Problem::bad("the last event id is not an id of this topic"))
    });
    id.transpose()
}

/// Opens a tail.
#[allow(
    clippy::too_many_lines,
    reason = "parameters, position, response; in this order"
)]
pub(crate) async fn open(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    let query = &call.query;
    query.word("live", &[("sse", ())])?;
    for name in ["order", "limit", "max-bytes", "wait", "at-least"] {
        if query.bytes(name).is_some() {
            return Err(Problem::bad(format!(
                "{name} applies to pages only, not to tails"
            )));
        }
    }
    let fields = query.text("fields")?.map(Fields::read).transpose()?;
    let numbers_as_text = query
        .word("numbers", &[("string", true), ("number", false)])?
        .unwrap_or(false);
    let whole_record = query
        .word("data", &[("record", true), ("value", false)])?
        .unwrap_or(false);
    let filter = Filter::read(call)?;
    let last_id = last_id(call)?;
    let resumed = last_id.map(|(_, offset)| offset);
    let (reader, after, gap) = start(edge, call, true, resumed).await?;
    let incarnation = edge
        .shared
        .store
        .topic_state(&call.matched.topic)
        .and_then(|topic| topic.incarnation);
    // A topic that was created again has other ids, so an old id is not valid.
    let of_id = last_id.and_then(|(incarnation, _)| incarnation);
    let both = of_id.zip(incarnation);
    if both.is_some_and(|(old, current)| current.0 != old) {
        return Err(Problem::new(
            Kind::Gone,
            "the id belongs to an earlier incarnation of the topic",
        )
        .code(ErrorCode::Gone)
        .number("first", reader.first().0)
        .number("last", reader.last().0));
    }
    let live = EventStream::new(edge, call, &call.matched.topic);
    // Ids carry the incarnation if the first offset is above 1, as in a topic that was created
    // again.
    let first_read = edge
        .shared
        .store
        .read(&call.matched.topic, ConsequenceOffset::ZERO)
        .ok();
    let needs_incarnation = first_read.is_some_and(|reader| reader.first().0 > 1);
    let mut hello = format!("retry: {RETRY_MS}\nevent: hello\ndata: ").into_bytes();
    let mut object = Object::new(&mut hello);
    object
        .number("first", reader.first().0)
        .number("last", reader.last().0)
        .number("after", after);
    object.end();
    hello.extend_from_slice(b"\n\n");
    if gap {
        control(
            &mut hello,
            "gap",
            &[("first", reader.first().0), ("last", reader.last().0)],
        );
    }
    let tail = Tail {
        live,
        style: Style {
            whole_record,
            numbers_as_text,
            fields: fields.unwrap_or_default(),
            incarnation: incarnation
                .filter(|_| needs_incarnation)
                .map(|offset| offset.0),
        },
        plain: filter.is_empty() && fields.is_none(),
        filter,
        reader,
        next: after,
        reported: after,
        caught_up: false,
        first: Some(hello.into()),
        is_finished: false,
    };
    let mut reply = Reply::new(200).field("content-type", "text/event-stream");
    reply.add("cache-control", "no-store, no-transform");
    reply.add("x-accel-buffering", "no");
    reply.body = Body::Source(Box::new(tail));
    Ok(reply)
}

/// The form of events.
#[derive(Clone, Copy, Debug)]
struct Style {
    /// Whether the data is the whole record, not only its payload.
    whole_record: bool,
    numbers_as_text: bool,
    fields: Fields,
    /// The incarnation in ids; `None`: ids have none.
    incarnation: Option<u64>,
}

impl Style {
    /// Distinguishes pieces of different forms.
    fn form(self) -> Form {
        let flags = u8::from(self.whole_record) | u8::from(self.numbers_as_text) << 1;
        (flags, self.incarnation)
    }
}

struct Tail {
    live: EventStream,
    style: Style,
    /// Whether other tails can use its rendered events.
    plain: bool,
    filter: Filter,
    reader: TopicReader,
    /// Offset of the last record that was examined.
    next: u64,
    /// The last position that the client received.
    reported: u64,
    caught_up: bool,
    first: Option<Bytes>,
    is_finished: bool,
}

impl Source for Tail {
    fn next(&mut self) -> Boxed<'_, Option<Bytes>> {
        Box::pin(self.piece())
    }

    fn is_tail(&self) -> bool {
        true
    }
}

impl Tail {
    async fn piece(&mut self) -> Option<Bytes> {
        if let Some(hello) = self.first.take() {
            return Some(hello);
        }
        if self.is_finished {
            return None;
        }
        loop {
            self.live.mark_seen();
            if self.live.is_draining() {
                return Some(self.close_event("draining"));
            }
            if self.live.is_old() {
                return Some(self.close_event("age"));
            }
            if !self.live.may_read() {
                return Some(self.close_event("forbidden"));
            }
            match self.read().await {
                Ok(Some(bytes)) => return Some(bytes),
                Ok(None) => {}
                Err(problem) => return Some(self.problem_event(&problem)),
            }
            if !self.caught_up {
                self.caught_up = true;
                let mut out = Vec::new();
                control(&mut out, "caught-up", &[("after", self.next)]);
                return Some(out.into());
            }
            match self.live.wait().await {
                WaitEnd::Idle if !self.live.is_old() => return Some(self.heartbeat()),
                WaitEnd::Changed | WaitEnd::Idle => {}
                WaitEnd::Closed => return Some(self.close_event("closed")),
            }
        }
    }

    /// Returns the next events; `None` if there are none.
    async fn read(&mut self) -> Result<Option<Bytes>, Problem> {
        if self.next >= self.reader.last().0 {
            return Ok(None);
        }
        let from = (self.next, self.style.form());
        if self.plain
            && let Some(piece) = self.live.follow.rendered(from)
        {
            self.move_to(piece.next);
            self.reported = piece.next;
            return Ok(Some(piece.bytes));
        }
        let budget = &self.live.edge.shared.admission.answers;
        let mut reservation = Reservation::for_principal(budget, self.live.principal().share_key());
        let mut out = Vec::new();
        while out.len() < TAIL_BYTES {
            let mut missing = reserve_block(&self.reader, out.len(), &mut reservation);
            if missing.is_none() {
                let Some(page) = self.next_page().await? else {
                    break;
                };
                missing = self.render(&page, &mut reservation, &mut out)?;
                // The block is dropped before the wait, and read again from here.
                drop(page);
            }
            let Some(bytes) = missing else { continue };
            self.move_to(self.next);
            if !out.is_empty() {
                break;
            }
            while let Err(exhausted) = reservation.cover(bytes).await {
                if self.live.is_draining() || self.live.is_old() {
                    return Err(busy(exhausted));
                }
            }
        }
        if out.is_empty() {
            return Ok(None);
        }
        let bytes = reservation.attach(out.into());
        // The form changes at the start of another incarnation.
        let has_one_form = self.style.form() == from.1;
        if self.plain && has_one_form && bytes.len() <= 2 * TAIL_BYTES {
            self.live.follow.share(Piece {
                from,
                next: self.next,
                bytes: bytes.clone(),
            });
        }
        Ok(Some(bytes))
    }

    /// Renders the records of a block. Returns the bytes to reserve for the next record, if memory
    /// is missing.
    fn render(
        &mut self,
        page: &Page,
        reservation: &mut Reservation,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, Problem> {
        const MEMBERS_BYTES: usize = 1 << 10;
        let store = &self.live.edge.shared.store;
        let topic = self.style.incarnation.map(|_| &self.live.topic);
        let topic = topic.and_then(|topic| store.topic_state(topic));
        let current = topic.and_then(|topic| topic.incarnation);
        for record in page {
            let record = record.map_err(|error| problems::of_store(&error))?;
            // The topic may have been created again since the start of the tail.
            if let Some(current) = current.filter(|current| record.intention >= *current) {
                self.style.incarnation = Some(current.0);
            }
            if self.filter.matches(&record) {
                let bytes = record.key.len() + record.value.len() + record.meta.len();
                let needed = out.len() + MEMBERS_BYTES + bytes * 2;
                if !reservation.try_cover(needed) {
                    return Ok(Some(needed));
                }
                event(&record, self.style, out);
                self.reported = record.offset.0;
            } else if record.offset.0 - self.reported >= PROGRESS_RECORDS {
                control(out, "progress", &[("after", record.offset.0)]);
                self.reported = record.offset.0;
            }
            self.next = record.offset.0;
        }
        self.next = self.next.max(page.last().0);
        Ok(None)
    }

    /// Returns the next block. If it is not in memory, it is read on a reader thread with a permit.
    async fn next_page(&mut self) -> Result<Option<Page>, Problem> {
        if let Poll::Ready(page) = self.reader.try_next_page() {
            return Ok(page);
        }
        let readers = &self.live.edge.shared.readers;
        let permit = readers.permit_without_deadline().await.map_err(busy)?;
        let mut reader = self.reader.clone();
        let read = readers.run(move || {
            let page = reader.next_page();
            drop(permit);
            (reader, page)
        });
        let (reader, page) = read.await.map_err(|_| offload::panicked())?;
        let page = page.map_err(|error| problems::of_store(&error))?;
        self.reader = reader;
        Ok(page)
    }

    fn move_to(&mut self, to: u64) {
        self.next = to;
        self.reader.seek(ConsequenceOffset(to));
    }

    /// A heartbeat; with a filter, also the position.
    fn heartbeat(&mut self) -> Bytes {
        if self.next == self.reported {
            return Bytes::from_static(b":\n\n");
        }
        let mut out = Vec::new();
        control(&mut out, "progress", &[("after", self.next)]);
        self.reported = self.next;
        out.into()
    }

    /// The last event, with a random retry time so that clients do not reconnect together.
    fn close_event(&mut self, why: &str) -> Bytes {
        self.is_finished = true;
        let retry = RETRY_MS + RandomState::new().build_hasher().finish() % RETRY_MS;
        let mut out = format!("retry: {retry}\nevent: bye\ndata: ").into_bytes();
        let mut object = Object::new(&mut out);
        object.text("why", why).number("after", self.next);
        object.end();
        out.extend_from_slice(b"\n\n");
        out.into()
    }

    fn problem_event(&mut self, problem: &Problem) -> Bytes {
        self.is_finished = true;
        let mut out = b"event: problem\ndata: ".to_vec();
        out.extend_from_slice(&problem.json(""));
        out.extend_from_slice(b"\n\n");
        out.into()
    }
}

/// Appends an event without an id.
fn control(out: &mut Vec<u8>, name: &str, members: &[(&str, u64)]) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    let mut object = Object::new(out);
    for (name, value) in members {
        object.number(name, *value);
    }
    object.end();
    out.extend_from_slice(b"\n\n");
}

/// Appends a record as an event.
fn event(record: &Record<'_>, style: Style, out: &mut Vec<u8>) {
    if !style.whole_record && !record.key.is_empty() {
        let (name, value) = key_field(record.key);
        out.extend_from_slice(b": ");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"id: ");
    if let Some(incarnation) = style.incarnation {
        number(out, incarnation);
        out.push(b'-');
    }
    number(out, record.offset.0);
    out.extend_from_slice(b"\nevent: ");
    out.extend(
        record
            .kind
            .name()
            .bytes()
            .map(|letter| letter.to_ascii_lowercase()),
    );
    let value = record.value;
    // A CR in the value would be read as a line end, so such a value is sent in base64.
    let is_exact =
        std::str::from_utf8(value).is_ok() && !value.contains(&b'\r') && !value.contains(&0);
    if style.whole_record {
        out.extend_from_slice(b"\ndata: ");
        object(record, style.fields, style.numbers_as_text, true, out);
    } else if is_exact {
        for line in value.split(|byte| *byte == b'\n') {
            out.extend_from_slice(b"\ndata: ");
            out.extend_from_slice(line);
        }
    } else {
        out.extend_from_slice(b"64\ndata: ");
        base64::encode(value, out);
    }
    out.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;
    use weir_core::{ClientId, IntentionOffset, RecordFlags, RecordKind};

    fn check(value: &[u8], key: &[u8], want: &str) {
        let record = Record {
            offset: ConsequenceOffset(7),
            intention: IntentionOffset(9),
            term: 0,
            time_ms: 0,
            client: ClientId::NONE,
            nonce: 0,
            flags: RecordFlags(1),
            kind: RecordKind::Put,
            key,
            value,
            meta: b"",
        };
        let mut out = Vec::new();
        let style = Style {
            whole_record: false,
            numbers_as_text: false,
            fields: Fields::default(),
            incarnation: None,
        };
        event(&record, style, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    #[test]
    fn payloads_are_sent_unchanged() {
        check(
            b"{}",
            b"a",
            ": weir-key: a\nid: 7\nevent: put\ndata: {}\n\n",
        );
        check(
            b"a\n b\n",
            b"",
            "id: 7\nevent: put\ndata: a\ndata:  b\ndata: \n\n",
        );
        check(
            b"a\rb",
            b"\n",
            ": weir-key-b64: Cg==\nid: 7\nevent: put64\ndata: YQ1i\n\n",
        );
        check(b"\xff", b"", "id: 7\nevent: put64\ndata: /w==\n\n");
        check(b"", b"", "id: 7\nevent: put\ndata: \n\n");
    }

    #[test]
    fn tails_of_different_incarnations_share_no_events() {
        let form = |incarnation| {
            let style = Style {
                whole_record: false,
                numbers_as_text: false,
                fields: Fields::default(),
                incarnation,
            };
            style.form()
        };
        assert_eq!(form(Some(2)), form(Some(2)));
        assert_ne!(form(Some(2)), form(Some(5)));
        assert_ne!(form(Some(2)), form(None));
    }

    #[test]
    fn malformed_ids_are_refused() {
        assert_eq!(read_id("7"), Some((None, 7)));
        assert_eq!(read_id("5-7"), Some((Some(5), 7)));
        for wrong in ["", "07", "-7", "5-", "a", "5-7-9"] {
            assert_eq!(read_id(wrong), None, "{wrong}");
        }
    }
}

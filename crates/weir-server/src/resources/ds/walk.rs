//! The records of a stream in order, including those of its sources.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::Poll;

use weir_core::{ConsequenceOffset, Record};
use weir_store::{Page, Store, TopicReader};

use super::view::View;
use crate::http::exchange::busy;
use crate::http::json::{self, Object};
use crate::http::problem::{Kind, Problem};
use crate::limits::budget::Reservation;
use crate::resources::meta::{Meta, Shape, shape};
use crate::resources::problems;
use crate::resources::reading::{self, Attempt, reserve_block};
use crate::resources::streams::config::Part;
use crate::resources::streams::terms::is_data;
use crate::security::Principal;
use crate::shared::Shared;

/// Iterates over the records of a stream.
#[derive(Debug)]
pub(crate) struct Walk {
    store: Arc<Store>,
    parts: Vec<Part>,
    /// Number of the current part, and its reader.
    reader: Option<(usize, TopicReader)>,
    /// Position after the last record that was visited.
    pub(crate) position: u64,
}

impl Walk {
    pub(crate) fn new(store: &Arc<Store>, view: &View, position: u64) -> Self {
        Self {
            store: Arc::clone(store),
            parts: view.parts(),
            reader: None,
            position,
        }
    }

    /// Returns the reader of the part with the next record; `None` at the end.
    fn reader(&mut self) -> Result<Option<(usize, TopicReader)>, Problem> {
        let position = self.position;
        let Some(at) = self.parts.iter().position(|part| position < part.end) else {
            return Ok(None);
        };
        if let Some((of, reader)) = self.reader.take()
            && of == at
        {
            return Ok(Some((at, reader)));
        }
        let Some(part) = self.parts.get(at) else {
            return Ok(None);
        };
        let current = self.store.topic_state(&part.topic);
        let current = current.and_then(|topic| topic.incarnation);
        if current.is_none_or(|current| current.0 != part.incarnation) {
            return Err(Problem::new(
                Kind::Gone,
                "the stream from which these records were forked no longer exists",
            ));
        }
        let after = part.first + position.saturating_sub(part.base);
        let reader = self.store.read(&part.topic, ConsequenceOffset(after));
        let reader = reader.map_err(|error| problems::of_store(&error))?;
        // A reader at position 0 starts at the earliest remaining record.
        let reader = if position == 0 {
            reader.or_earliest()
        } else {
            reader
        };
        Ok(Some((at, reader)))
    }

    /// As [`reserve_block`], for the block of the next step.
    fn reserve_block(
        &mut self,
        held: usize,
        reservation: &mut Reservation,
    ) -> Result<Option<usize>, Problem> {
        let Some((at, reader)) = self.reader()? else {
            return Ok(None);
        };
        let missing = reserve_block(&reader, held, reservation);
        self.reader = Some((at, reader));
        Ok(missing)
    }

    /// Visits the records of one block; may block. Returns true at the end of the stream, or after
    /// `each` has stopped.
    pub(crate) fn step(
        &mut self,
        each: impl FnMut(&Record<'_>) -> ControlFlow<()>,
    ) -> Result<bool, Problem> {
        let Some((at, mut reader)) = self.reader()? else {
            return Ok(true);
        };
        let page = reader.next_page();
        let page = page.map_err(|error| problems::of_store(&error))?;
        self.visit((at, reader), page, each)
    }

    /// As `step`, without blocking; `Pending`: the block is not in memory.
    pub(crate) fn step_now(
        &mut self,
        each: impl FnMut(&Record<'_>) -> ControlFlow<()>,
    ) -> Poll<Result<bool, Problem>> {
        let (at, mut reader) = match self.reader() {
            Ok(Some(found)) => found,
            Ok(None) => return Poll::Ready(Ok(true)),
            Err(problem) => return Poll::Ready(Err(problem)),
        };
        match reader.try_next_page() {
            Poll::Ready(page) => Poll::Ready(self.visit((at, reader), page, each)),
            Poll::Pending => {
                self.reader = Some((at, reader));
                Poll::Pending
            }
        }
    }

    fn visit(
        &mut self,
        (at, reader): (usize, TopicReader),
        page: Option<Page>,
        mut each: impl FnMut(&Record<'_>) -> ControlFlow<()>,
    ) -> Result<bool, Problem> {
        let Some(part) = self.parts.get(at) else {
            return Ok(true);
        };
        let Some(page) = page else {
            self.position = part.end;
            return Ok(false);
        };
        let position_of = |offset: u64| part.base + offset.saturating_sub(part.first);
        for record in &page {
            let record = record.map_err(|error| problems::of_store(&error))?;
            let position = position_of(record.offset.0);
            if position > part.end {
                break;
            }
            if is_data(&record) && each(&record).is_break() {
                return Ok(true);
            }
            self.position = position;
        }
        self.position = self.position.max(position_of(page.last().0)).min(part.end);
        self.reader = Some((at, reader));
        Ok(false)
    }
}

/// Data of a stream, collected into one body.
#[derive(Debug)]
pub(crate) struct CollectedBody {
    walk: Walk,
    content: Content,
    /// Bytes of memory that the first record needs.
    needed_bytes: Option<usize>,
}

/// The collected data.
#[derive(Debug)]
struct Content {
    json: bool,
    max: usize,
    out: Vec<u8>,
    /// Number of records.
    count: u64,
}

impl CollectedBody {
    pub(crate) fn new(store: &Arc<Store>, view: &View, position: u64, max: usize) -> Self {
        Self {
            walk: Walk::new(store, view, position),
            content: Content {
                json: view.json,
                max,
                out: Vec::new(),
                count: 0,
            },
            needed_bytes: None,
        }
    }

    /// Adds one block. Returns whether the body is complete: it has `max` bytes and at least one
    /// record, the stream has ended, or memory is missing.
    fn step(&mut self, reservation: &mut Reservation) -> Result<bool, Problem> {
        let (content, needed_bytes) = (&mut self.content, &mut self.needed_bytes);
        if let Some(bytes) = self.walk.reserve_block(content.out.len(), reservation)? {
            *needed_bytes = (content.count == 0).then_some(bytes);
            return Ok(true);
        }
        let is_end = self
            .walk
            .step(|record| content.add(record, reservation, needed_bytes))?;
        Ok(self.is_complete(is_end))
    }

    /// As `step`, without blocking; `Pending`: the block is not in memory.
    fn step_now(&mut self, reservation: &mut Reservation) -> Poll<Result<bool, Problem>> {
        let (content, needed_bytes) = (&mut self.content, &mut self.needed_bytes);
        let is_end = self
            .walk
            .step_now(|record| content.add(record, reservation, needed_bytes));
        is_end.map(|is_end| Ok(self.is_complete(is_end?)))
    }

    fn is_complete(&self, is_end: bool) -> bool {
        is_end || (self.content.count > 0 && self.content.out.len() >= self.content.max)
    }

    /// Collects the whole body. Reads the first block inline if it is in memory, and the rest on a
    /// reader thread. The memory is that of responses to the caller.
    pub(crate) async fn run(
        mut self,
        shared: &Shared,
        caller: &Principal,
    ) -> Result<(Self, Reservation), Problem> {
        let mut reservation =
            Reservation::for_principal(&shared.admission.answers, caller.share_key());
        if let Poll::Ready(is_complete) = self.step_now(&mut reservation)
            && is_complete?
            && self.needed_bytes.is_none()
        {
            return Ok((self, reservation));
        }
        if let Some(bytes) = self.needed_bytes.take() {
            reservation.cover(bytes).await.map_err(busy)?;
        }
        let mut collected = Some(self);
        reading::read(shared, reservation, move |reservation| {
            let Some(mut body) = collected.take() else {
                return Err(Problem::new(Kind::Internal, "a stream is read twice"));
            };
            while !body.step(reservation)? {}
            match body.needed_bytes.take() {
                None => Ok(Attempt::Done(body)),
                Some(bytes) => {
                    collected = Some(body);
                    Ok(Attempt::NeedsMemory(bytes))
                }
            }
        })
        .await
    }

    /// Number of records in the body.
    pub(crate) fn count(&self) -> u64 {
        self.content.count
    }

    /// Position after the body.
    pub(crate) fn next(&self) -> u64 {
        self.walk.position
    }

    /// The body: bytes, or an array of JSON values.
    pub(crate) fn body(self) -> Vec<u8> {
        let Content {
            json,
            mut out,
            count,
            ..
        } = self.content;
        if json {
            out.extend_from_slice(if count == 0 { b"[]" } else { b"]" });
        }
        out
    }
}

impl Content {
    /// Adds a record, unless the body is full or there is no memory for it.
    fn add(
        &mut self,
        record: &Record<'_>,
        reservation: &mut Reservation,
        needed_bytes: &mut Option<usize>,
    ) -> ControlFlow<()> {
        const EXTRA_BYTES: usize = 64;
        if self.count > 0 && self.out.len() >= self.max {
            return ControlFlow::Break(());
        }
        let needed = self.out.len() + record.value.len() / 3 * 4 + EXTRA_BYTES;
        if needed > self.out.capacity() {
            // Doubles the capacity so that it grows rarely, or only as far as needed.
            let doubled = needed.max(self.out.capacity() * 2);
            let Some(capacity) = [doubled, needed]
                .into_iter()
                .find(|capacity| reservation.try_cover(*capacity))
            else {
                *needed_bytes = (self.count == 0).then_some(needed);
                return ControlFlow::Break(());
            };
            self.out.reserve_exact(capacity - self.out.len());
        }
        if self.json {
            self.out.push(if self.count == 0 { b'[' } else { b',' });
            value(record, &mut self.out);
        } else {
            self.out.extend_from_slice(record.value);
        }
        self.count += 1;
        ControlFlow::Continue(())
    }
}

/// Writes a payload as an element of an array: unchanged if it is JSON, otherwise as in other
/// lists of records.
fn value(record: &Record<'_>, out: &mut Vec<u8>) {
    let meta = Meta::of(record.meta, record.value);
    match shape(&meta, record.value) {
        Shape::Json => out.extend_from_slice(record.value),
        Shape::Text => json::text(out, std::str::from_utf8(record.value).unwrap_or_default()),
        Shape::Bytes => {
            let mut object = Object::new(out);
            object.base64("value64", record.value);
            object.end();
        }
    }
}

//! The records of a stream in order, through the streams it was forked from.

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
use crate::resources::reading::{self, Attempt, lacks_block};
use crate::resources::streams::config::Part;
use crate::resources::streams::terms::is_data;
use crate::shared::Shared;

/// Goes through a stream.
#[derive(Debug)]
pub(crate) struct Walk {
    store: Arc<Store>,
    parts: Vec<Part>,
    /// Reader of the part with this number.
    reader: Option<(usize, TopicReader)>,
    /// After the last record that was looked at.
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

    /// The reader of the part in which the next record is; `None` at the end.
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
        let now = self.store.standing(&part.topic);
        let now = now.and_then(|topic| topic.incarnation);
        if now.is_none_or(|now| now.0 != part.incarnation) {
            return Err(Problem::new(
                Kind::Gone,
                "the stream that these records were forked from is not there any more",
            ));
        }
        let after = part.first + position.saturating_sub(part.base);
        let reader = self.store.read(&part.topic, ConsequenceOffset(after));
        let reader = reader.map_err(|error| problems::of_store(&error))?;
        // A reader at position 0 starts at the earliest record that is left.
        let reader = if position == 0 {
            reader.or_earliest()
        } else {
            reader
        };
        Ok(Some((at, reader)))
    }

    /// As [`lacks_block`], for the block of the next step.
    fn lacks(
        &mut self,
        held: usize,
        reservation: &mut Reservation,
    ) -> Result<Option<usize>, Problem> {
        let Some((at, reader)) = self.reader()? else {
            return Ok(None);
        };
        let lacks = lacks_block(&reader, held, reservation);
        self.reader = Some((at, reader));
        Ok(lacks)
    }

    /// Looks at the records of one block, on a thread that may wait for it.
    /// Returns whether that was the end, or the last record that was wanted.
    pub(crate) fn step(
        &mut self,
        each: impl FnMut(&Record<'_>) -> ControlFlow<()>,
    ) -> Result<bool, Problem> {
        let Some((at, mut reader)) = self.reader()? else {
            return Ok(true);
        };
        let page = reader.next_page();
        let page = page.map_err(|error| problems::of_store(&error))?;
        self.take((at, reader), page, each)
    }

    /// As `step`, without waiting; `Pending`: the block is not at hand.
    pub(crate) fn step_now(
        &mut self,
        each: impl FnMut(&Record<'_>) -> ControlFlow<()>,
    ) -> Poll<Result<bool, Problem>> {
        let (at, mut reader) = match self.reader() {
            Ok(Some(found)) => found,
            Ok(None) => return Poll::Ready(Ok(true)),
            Err(problem) => return Poll::Ready(Err(problem)),
        };
        match reader.next_page_now() {
            Poll::Ready(page) => Poll::Ready(self.take((at, reader), page, each)),
            Poll::Pending => {
                self.reader = Some((at, reader));
                Poll::Pending
            }
        }
    }

    fn take(
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
        let place = |offset: u64| part.base + offset.saturating_sub(part.first);
        for record in &page {
            let record = record.map_err(|error| problems::of_store(&error))?;
            let position = place(record.offset.0);
            if position > part.end {
                break;
            }
            if is_data(&record) && each(&record).is_break() {
                return Ok(true);
            }
            self.position = position;
        }
        self.position = self.position.max(place(page.last().0)).min(part.end);
        self.reader = Some((at, reader));
        Ok(false)
    }
}

/// Data of a stream, as one body.
#[derive(Debug)]
pub(crate) struct Gathered {
    walk: Walk,
    content: Content,
    /// Bytes that the next record lacked, and nothing is there yet.
    lacks: Option<usize>,
}

/// What was gathered.
#[derive(Debug)]
struct Content {
    json: bool,
    max: usize,
    out: Vec<u8>,
    /// Records in it.
    count: u64,
}

impl Gathered {
    pub(crate) fn new(store: &Arc<Store>, view: &View, position: u64, max: usize) -> Self {
        Self {
            walk: Walk::new(store, view, position),
            content: Content {
                json: view.json,
                max,
                out: Vec::new(),
                count: 0,
            },
            lacks: None,
        }
    }

    /// Takes one block more. Returns whether it is complete: it has so many
    /// bytes, though one record at least, or everything; or it lacks memory.
    fn step(&mut self, reservation: &mut Reservation) -> Result<bool, Problem> {
        let (content, lacks) = (&mut self.content, &mut self.lacks);
        if let Some(bytes) = self.walk.lacks(content.out.len(), reservation)? {
            *lacks = (content.count == 0).then_some(bytes);
            return Ok(true);
        }
        let done = self
            .walk
            .step(|record| content.add(record, reservation, lacks))?;
        Ok(self.ends(done))
    }

    /// As `step`, without waiting; `Pending`: the block is not at hand.
    fn step_now(&mut self, reservation: &mut Reservation) -> Poll<Result<bool, Problem>> {
        let (content, lacks) = (&mut self.content, &mut self.lacks);
        let done = self
            .walk
            .step_now(|record| content.add(record, reservation, lacks));
        done.map(|done| Ok(self.ends(done?)))
    }

    fn ends(&self, done: bool) -> bool {
        done || (self.content.count > 0 && self.content.out.len() >= self.content.max)
    }

    /// Takes all of it: the first block in place if it is there, the rest elsewhere.
    pub(crate) async fn run(mut self, shared: &Shared) -> Result<(Self, Reservation), Problem> {
        let mut reservation = Reservation::new(&shared.admission.answers);
        if let Poll::Ready(done) = self.step_now(&mut reservation)
            && done?
            && self.lacks.is_none()
        {
            return Ok((self, reservation));
        }
        if let Some(bytes) = self.lacks.take() {
            reservation.cover(bytes).await.map_err(busy)?;
        }
        let mut gathered = Some(self);
        reading::read(shared, reservation, move |reservation| {
            let Some(mut one) = gathered.take() else {
                return Err(Problem::new(Kind::Internal, "a stream is read twice"));
            };
            while !one.step(reservation)? {}
            match one.lacks.take() {
                None => Ok(Attempt::Done(one)),
                Some(bytes) => {
                    gathered = Some(one);
                    Ok(Attempt::Lacks(bytes))
                }
            }
        })
        .await
    }

    /// Records in it.
    pub(crate) fn count(&self) -> u64 {
        self.content.count
    }

    /// Position after it.
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
    /// Adds a record, unless there is enough, or no memory for it.
    fn add(
        &mut self,
        record: &Record<'_>,
        reservation: &mut Reservation,
        lacks: &mut Option<usize>,
    ) -> ControlFlow<()> {
        const EXTRA_BYTES: usize = 64;
        if self.count > 0 && self.out.len() >= self.max {
            return ControlFlow::Break(());
        }
        let need = self.out.len() + record.value.len() / 3 * 4 + EXTRA_BYTES;
        if need > self.out.capacity() {
            // Twice as much, so that it grows seldom; else just what is needed.
            let twice = need.max(self.out.capacity() * 2);
            let Some(to) = [twice, need]
                .into_iter()
                .find(|to| reservation.try_cover(*to))
            else {
                *lacks = (self.count == 0).then_some(need);
                return ControlFlow::Break(());
            };
            self.out.reserve_exact(to - self.out.len());
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

/// A payload in an array: as it is when it is JSON, else as other lists have it.
fn value(record: &Record<'_>, out: &mut Vec<u8>) {
    let meta = Meta::read(record.meta);
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

//! The records of a stream in order, through the streams it was forked from.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::Poll;

use weir_core::{ConsequenceOffset, Record, RecordKind};
use weir_store::{Page, Store, TopicReader};

use super::config::Part;
use super::terms::RESERVED;
use super::view::View;
use crate::http::json::{self, Object};
use crate::http::offload;
use crate::http::problem::{Kind, Problem};
use crate::resources::meta::{Meta, Shape, shape};
use crate::resources::problems;

/// Whether a record is data of its stream.
pub(crate) fn is_data(record: &Record<'_>) -> bool {
    record.kind == RecordKind::Put && !record.key.starts_with(RESERVED)
}

/// Goes through a stream.
#[derive(Debug)]
pub(crate) struct Walk {
    store: Arc<Store>,
    parts: Vec<Part>,
    /// Reader of the part with this number.
    reader: Option<(usize, TopicReader)>,
    /// Behind the last record that was looked at.
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
        // Whoever begins at the beginning takes what is left of it.
        let reader = if position == 0 {
            reader.or_earliest()
        } else {
            reader
        };
        Ok(Some((at, reader)))
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

    /// The same without waiting; `Pending`: the block is not at hand.
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
    json: bool,
    max: usize,
    out: Vec<u8>,
    /// Records in it.
    pub(crate) count: u64,
}

impl Gathered {
    pub(crate) fn new(store: &Arc<Store>, view: &View, position: u64, max: usize) -> Self {
        Self {
            walk: Walk::new(store, view, position),
            json: view.json,
            max,
            out: Vec::new(),
            count: 0,
        }
    }

    /// Takes one block more. Returns whether it is complete: it has so many
    /// bytes, though one record at least, or everything.
    fn step(&mut self) -> Result<bool, Problem> {
        let Self {
            walk,
            json,
            max,
            out,
            count,
        } = self;
        let done = walk.step(|record| add(record, *json, *max, out, count))?;
        Ok(done || (*count > 0 && out.len() >= *max))
    }

    /// The same without waiting; `Pending`: the block is not at hand.
    fn step_now(&mut self) -> Poll<Result<bool, Problem>> {
        let Self {
            walk,
            json,
            max,
            out,
            count,
        } = self;
        let done = walk.step_now(|record| add(record, *json, *max, out, count));
        done.map(|done| Ok(done? || (*count > 0 && out.len() >= *max)))
    }

    /// Takes all of it: the first block in place if it is there, the rest
    /// elsewhere.
    pub(crate) async fn run(mut self) -> Result<Self, Problem> {
        if let Poll::Ready(done) = self.step_now()
            && done?
        {
            return Ok(self);
        }
        offload::run(move || {
            while !self.step()? {}
            Ok(self)
        })
        .await
    }

    /// Position behind it.
    pub(crate) fn next(&self) -> u64 {
        self.walk.position
    }

    /// The body: bytes, or an array of JSON values.
    pub(crate) fn body(mut self) -> Vec<u8> {
        if self.json {
            self.out
                .extend_from_slice(if self.count == 0 { b"[]" } else { b"]" });
        }
        self.out
    }
}

/// Adds a record to what was gathered, unless there is enough.
fn add(
    record: &Record<'_>,
    json: bool,
    max: usize,
    out: &mut Vec<u8>,
    count: &mut u64,
) -> ControlFlow<()> {
    if *count > 0 && out.len() >= max {
        return ControlFlow::Break(());
    }
    if json {
        out.push(if *count == 0 { b'[' } else { b',' });
        value(record, out);
    } else {
        out.extend_from_slice(record.value);
    }
    *count += 1;
    ControlFlow::Continue(())
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

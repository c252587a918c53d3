//! A page of records, in the order of their offsets.
//!
//! Invariants:
//! - A page has at least one record if there is one.
//! - The position after a page skips no record.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use weir_core::{Compaction, ConsequenceOffset};
use weir_store::{Page, TopicReader};

use super::descending::descending;
use super::filter::Filter;
use super::position::{
    SCAN_BYTES_MAX, at_least, depends_on_time, is_not_modified, next_page, not_acceptable, start,
    store_error,
};
use crate::http::accept;
use crate::http::exchange::busy;
use crate::http::prefer::Prefer;
use crate::http::problem::{Kind, Problem};
use crate::http::reply::Reply;
use crate::limits::budget::Reservation;
use crate::limits::{
    INLINE_PAGE_BYTES, PAGE_BYTES, PAGE_BYTES_MAX, PAGE_RECORDS, PAGE_RECORDS_MAX, WAIT_SECONDS_MAX,
};
use crate::phase::Phase;
use crate::resources::context::{Call, Edge};
use crate::resources::reading::{self, Attempt, reserve_block};
use crate::resources::records::{Fields, Fit, Form, Writer};

/// Returns a page of records.
#[allow(
    clippy::too_many_lines,
    reason = "parameters, page, head; in this order"
)]
pub(crate) async fn page(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    at_least(edge, call).await?;
    let query = &call.query;
    let form = accept::media(&call.head, Form::OFFERS).ok_or_else(not_acceptable)?;
    let mut writer = Writer::new(form);
    if let Some(text) = query.text("fields")? {
        writer.fields = Fields::read(text)?;
    }
    writer.numbers_as_text = query
        .word("numbers", &[("string", true), ("number", false)])?
        .unwrap_or(false);
    let limit = query
        .number("limit", 1, PAGE_RECORDS_MAX)?
        .unwrap_or(PAGE_RECORDS);
    let max_bytes = query
        .number("max-bytes", 1, PAGE_BYTES_MAX as u64)?
        .map_or(PAGE_BYTES, |n| usize::try_from(n).unwrap_or(PAGE_BYTES_MAX));
    for name in ["live", "last-event-id", "data"] {
        if query.bytes(name).is_some() {
            return Err(Problem::bad(format!(
                "{name} needs `live=sse` or `Accept: text/event-stream`"
            )));
        }
    }
    let wait = query.number("wait", 0, WAIT_SECONDS_MAX)?;
    let wait = wait
        .or(Prefer::read(&call.head)
            .wait
            .map(|seconds| seconds.min(WAIT_SECONDS_MAX)))
        .unwrap_or(0);
    let filter = Filter::read(call)?;
    if query
        .word("order", &[("asc", false), ("desc", true)])?
        .unwrap_or(false)
    {
        if wait > 0 {
            return Err(Problem::bad(
                "a page in descending order cannot wait for records",
            ));
        }
        return descending(edge, call, writer, filter, limit, max_bytes).await;
    }
    let (reader, after, gap) = start(edge, call, wait > 0, None).await?;
    let mut collector = Collector {
        topic: call.matched.topic.clone(),
        next: after,
        reader,
        filter,
        writer,
        limit,
        max_bytes,
        scanned_bytes: 0,
        needed_bytes: None,
    };
    let mut reservation =
        Reservation::for_principal(&edge.shared.admission.answers, call.principal.share_key());
    let deadline = Instant::now() + Duration::from_secs(wait);
    let mut phase = edge.shared.phase.subscribe();
    loop {
        (collector, reservation) = collector.run(edge, reservation).await?;
        if collector.writer.count > 0 || wait == 0 || collector.has_reached_scan_limit() {
            break;
        }
        let waiting = edge.shared.metrics.waiting_polls.count_one();
        let more = tokio::select! {
            changed = collector.reader.changed() => changed,
            () = tokio::time::sleep_until(deadline) => false,
            _ = phase.wait_for(|phase| *phase >= Phase::Draining) => false,
        };
        drop(waiting);
        edge.check_right_again(call)?;
        if !more {
            let reply = Reply::new(204)
                .number("weir-next", collector.next)
                .number("weir-last", collector.reader.last().0);
            return Ok(reply.field("cache-control", "no-store"));
        }
    }
    let (first, last) = (collector.reader.first().0, collector.reader.last().0);
    let next = collector.next;
    let up_to_date = next >= last;
    let compacted = edge
        .shared
        .store
        .topic_state(&call.matched.topic)
        .is_some_and(|topic| topic.compaction != Compaction::Off);
    let is_relative = depends_on_time(call)?;
    let tag = format!("\"r{after}-{next}.{}\"", form.letter());
    let mut reply = Reply::new(200)
        .number("weir-next", next)
        .number("weir-first", first)
        .number("weir-last", last);
    reply = reply.number("weir-count", collector.writer.count);
    reply.add("etag", &tag);
    reply.add("vary", "accept, accept-encoding");
    reply.add(
        "cache-control",
        match () {
            () if wait > 0 && up_to_date => "no-store",
            () if up_to_date || compacted || is_relative => "no-cache",
            () => "private, max-age=31536000, immutable",
        },
    );
    if up_to_date {
        reply.add("weir-up-to-date", "?1");
    } else {
        reply.add(
            "link",
            format_args!("<{}>; rel=\"next\"", next_page(call, next)),
        );
    }
    if gap {
        reply = reply.number("weir-gap", first);
    }
    if collector.writer.reframed {
        reply.add("weir-reframed", "?1");
    }
    if wait == 0 && is_not_modified(&call.head, &tag) {
        reply.status = 304;
        return Ok(reply);
    }
    let reply = reply.with(form.media_type(), collector.writer.end());
    Ok(reply.reserved(reservation))
}

/// A page that is being read.
struct Collector {
    topic: String,
    reader: TopicReader,
    filter: Filter,
    writer: Writer,
    limit: u64,
    max_bytes: usize,
    /// Offset of the last record that was examined.
    next: u64,
    /// Bytes that were scanned.
    scanned_bytes: usize,
    /// Bytes of memory that the first record needs.
    needed_bytes: Option<usize>,
}

impl Collector {
    /// Reads one block. Returns whether the page is complete.
    fn step(&mut self, reservation: &mut Reservation) -> Result<bool, Problem> {
        let missing = reserve_block(&self.reader, self.writer.out.len(), reservation);
        if missing.is_some() {
            self.needed_bytes = missing.filter(|_| self.writer.count == 0);
            return Ok(true);
        }
        let page = self.reader.next_page();
        match page.map_err(|error| store_error(&error))? {
            Some(page) => self.add_block(&page, reservation),
            None => Ok(true),
        }
    }

    /// Adds the matching records of a block. Returns whether the page is complete, or memory for
    /// its first record is missing.
    fn add_block(&mut self, page: &Page, reservation: &mut Reservation) -> Result<bool, Problem> {
        for record in page {
            let record = record.map_err(|error| store_error(&error))?;
            if self.is_full() {
                return Ok(true);
            }
            if self.filter.matches(&record) {
                match self.writer.fit(&self.topic, &record, reservation) {
                    Fit::Added => {}
                    Fit::Full => return Ok(true),
                    Fit::NeedsMemory(bytes) => {
                        self.needed_bytes = Some(bytes);
                        // Drops the block; it is read again from this record on.
                        self.reader.seek(ConsequenceOffset(record.offset.0 - 1));
                        return Ok(true);
                    }
                }
            }
            self.next = record.offset.0;
        }
        // Skips the gap that compaction left after the last record.
        self.next = self.next.max(page.last().0);
        self.scanned_bytes += page.wire_bytes();
        Ok(self.is_full() || self.has_reached_scan_limit())
    }

    /// Whether this page has scanned the maximum number of bytes before the end of the topic.
    fn has_reached_scan_limit(&self) -> bool {
        self.scanned_bytes >= SCAN_BYTES_MAX && self.next < self.reader.last().0
    }

    fn is_full(&self) -> bool {
        self.writer.count > 0
            && (self.writer.count >= self.limit || self.writer.out.len() >= self.max_bytes)
    }

    /// Reads the page: inline if it is one small block in memory, otherwise with a permit.
    async fn run(
        mut self,
        edge: &Arc<Edge>,
        mut reservation: Reservation,
    ) -> Result<(Self, Reservation), Problem> {
        match self.reader.try_next_page() {
            Poll::Ready(None) => return Ok((self, reservation)),
            // Rendering would block all connections of this thread. Drops the block, so that a
            // request holds no block while it waits for a permit, and reads it again.
            Poll::Ready(Some(page)) if page.wire_bytes() > INLINE_PAGE_BYTES => {
                self.reader.seek(ConsequenceOffset(self.next));
            }
            Poll::Ready(Some(page)) => {
                let is_complete = self.add_block(&page, &mut reservation)?;
                let is_end = is_complete || self.next >= self.reader.last().0;
                if is_end && self.needed_bytes.is_none() {
                    return Ok((self, reservation));
                }
            }
            Poll::Pending => {}
        }
        if let Some(bytes) = self.needed_bytes.take() {
            reservation.cover(bytes).await.map_err(busy)?;
        }
        let mut collector = Some(self);
        reading::read(&edge.shared, reservation, move |reservation| {
            let Some(mut page) = collector.take() else {
                return Err(Problem::new(Kind::Internal, "a page is read twice"));
            };
            while !page.step(reservation)? {}
            match page.needed_bytes.take() {
                None => Ok(Attempt::Done(page)),
                Some(bytes) => {
                    collector = Some(page);
                    Ok(Attempt::NeedsMemory(bytes))
                }
            }
        })
        .await
    }
}

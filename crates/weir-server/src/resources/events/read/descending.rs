//! A page of records, newest first.
//!
//! Invariant: a window is never as large as the topic. It starts small, and shrinks if its records
//! are large.

use std::sync::Arc;

use weir_core::{ConsequenceOffset, Record};
use weir_store::{Page, StoreError, TopicReader};

use super::filter::Filter;
use super::position::{SCAN_BYTES_MAX, next_page, store_error};
use crate::http::problem::Problem;
use crate::http::reply::Reply;
use crate::limits::budget::Reservation;
use crate::limits::{WINDOW_BYTES, WINDOW_RECORDS_MAX};
use crate::resources::context::{Call, Edge};
use crate::resources::reading::{self, Attempt, reserve_block};
use crate::resources::records::{Fit, Writer};

/// Reads the blocks from the position of the reader up to the record before `end`. If memory is
/// missing, returns the bytes that the reservation needs for the blocks and for `held` other bytes.
fn read_window(
    reader: &mut TopicReader,
    end: u64,
    mut held: usize,
    reservation: &mut Reservation,
) -> Result<Result<Vec<Page>, usize>, Problem> {
    let mut pages = Vec::new();
    loop {
        if let Some(bytes) = reserve_block(reader, held, reservation) {
            return Ok(Err(bytes));
        }
        let page = reader.next_page().map_err(|error| store_error(&error))?;
        let Some(page) = page else {
            return Ok(Ok(pages));
        };
        held += page.wire_bytes();
        let is_last = page.last().0 + 1 >= end;
        pages.push(page);
        if is_last {
            return Ok(Ok(pages));
        }
    }
}

/// Returns the newest records first. Readers only move forward, so windows are read forward and
/// reversed.
pub(super) async fn descending(
    edge: &Arc<Edge>,
    call: &Call,
    writer: Writer,
    filter: Filter,
    limit: u64,
    max_bytes: usize,
) -> Result<Reply, Problem> {
    if call.query.bytes("from").is_some() || call.query.bytes("reset").is_some() {
        return Err(Problem::bad(
            "a page in descending order starts at the end or before `after`",
        ));
    }
    let before = call.query.number("after", 1, u64::MAX - 1)?;
    let mut reader = edge
        .shared
        .store
        .read(&call.matched.topic, ConsequenceOffset::ZERO)
        .map_err(|error| store_error(&error))?;
    let topic = call.matched.topic.clone();
    let (first, last) = (reader.first().0, reader.last().0);
    let form = writer.form;
    let reservation =
        Reservation::for_principal(&edge.shared.admission.answers, call.principal.share_key());
    let ((writer, next), reservation) =
        reading::read(&edge.shared, reservation, move |reservation| {
            // Drops the result of an attempt that lacked memory.
            let mut writer = writer.emptied();
            // There is nothing to read after the last record.
            let mut end = before.map_or(last + 1, |before| before.min(last + 1));
            // Small at first, because the size of the records is unknown.
            let mut window = 4;
            let (mut scanned_bytes, mut is_full) = (0, false);
            while end > first && writer.count < limit && writer.out.len() < max_bytes {
                if is_full || scanned_bytes >= SCAN_BYTES_MAX {
                    break;
                }
                let begin = end.saturating_sub(window).max(first);
                reader.seek(ConsequenceOffset(begin.saturating_sub(1)));
                let written = writer.out.len();
                let pages = match read_window(&mut reader, end, written, reservation)? {
                    Ok(pages) => pages,
                    Err(bytes) if window == 1 && writer.count == 0 => {
                        return Ok(Attempt::NeedsMemory(bytes));
                    }
                    Err(_) => {
                        is_full = window == 1;
                        window = 1;
                        continue;
                    }
                };
                scanned_bytes += pages.iter().map(Page::wire_bytes).sum::<usize>();
                'window: for page in pages.iter().rev() {
                    let records: Result<Vec<Record<'_>>, StoreError> = page.iter().collect();
                    for record in records.map_err(|error| store_error(&error))?.iter().rev() {
                        if record.offset.0 >= end {
                            continue;
                        }
                        is_full = writer.count >= limit || writer.out.len() >= max_bytes;
                        is_full &= writer.count > 0;
                        if !is_full && filter.matches(record) {
                            match writer.fit(&topic, record, reservation) {
                                Fit::Added => {}
                                Fit::Full => is_full = true,
                                Fit::NeedsMemory(bytes) => return Ok(Attempt::NeedsMemory(bytes)),
                            }
                        }
                        if is_full {
                            break 'window;
                        }
                        end = record.offset.0;
                    }
                }
                if !is_full && writer.count < limit && writer.out.len() < max_bytes {
                    end = end.min(begin);
                }
                let is_large = writer.out.len() - written > WINDOW_BYTES;
                window = if is_large {
                    (window / 2).max(1)
                } else {
                    (window * 2).min(WINDOW_RECORDS_MAX)
                };
            }
            Ok(Attempt::Done((writer, end)))
        })
        .await?;
    let mut reply = Reply::new(200)
        .number("weir-next", next)
        .number("weir-first", first)
        .number("weir-last", last);
    reply = reply.number("weir-count", writer.count);
    reply.add("vary", "accept, accept-encoding");
    reply.add("cache-control", "no-cache");
    if writer.reframed {
        reply.add("weir-reframed", "?1");
    }
    if next > first && next > 1 {
        let target = format!("{}&order=desc", next_page(call, next));
        reply.add("link", format_args!("<{target}>; rel=\"next\""));
    }
    let reply = reply.with(form.media_type(), writer.end());
    Ok(reply.reserved(reservation))
}

//! The query part of a listener: which records are sent, and which part of them
//! (docs/formats/native.md, "Queries").
//!
//! Filtering runs on a thread that may block, and ends at the next record if no caller waits for
//! it.
//!
//! Invariants:
//! - A stage needs only one record.
//! - One call scans at most `FILTER_PAGES` pages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_core::codec::Reader;
use weir_core::{ErrorCode, Record};
use weir_protocol::{Listen, PushdownQuery};
use weir_query::{
    Complex, Frames, Level, Meta, Missing, PushdownFilter, QueryError, QueryText, Span, Strings,
    item_of, span_in,
};
use weir_store::{Page, PageBuilder, StoreError, TopicReader};

use super::refuse::Refused;
use crate::limits::BLOCK_BYTES_FREE;
use crate::limits::budget::{MemoryBudget, Reservation};

/// Maximum number of pages scanned in one call.
const FILTER_PAGES: usize = 64;
/// A call ends after the page in which this time has passed, so that waiting calls can run.
const FILTER_TIME: Duration = Duration::from_millis(100);
/// Bytes of accepted records after which a call ends.
const FILTER_BYTES: usize = 64 << 10;
/// Maximum number of bytes of a record in addition to its key, value and metadata.
const HEAD_BYTES: usize = 64;

/// The record filter of a listener, in addition to a query.
#[derive(Debug)]
pub(super) struct Filter {
    pub(super) key: Option<Box<[u8]>>,
    pub(super) prefix: Option<Box<[u8]>>,
    pub(super) kinds: u8,
}

impl Filter {
    pub(super) fn matches(&self, record: &Record<'_>) -> bool {
        self.key.as_deref().is_none_or(|key| key == record.key)
            && self
                .prefix
                .as_deref()
                .is_none_or(|prefix| record.key.starts_with(prefix))
            && (self.kinds == 0 || self.kinds & 1 << record.kind as u8 != 0)
    }
}

/// The filter, query and limits of a listener.
#[derive(Debug)]
pub(super) struct Pushdown {
    filter: Option<Filter>,
    query_filter: Option<PushdownFilter>,
    cut: bool,
    /// Records that may still be sent; `None`: no limit.
    left: Option<u64>,
    /// Records of later intentions are not sent.
    until: Option<u64>,
}

/// Why a call ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// There may be more records.
    More,
    /// There are no more records at present.
    End,
    /// No later record can match, or the limit is reached.
    Complete,
    /// A record cannot be read as the query requires.
    Fault(Refused),
    /// No page was scanned: this many bytes must be reserved first.
    NeedsMemory(usize),
}

/// The result of one step of a listener with a query part.
#[derive(Debug)]
pub(super) struct FilterResult {
    pub(super) reader: TopicReader,
    pub(super) pushdown: Box<Pushdown>,
    pub(super) page: Option<Page>,
    /// Values that are not JSON and were omitted.
    pub(super) bad: u64,
    /// Records that were omitted.
    pub(super) skipped: u64,
    pub(super) ending: Ending,
    /// Reservation for the page, held until it is sent.
    pub(super) reservation: Reservation,
}

/// The next keys of a `latest` listener.
#[derive(Debug, Default)]
pub(super) struct LatestKeys {
    /// Each key with a page of only its record; `None` if the record arrives later or does not
    /// match.
    pub(super) found: VecDeque<(Box<[u8]>, Option<Page>)>,
    /// Whether there are no more keys.
    pub(super) ends: bool,
    /// The query part of the listener, returned by the fetch.
    pub(super) pushdown: Option<Box<Pushdown>>,
    /// Values that are not JSON and were omitted.
    pub(super) bad: u64,
    /// Error of the record after the keys.
    pub(super) fault: Option<Refused>,
    /// Reservation for a long value, with its size in bytes.
    pub(super) reservation: Option<(usize, Reservation)>,
    /// Bytes that the first value needs: no key was looked up.
    pub(super) needed_bytes: usize,
}

/// Converts the fields of the query to text.
fn query_text(query: &PushdownQuery<'_>) -> Option<QueryText> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let mut params = Vec::new();
    let mut reader = Reader::new(query.params);
    while !reader.is_empty() {
        let (name, value) = (reader.bytes().ok()?, reader.bytes().ok()?);
        params.push((text(name)?, text(value)?));
    }
    Some(QueryText {
        filter: text(query.filter)?,
        order: text(query.order)?,
        group: text(query.group)?,
        select: text(query.select)?,
        params,
        level: if query.strict {
            Level::Strict
        } else {
            Level::Structural
        },
        on_bad_item: query.on_bad_item,
        strings: if query.utf16 {
            Strings::Utf16
        } else {
            Strings::Scalar
        },
        complex: if query.rank {
            Complex::Rank
        } else {
            Complex::Error
        },
        missing: if query.drop {
            Missing::Drop
        } else {
            Missing::First
        },
        ..QueryText::default()
    })
}

fn refused(error: &QueryError) -> Refused {
    Refused::new(error.code(), error.to_string())
}

/// The error of a record whose value starts at `start` in the page.
fn of_record(error: &QueryError, record: Option<u64>, start: u64) -> Refused {
    let mut refused = Refused::new(error.code(), error.reason());
    refused.message.record = record;
    refused.message.byte = error
        .location()
        .offset
        .map(|byte| byte.saturating_sub(start));
    refused
}

/// Bytes of memory to scan the next block: the block, and a copy of it if it is long.
fn block_bytes(reader: &TopicReader) -> usize {
    let block = reader.next_page_bytes();
    if block > BLOCK_BYTES_FREE {
        2 * block
    } else {
        block
    }
}

/// Appends a part, and returns its span.
fn append(bytes: &mut Vec<u8>, part: &[u8]) -> Span {
    let offset = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(part);
    let len = u32::try_from(part.len()).unwrap_or(0);
    Span { offset, len }
}

/// Returns a page of one record with another value.
fn with_value(page: &Page, value: &[u8]) -> Result<Option<Page>, StoreError> {
    let mut one = PageBuilder::default();
    if let Some(record) = page.iter().next().transpose()? {
        one.push(&Record { value, ..record });
    }
    Ok(one.take())
}

impl Pushdown {
    /// Creates the query part of a LISTEN. Returns only the filter if pages can be sent unchanged.
    pub(super) fn new(
        listen: &Listen<'_>,
        filter: Option<Filter>,
    ) -> Result<Result<Box<Self>, Option<Filter>>, Refused> {
        let query = &listen.query;
        if query.pushdown.is_none() && query.limit.is_none() && query.until.is_none() {
            return Ok(Err(filter));
        }
        let query_filter = match &query.pushdown {
            None => None,
            Some(query) => {
                let bad = || Refused::new(ErrorCode::BadRequest, "the query is not UTF-8");
                let text = query_text(query).ok_or_else(bad)?;
                let query_filter = PushdownFilter::new(&text, listen.topic, query.cut);
                Some(query_filter.map_err(|error| refused(&error))?)
            }
        };
        Ok(Ok(Box::new(Self {
            filter,
            query_filter,
            cut: query.pushdown.is_some_and(|query| query.cut),
            left: query.limit,
            until: query.until,
        })))
    }

    /// Scans for records to send, until `stop` is set. `reserved` bytes of the budget are already
    /// reserved.
    pub(super) fn scan(
        mut self: Box<Self>,
        mut reader: TopicReader,
        stop: &Arc<AtomicBool>,
        budget: &MemoryBudget,
        reserved: usize,
    ) -> Result<FilterResult, StoreError> {
        self.stop_by(stop);
        let started = Instant::now();
        let mut accepted = Accepted::default();
        let (mut bad, mut skipped) = (0, 0);
        let mut ending = Ending::More;
        let mut reservation = Reservation::new(budget);
        for pages in 0..FILTER_PAGES {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if self.left == Some(0) {
                ending = Ending::Complete;
                break;
            }
            let bytes = accepted.bytes.max(FILTER_BYTES) + block_bytes(&reader);
            if bytes > reserved && !reservation.try_cover(bytes) {
                if pages == 0 {
                    ending = Ending::NeedsMemory(bytes);
                }
                break;
            }
            let Some(page) = reader.next_page()? else {
                ending = Ending::End;
                break;
            };
            let before = accepted.records;
            let (scanned, result) = self.scan_page(&page, &mut accepted)?;
            bad += result.bad;
            skipped += scanned - (accepted.records - before);
            ending = result.ending;
            let is_full = accepted.bytes >= FILTER_BYTES || started.elapsed() >= FILTER_TIME;
            if is_full || !matches!(ending, Ending::More) {
                break;
            }
        }
        let page = accepted.page.take();
        reservation.shrink(page.as_ref().map_or(0, Page::wire_bytes));
        Ok(FilterResult {
            reader,
            pushdown: self,
            page,
            bad,
            skipped,
            ending,
            reservation,
        })
    }

    /// Filters the records of keys. Removes the page of a record that does not match, and all keys
    /// after the last one that the limit allows.
    pub(super) fn look_up(
        mut self: Box<Self>,
        mut keys: LatestKeys,
        stop: &Arc<AtomicBool>,
    ) -> Result<LatestKeys, StoreError> {
        if keys.needed_bytes > 0 {
            keys.pushdown = Some(self);
            return Ok(keys);
        }
        self.stop_by(stop);
        self.filter_keys(&mut keys)?;
        if let Some(left) = &mut self.left {
            let mut sent = keys.found.iter().enumerate();
            let sent = sent.by_ref().filter(|(_, (_, page))| page.is_some());
            let indexes: Vec<usize> = sent.map(|(at, _)| at).collect();
            let allowed = usize::try_from(*left).unwrap_or(usize::MAX);
            if indexes.len() >= allowed {
                let end = allowed.checked_sub(1).and_then(|last| indexes.get(last));
                keys.found.truncate(end.map_or(0, |last| last + 1));
                (keys.ends, keys.fault) = (true, None);
            }
            *left = left.saturating_sub(indexes.len() as u64);
        }
        keys.pushdown = Some(self);
        Ok(keys)
    }

    fn stop_by(&mut self, stop: &Arc<AtomicBool>) {
        if let Some(query_filter) = &mut self.query_filter {
            query_filter.stop_by(Arc::clone(stop));
        }
    }

    fn filter_keys(&mut self, keys: &mut LatestKeys) -> Result<(), StoreError> {
        let (mut bytes, mut frames) = (Vec::new(), Frames::default());
        // Index of the key and offset of the record, for each record that the query examines.
        let mut scanned = Vec::new();
        for (at, (_, page)) in keys.found.iter_mut().enumerate() {
            let Some(first) = page.as_ref().map(|page| page.iter().next()) else {
                continue;
            };
            let record = first.transpose()?;
            let filter = self.filter.as_ref();
            let record = record.filter(|record| filter.is_none_or(|filter| filter.matches(record)));
            let Some(record) = record else {
                *page = None;
                continue;
            };
            if let Some(query_filter) = &self.query_filter {
                let (key, value) = (
                    append(&mut bytes, record.key),
                    append(&mut bytes, item_of(&record)),
                );
                let properties = query_filter.properties();
                properties.push(&record, value, key, Meta::Nothing, &mut frames);
                scanned.push((at, record.offset.0));
            }
        }
        let Some(query_filter) = &mut self.query_filter else {
            return Ok(());
        };
        let bytes = Bytes::from(bytes);
        let spans = frames.spans.clone();
        let filtered = match query_filter.filter(&bytes, frames) {
            Ok(filtered) => filtered,
            Err(error) => {
                keys.found.clear();
                keys.fault = Some(refused(&error));
                return Ok(());
            }
        };
        keys.bad = filtered.skipped;
        let mut spans_kept = vec![None; scanned.len()];
        for (at, span) in filtered.kept {
            if let Some(kept) = spans_kept.get_mut(at) {
                *kept = Some(span);
            }
        }
        for ((at, _), kept) in scanned.iter().zip(spans_kept) {
            let Some((_, page)) = keys.found.get_mut(*at) else {
                continue;
            };
            *page = match (page.take(), kept) {
                (Some(page), Some(span)) if self.cut => with_value(&page, span.of(&bytes))?,
                (page, kept) => page.filter(|_| kept.is_some()),
            };
        }
        if let Some((at, error)) = filtered.fault {
            let offset = scanned.get(at).map(|(_, offset)| *offset);
            let start = spans.get(at).map_or(0, |span| u64::from(span.offset));
            keys.fault = Some(of_record(&error, offset, start));
        }
        Ok(())
    }

    /// Scans one page; returns how many records were examined.
    fn scan_page(
        &mut self,
        page: &Page,
        accepted: &mut Accepted,
    ) -> Result<(u64, PageScan), StoreError> {
        let mut scan = PageScan {
            bad: 0,
            ending: Ending::More,
        };
        let bytes = page.bytes();
        let (mut records, mut frames, mut scanned) = (Vec::new(), Frames::default(), 0);
        for record in page {
            let record = record?;
            if self.until.is_some_and(|until| record.intention.0 > until) {
                scan.ending = Ending::Complete;
                break;
            }
            scanned += 1;
            if self
                .filter
                .as_ref()
                .is_some_and(|filter| !filter.matches(&record))
            {
                continue;
            }
            if let Some(query_filter) = &self.query_filter {
                let value = span_in(&bytes, item_of(&record));
                let key = span_in(&bytes, record.key);
                let properties = query_filter.properties();
                properties.push(&record, value, key, Meta::Nothing, &mut frames);
            }
            records.push(record);
        }
        let Some(query_filter) = &mut self.query_filter else {
            for record in &records {
                if !accepted.push(record, &mut self.left) {
                    scan.ending = Ending::Complete;
                    break;
                }
            }
            return Ok((scanned, scan));
        };
        let spans = frames.spans.clone();
        let filtered = match query_filter.filter(&bytes, frames) {
            Ok(filtered) => filtered,
            Err(error) => {
                scan.ending = Ending::Fault(refused(&error));
                return Ok((scanned, scan));
            }
        };
        scan.bad = filtered.skipped;
        if let Some((at, error)) = filtered.fault {
            let start = spans.get(at).map_or(0, |span| u64::from(span.offset));
            let record = records.get(at).map(|record| record.offset.0);
            scan.ending = Ending::Fault(of_record(&error, record, start));
        }
        for (at, span) in filtered.kept {
            let Some(mut record) = records.get(at).copied() else {
                continue;
            };
            if self.cut {
                record.value = span.of(&bytes);
            }
            if !accepted.push(&record, &mut self.left) {
                scan.ending = Ending::Complete;
                break;
            }
        }
        Ok((scanned, scan))
    }
}

/// Result of scanning a page.
struct PageScan {
    bad: u64,
    ending: Ending,
}

/// Accepted records.
#[derive(Default)]
struct Accepted {
    page: PageBuilder,
    records: u64,
    bytes: usize,
}

impl Accepted {
    /// Adds a record; returns false if the limit is reached.
    fn push(&mut self, record: &Record<'_>, left: &mut Option<u64>) -> bool {
        match left {
            Some(0) => return false,
            Some(left) => *left -= 1,
            None => {}
        }
        self.page.push(record);
        self.records += 1;
        self.bytes += record.key.len() + record.value.len() + record.meta.len() + HEAD_BYTES;
        true
    }
}

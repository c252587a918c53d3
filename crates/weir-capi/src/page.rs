//! Pages: the results of calls, as spans of memory that the page keeps alive.
//!
//! Invariants:
//! - Each span points into memory that its page keeps alive until the page is released.
//! - No payload byte is copied.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use weir::query::{self, Need, PathSet, ResultPage, SourceId};
use weir::{ErrorCode, KeyEntry, Record, Value, Work};

use crate::error::{EMPTY, Fail, Kind};
use crate::handle::{Caller, PinnedSpans, zeroed};
use crate::raw;
use crate::registry::{self, ReservedSlot};

/// Kinds of pages, as in the header.
const RESULTS: u32 = 1;
const NEEDS: u32 = 2;
const RECORDS: u32 = 3;
const KEYS: u32 = 4;
const CLAIM: u32 = 5;
const TEXTS: u32 = 6;

/// Flags of items, as in the header.
const CONSTRUCTED: u32 = 1;
const REQUIRED: u32 = 2;
const CONTINUATION: u32 = 4;

/// The memory that a page keeps alive.
#[derive(Debug)]
enum Owner {
    Nothing,
    Results { _page: ResultPage },
    Memory { _buffers: Vec<Bytes> },
}

/// A page, as a handle of the caller.
#[derive(Debug)]
pub(crate) struct Page {
    kind: u32,
    items: PinnedSpans<raw::Item>,
    records: PinnedSpans<raw::Record>,
    buffers: PinnedSpans<raw::Slice>,
    bytes: u64,
    skipped: u64,
    hint: u64,
    position: u64,
    /// The number of references, each of which needs a release.
    references: AtomicU32,
    _owner: Owner,
}

impl Page {
    fn new(kind: u32, items: Vec<raw::Item>, buffers: Vec<raw::Slice>, owner: Owner) -> Self {
        Self {
            kind,
            bytes: items.iter().map(|item| item.len).sum(),
            items: PinnedSpans::new(items),
            records: PinnedSpans::default(),
            buffers: PinnedSpans::new(buffers),
            skipped: 0,
            hint: 0,
            position: 0,
            references: AtomicU32::new(1),
            _owner: owner,
        }
    }

    /// The results of a query.
    pub(crate) fn results(page: ResultPage) -> Self {
        let buffers: Vec<raw::Slice> = page.buffers().iter().map(|bytes| slice(bytes)).collect();
        let items = page.items().iter();
        let items = items
            .map(|item| raw::Item {
                ptr: page.bytes(item).as_ptr(),
                len: u64::from(item.len),
                offset: u64::from(item.offset),
                buffer: item.buffer,
                source: item.source.0,
                flags: if item.constructed { CONSTRUCTED } else { 0 },
                index: item.index,
            })
            .collect();
        let skipped = page.skipped();
        let owner = Owner::Results { _page: page };
        Self {
            skipped,
            ..Self::new(RESULTS, items, buffers, owner)
        }
    }

    /// The pages that a query needs.
    pub(crate) fn needs(needs: &[Need]) -> Self {
        let mut texts = Texts::default();
        for need in needs {
            let mut flags = if need.required { REQUIRED } else { 0 };
            if need.continuation.is_some() {
                flags |= CONTINUATION;
            }
            let text = need.continuation.as_deref().unwrap_or_default();
            texts.push(text, flags, need.source.0);
        }
        let mut page = texts.page();
        page.kind = NEEDS;
        page.hint = needs.first().map_or(0, |need| need.bytes);
        page
    }

    /// The records of a page of a topic.
    pub(crate) fn records(page: &weir::Page) -> Result<Self, Fail> {
        let mut rows = Rows::default();
        let buffer = rows.buffer(page.bytes());
        for record in page {
            rows.push(buffer, &record?, 0, 0);
        }
        Ok(rows.page(RECORDS))
    }

    /// One record.
    pub(crate) fn value(value: &Value) -> Self {
        let mut rows = Rows::default();
        let buffer = rows.buffer(value.page().bytes());
        rows.push(buffer, &value.record(), 0, 0);
        rows.page(RECORDS)
    }

    /// The records that a member has claimed.
    pub(crate) fn works(works: &[Work]) -> Self {
        let mut rows = Rows::default();
        for work in works {
            let buffer = rows.buffer(work.value().page().bytes());
            rows.push(buffer, &work.record(), work.claim(), work.attempts());
        }
        rows.page(CLAIM)
    }

    /// Keys of a scan, with their values if they were read.
    pub(crate) fn keys(entries: &[(KeyEntry, Option<Value>)]) -> Self {
        let mut rows = Rows::default();
        let mut keys = Vec::with_capacity(entries.iter().map(|(entry, _)| entry.key.len()).sum());
        for (entry, value) in entries {
            if value.is_none() {
                keys.extend_from_slice(&entry.key);
            }
        }
        let keys = Bytes::from(keys);
        let key_buffer = rows.buffer(keys.clone());
        let mut at = 0;
        for (entry, value) in entries {
            if let Some(value) = value {
                let buffer = rows.buffer(value.page().bytes());
                rows.push(buffer, &value.record(), 0, 0);
                continue;
            }
            let end = at + entry.key.len();
            let key = keys.get(at..end).unwrap_or_default();
            at = end;
            let mut record = zeroed::<raw::Record>();
            record.offset = entry.offset.0;
            record.kind = weir::RecordKind::Put as u32;
            (record.key, record.key_len) = (key.as_ptr(), key.len() as u64);
            record.key_offset = rows.offset(key_buffer, key);
            record.buffer = key_buffer;
            rows.records.push(record);
            rows.items.push(empty_item());
        }
        rows.page(KEYS)
    }

    /// Texts.
    pub(crate) fn texts<T: AsRef<[u8]>>(all: impl IntoIterator<Item = T>) -> Self {
        let mut texts = Texts::default();
        for text in all {
            texts.push(text.as_ref(), 0, SourceId::NONE.0);
        }
        texts.page()
    }

    /// Whether the page has no items.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.as_slice().is_empty()
    }

    /// Creates a handle for the page.
    pub(crate) fn into_handle(self, caller: &Caller, out: *mut *mut raw::Page) -> Result<(), Fail> {
        caller.check_output(out, 1)?;
        self.into_slot(registry::reserve()?, caller, out)
    }

    /// As `into_handle`, in a reserved slot. The caller has checked `out`.
    pub(crate) fn into_slot(
        self,
        slot: ReservedSlot,
        caller: &Caller,
        out: *mut *mut raw::Page,
    ) -> Result<(), Fail> {
        Ok(caller.write(out, slot.fill(Arc::new(self))?)?)
    }
}

/// Consecutive parts of one buffer.
#[derive(Default)]
pub(crate) struct Texts {
    memory: Vec<u8>,
    parts: Vec<(usize, usize, u32, u32)>,
}

impl Texts {
    pub(crate) fn push(&mut self, text: &[u8], flags: u32, source: u32) {
        let at = self.memory.len();
        self.memory.extend_from_slice(text);
        self.parts.push((at, text.len(), flags, source));
    }

    pub(crate) fn page(self) -> Page {
        let memory = Bytes::from(self.memory);
        let part = |(at, &(offset, len, flags, source)): (usize, &(usize, usize, u32, u32))| {
            let text = memory.get(offset..offset + len).unwrap_or_default();
            raw::Item {
                ptr: text.as_ptr(),
                len: len as u64,
                offset: offset as u64,
                buffer: 0,
                source,
                flags,
                index: u32::try_from(at).unwrap_or(u32::MAX),
            }
        };
        let items = self.parts.iter().enumerate().map(part).collect();
        let buffers = vec![slice(&memory)];
        let owner = Owner::Memory {
            _buffers: vec![memory],
        };
        Page::new(TEXTS, items, buffers, owner)
    }
}

/// Records that are being added to a page.
#[derive(Default)]
struct Rows {
    items: Vec<raw::Item>,
    records: Vec<raw::Record>,
    buffers: Vec<Bytes>,
}

impl Rows {
    /// The index of a buffer. Consecutive records often share their buffer.
    fn buffer(&mut self, bytes: Bytes) -> u32 {
        let same = |last: &Bytes| last.as_ptr() == bytes.as_ptr() && last.len() == bytes.len();
        if !self.buffers.last().is_some_and(same) {
            self.buffers.push(bytes);
        }
        u32::try_from(self.buffers.len() - 1).unwrap_or(u32::MAX)
    }

    /// The offset of a part in its buffer.
    fn offset(&self, buffer: u32, part: &[u8]) -> u64 {
        let start = self.buffers.get(buffer as usize);
        let start = start.map_or(0, |bytes| bytes.as_ptr().addr());
        (part.as_ptr().addr().wrapping_sub(start)) as u64
    }

    fn push(&mut self, buffer: u32, from: &Record<'_>, claim: u64, attempts: u32) {
        let mut record = zeroed::<raw::Record>();
        record.offset = from.offset.0;
        record.intention = from.intention.0;
        record.time_ms = from.time_ms;
        record.nonce = from.nonce;
        record.client = from.client.0;
        if !from.key.is_empty() {
            (record.key, record.key_len) = (from.key.as_ptr(), from.key.len() as u64);
            record.key_offset = self.offset(buffer, from.key);
        }
        if !from.meta.is_empty() {
            (record.meta, record.meta_len) = (from.meta.as_ptr(), from.meta.len() as u64);
            record.meta_offset = self.offset(buffer, from.meta);
        }
        record.term = from.term;
        record.claim = claim;
        record.kind = from.kind as u32;
        record.flags = u32::from(from.flags.0);
        record.attempts = attempts;
        record.buffer = buffer;
        let mut item = empty_item();
        if !from.value.is_empty() {
            (item.ptr, item.len) = (from.value.as_ptr(), from.value.len() as u64);
            item.offset = self.offset(buffer, from.value);
            item.buffer = buffer;
        }
        item.index = u32::try_from(self.items.len()).unwrap_or(u32::MAX);
        self.items.push(item);
        self.records.push(record);
    }

    fn page(self, kind: u32) -> Page {
        let buffers = self.buffers.iter().map(|bytes| slice(bytes)).collect();
        let owner = if self.buffers.is_empty() {
            Owner::Nothing
        } else {
            Owner::Memory {
                _buffers: self.buffers,
            }
        };
        Page {
            position: self.records.last().map_or(0, |record| record.offset),
            records: PinnedSpans::new(self.records),
            ..Page::new(kind, self.items, buffers, owner)
        }
    }
}

fn empty_item() -> raw::Item {
    raw::Item {
        ptr: std::ptr::null(),
        len: 0,
        offset: 0,
        buffer: u32::MAX,
        source: SourceId::NONE.0,
        flags: 0,
        index: 0,
    }
}

fn slice(bytes: &[u8]) -> raw::Slice {
    raw::Slice {
        ptr: bytes.as_ptr(),
        len: bytes.len(),
    }
}

/// Creates a handle for the page and returns `some`. Returns `none` for an empty page.
pub(crate) fn into_handle_or(
    page: Page,
    caller: &Caller,
    out: *mut *mut raw::Page,
    none: Kind,
    some: Kind,
) -> Result<Kind, Fail> {
    if page.is_empty() {
        return Ok(none);
    }
    page.into_handle(caller, out)?;
    Ok(some)
}

fn part<T: Copy>(
    page: *const raw::Page,
    count: *mut usize,
    caller: &Caller,
    of: impl FnOnce(&Page) -> &PinnedSpans<T>,
) -> *const T {
    let found = registry::get::<Page, _>(page).ok();
    let spans = found.as_deref().map(|page| of(page).as_slice());
    let spans = spans.unwrap_or_default();
    if caller.write(count, spans.len()).is_err() || spans.is_empty() {
        return std::ptr::null();
    }
    // The handle keeps the spans alive until the caller releases it.
    spans.as_ptr()
}

pub(crate) fn items(c: &Caller, page: *const raw::Page, count: *mut usize) -> *const raw::Item {
    part(page, count, c, |page| &page.items)
}

pub(crate) fn records(c: &Caller, page: *const raw::Page, count: *mut usize) -> *const raw::Record {
    part(page, count, c, |page| &page.records)
}

pub(crate) fn buffers(c: &Caller, page: *const raw::Page, count: *mut usize) -> *const raw::Slice {
    part(page, count, c, |page| &page.buffers)
}

pub(crate) fn describe(
    c: &Caller,
    page: *const raw::Page,
    out: *mut raw::PageInfo,
) -> Result<Kind, Fail> {
    fn parts<T: Copy>(spans: &PinnedSpans<T>) -> (*const T, usize) {
        match spans.as_slice() {
            [] => (std::ptr::null(), 0),
            spans => (spans.as_ptr(), spans.len()),
        }
    }
    let page = registry::get::<Page, _>(page)?;
    let mut info = zeroed::<raw::PageInfo>();
    info.kind = page.kind;
    (info.items, info.item_count) = parts(&page.items);
    (info.records, info.record_count) = parts(&page.records);
    (info.buffers, info.buffer_count) = parts(&page.buffers);
    info.bytes = page.bytes;
    info.skipped = page.skipped;
    info.hint = page.hint;
    info.position = page.position;
    c.write_info(out, &info)?;
    Ok(Kind::Ok)
}

pub(crate) fn get(
    c: &Caller,
    page: *const raw::Page,
    first: usize,
    count: usize,
    path: raw::Slice,
    out: *mut raw::Slice,
) -> Result<Kind, Fail> {
    find_values(c, page, (first, count), &[path], out)
}

pub(crate) fn values(
    c: &Caller,
    page: *const raw::Page,
    first: usize,
    count: usize,
    paths: *const raw::Slice,
    path_count: usize,
    out: *mut raw::Slice,
) -> Result<Kind, Fail> {
    find_values(
        c,
        page,
        (first, count),
        checked_paths(c, paths, path_count)?,
        out,
    )
}

/// Writes a row of values for each item.
fn find_values(
    c: &Caller,
    page: *const raw::Page,
    (first, count): (usize, usize),
    paths: &[raw::Slice],
    out: *mut raw::Slice,
) -> Result<Kind, Fail> {
    let page = registry::get::<Page, _>(page)?;
    let items = page.items.as_slice();
    let range = first
        .checked_add(count)
        .and_then(|end| items.get(first..end));
    let items = range.ok_or_else(|| Fail::of(ErrorCode::BadLength))?;
    // Both numbers are bounded: by the items of a page, and by the limit of paths.
    c.check_frames_output(out, count * paths.len())?;
    let paths = path_set(c, paths)?;
    let mut values = Vec::new();
    let mut row = vec![EMPTY; paths.len()];
    for (at, item) in items.iter().enumerate() {
        // `page` keeps this memory alive beyond this loop.
        let bytes = c.bytes(raw::Slice {
            ptr: item.ptr,
            len: usize::try_from(item.len).unwrap_or(usize::MAX),
        })?;
        // An item that is not JSON has no values: all of them are then undefined.
        let _ = query::find(bytes, &paths, &mut values);
        for (to, value) in row.iter_mut().zip(&values) {
            let found = value.span.of(bytes);
            *to = if found.is_empty() {
                EMPTY
            } else {
                slice(found)
            };
        }
        c.write_all(out.wrapping_add(at * row.len()), &row)?;
    }
    Ok(Kind::Ok)
}

/// Writes the ranges of the values in a text.
pub(crate) fn find_in_text(
    c: &Caller,
    json: raw::Slice,
    paths: *const raw::Slice,
    path_count: usize,
    out: *mut raw::Frame,
) -> Result<Kind, Fail> {
    let paths = checked_paths(c, paths, path_count)?;
    c.check_output(out, paths.len())?;
    let bytes = c.bytes(json)?;
    if u32::try_from(bytes.len()).is_err() {
        return Err(Fail::of(ErrorCode::BadLength));
    }
    let paths = path_set(c, paths)?;
    let mut values = Vec::new();
    // A text that is not JSON has no values: all of them are then undefined.
    let _ = query::find(bytes, &paths, &mut values);
    let mut row = vec![raw::Frame { offset: 0, len: 0 }; path_count];
    for (to, value) in row.iter_mut().zip(&values) {
        if value.span.len > 0 {
            (to.offset, to.len) = (value.span.offset, value.span.len);
        }
    }
    c.write_all(out, &row)?;
    Ok(Kind::Ok)
}

/// The paths of the caller. Fails if there are too many.
fn checked_paths(
    c: &Caller,
    paths: *const raw::Slice,
    path_count: usize,
) -> Result<&[raw::Slice], Fail> {
    // An array that is too long is not read.
    if path_count > query::PATHS_MAX {
        let text = format!("more than {} paths", query::PATHS_MAX);
        return Err(Fail::new(ErrorCode::TooComplex, text));
    }
    c.array(paths, path_count)
}

/// The failure of an invalid path.
pub(crate) fn bad_path(what: &str, error: query::PathError) -> Fail {
    let code = query::path_error_code(error.kind);
    let mut fail = Fail::new(code, format!("{what}: {error}"));
    fail.offset = error.offset as u64;
    fail
}

/// Parses singular paths for a search.
fn path_set(c: &Caller, texts: &[raw::Slice]) -> Result<PathSet, Fail> {
    let path = |(at, text): (usize, &raw::Slice)| {
        let text = c.text(*text, "a path").map_err(|fail| fail.at_index(at))?;
        let path: Result<query::Path, _> = text.parse();
        path.map_err(|error| bad_path("the path", error).at_index(at))
    };
    let paths = texts.iter().enumerate().map(path);
    let paths = paths.collect::<Result<Vec<_>, _>>()?;
    PathSet::new(&paths).map_err(|error| Fail::new(ErrorCode::TooComplex, error.to_string()))
}

pub(crate) fn retain(page: *mut raw::Page) -> Result<Kind, Fail> {
    let page = registry::get::<Page, _>(page)?;
    let more = |count: u32| (count > 0).then(|| count.checked_add(1)).flatten();
    let retained = page
        .references
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
    retained.map_err(|_| Fail::of(ErrorCode::BadHandle))?;
    Ok(Kind::Ok)
}

pub(crate) fn release(page: *mut raw::Page) {
    let Ok(found) = registry::get::<Page, _>(page) else {
        return;
    };
    let less = |count: u32| count.checked_sub(1);
    let before = found
        .references
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    drop(found);
    if before == Ok(1) {
        drop(registry::remove::<Page, _>(page));
    }
}

//! Turns a page into rows: scans, checks and filters it, and reduces its keys.
//!
//! Invariants:
//! - A page is accepted as a whole or not at all: the source does not change before the
//!   whole page is checked (X3).
//! - Payload bytes are read once, except keys that differ only after 16 bytes.

use std::cmp::Ordering;
use std::sync::atomic::AtomicBool;

use weir_scan::{
    BadItem, Items, OutOfSteps, PART_ITEMS, ScanError, ScanErrorKind, Span, Tag, Value,
};

use crate::buffer::Buffer;
use crate::error::QueryError;
use crate::filter::Row;
use crate::input::{Frames, Meta, SourceId};
use crate::key::{Key, Literal, OwnedKey, ReducedKey};
use crate::kind::Kind;
use crate::options::{Complex, Missing};
use crate::order::{Boundary, compare, row, same_tie};
use crate::plan::{Column, OrderKey, Plan, Select};
use crate::rows::{Head, ItemValues, LoadedPage};
use crate::source::{Clip, LastKept, Source};
use weir_core::error_code::ErrorCode;
use weir_core::exact::part;

/// The changes that a page will make to its source.
pub(crate) struct Load {
    pub(crate) page: LoadedPage,
    pub(crate) raw: u64,
    pub(crate) last_raw: Option<Vec<OwnedKey>>,
    pub(crate) last_kept: Option<LastKept>,
    /// Number of equal items that each boundary excluded.
    pub(crate) equal_used: Vec<u64>,
    pub(crate) skipped: u64,
    /// Whether the last row belongs to an item that the filter dropped.
    last_row_dropped: bool,
}

/// Context for loading a page of a source.
pub(crate) struct Loader<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) source: &'a Source,
    pub(crate) id: SourceId,
    pub(crate) boundary: &'a [Boundary],
    pub(crate) stop: Option<&'a AtomicBool>,
}

/// Builds the rows of a page.
struct RowBuilder<'a, 'b> {
    loader: &'b Loader<'a>,
    load: &'b mut Load,
    frames: Option<&'b Frames>,
    /// Number of items of the page that were read, including those without a value.
    raw: usize,
    /// Whether the full values of the keys must be stored.
    whole: bool,
    /// The key, if there is exactly one and no item is dropped.
    simple: Option<OrderKey>,
    /// The first fault of the page.
    fault: Option<QueryError>,
}

impl RowBuilder<'_, '_> {
    /// Adds a part of the items of the page.
    fn add_items(&mut self, items: &Items) {
        if self.raw == 0 && self.frames.is_none() {
            self.reserve_estimate(items.spans());
        }
        for (at, span) in items.spans().iter().enumerate() {
            // Items without a value, and bad items that were skipped.
            while let Some(frame) = self.frames.and_then(|frames| frames.spans.get(self.raw))
                && frame != span
            {
                self.add_frame_without_item(*frame);
            }
            self.add_item(*span, items.values(at));
        }
    }

    /// Reserves rows for the page, estimated from the length of the first items.
    fn reserve_estimate(&mut self, first: &[Span]) {
        let end = first.last().map_or(0, |last| last.end());
        let page = self.load.page.buffer.len();
        let count = first.len().saturating_mul(page) / end.max(1);
        let more = if first.len() < PART_ITEMS {
            0
        } else {
            count / 32
        };
        self.reserve((count + more).min(EXPECTED_MAX));
    }

    /// Reserves exactly `count` rows if nearly all items are kept. Doubling would waste memory.
    fn reserve(&mut self, count: usize) {
        let plan = self.loader.plan;
        if plan.filter.is_none() {
            let (page, rows) = (&mut self.load.page, count);
            page.heads.reserve_exact(rows);
            page.keys
                .reserve_exact(rows * plan.keys.len().saturating_sub(1));
            if self.whole {
                page.values.reserve_exact(rows * page.width);
                page.metas.reserve_exact(rows * plan.metas.len());
            }
        }
    }

    /// Handles a frame without an item.
    fn add_frame_without_item(&mut self, span: Span) {
        if span.len == 0 {
            self.add_item(span, &[]);
        } else {
            self.raw += 1;
        }
    }

    /// Handles the frames after the last item.
    fn add_remaining_frames(&mut self) {
        let frames = self.frames;
        while let Some(frame) = frames.and_then(|frames| frames.spans.get(self.raw)) {
            self.add_frame_without_item(*frame);
        }
    }

    #[inline]
    fn add_item(&mut self, span: Span, values: &[Value]) {
        let raw = self.raw;
        self.raw += 1;
        let metas = self.frames.map_or(&[][..], |frames| {
            let width = self.loader.plan.metas.len();
            part(
                &frames.meta,
                raw * width..(raw + 1) * width,
                "each frame has the properties of the plan",
            )
        });
        let found = ItemValues {
            raw,
            span,
            values,
            metas,
            texts: self.frames.map_or(&[], |frames| &frames.texts),
        };
        if !self.add_simple_row(&found) {
            self.add_row(&found);
        }
    }

    /// Adds a row of the most frequent form: a kept item with an integer as its only key,
    /// larger than the key of the row before. Returns `false`, without a change, for any
    /// other row.
    #[inline]
    fn add_simple_row(&mut self, found: &ItemValues<'_>) -> bool {
        let Some(order) = self.simple else {
            return false;
        };
        let (source, page) = (self.loader.source, &mut self.load.page);
        let key = match order.column {
            Column::Path(path) => match found.value(path) {
                value if value.tag == Tag::Number => ReducedKey::plain(page.bytes(value.span)),
                _ => None,
            },
            Column::Meta(meta) => match (source.constants.get(meta), found.metas.get(meta)) {
                (Some(None), Some(Meta::Number(number))) => Some(ReducedKey::integer(*number)),
                _ => None,
            },
        };
        let Some(key) = key else {
            return false;
        };
        let prefix = |key: ReducedKey| key.prefix(order.descending);
        let ascends = !source.sorted
            || source.trust_order
            || match page.heads.last() {
                Some(before) => prefix(before.key.reduced()) < prefix(key),
                None => source.last_raw.is_none(),
            };
        let added = ascends && self.fault.is_none() && found.raw == page.heads.len();
        if added {
            page.heads.push(Head {
                key: key.into(),
                span: found.span,
            });
        }
        added
    }

    fn add_row(&mut self, found: &ItemValues<'_>) {
        if self.fault.is_some() {
            return;
        }
        if let Err(error) = self.loader.row(found, self.whole, self.load) {
            self.fault = Some(error);
        }
    }
}

/// Largest number of rows to reserve in advance.
const EXPECTED_MAX: usize = 1 << 20;

impl Loader<'_> {
    /// Scans, checks and filters a page.
    pub(crate) fn load(
        &self,
        buffer: &Buffer,
        frames: Option<Frames>,
        scratch: &mut Items,
    ) -> Result<Load, QueryError> {
        self.check(frames.as_ref(), buffer.len() as u64)?;
        let page = LoadedPage {
            buffer: buffer.clone(),
            number: self.source.pages_in,
            continuation: self.source.continuation.clone(),
            heads: Vec::new(),
            indexes: Vec::new(),
            values: Vec::new(),
            width: self.source.scan.paths().len(),
            metas: Vec::new(),
            starts: Vec::new(),
            texts: Vec::new(),
            keys: Vec::new(),
            next: 0,
            left_out: self.source.equal,
            run_before: 0,
            result_buffer: (0, 0),
        };
        let mut load = Load {
            page,
            raw: 0,
            last_raw: None,
            last_kept: None,
            equal_used: vec![0; self.boundary.len()],
            skipped: 0,
            last_row_dropped: false,
        };
        let plan = self.plan;
        let whole = plan.constructs_results() || !matches!(plan.select, Select::Item);
        let whole = whole || self.source.tie.is_some();
        let all = !whole && plan.filter.is_none() && plan.missing == Missing::First;
        let all = all && self.source.skip == 0 && self.source.clip == Clip::No;
        let mut builder = RowBuilder {
            loader: self,
            load: &mut load,
            frames: frames.as_ref(),
            raw: 0,
            whole,
            simple: match plan.keys.as_slice() {
                [key] if all => Some(*key),
                _ => None,
            },
            fault: None,
        };
        if let Some(frames) = &frames {
            builder.load.page.texts.clone_from(&frames.texts);
            builder.reserve(frames.spans.len());
        }
        let scanned = self.scan(buffer, frames.as_ref(), scratch, &mut |items| {
            builder.add_items(items);
        });
        scanned.map_err(|error| self.scan_error(&error))?;
        builder.add_remaining_frames();
        let (raw, fault) = (builder.raw, builder.fault);
        if let Some(fault) = fault {
            return Err(fault);
        }
        load.raw = raw as u64;
        load.skipped += scratch.skipped() as u64;
        if let Some(frames) = frames {
            load.page.starts = frames.starts;
        }
        self.finish_last_row(&mut load);
        self.check_watermark(&load)?;
        self.record_last_run(&mut load);
        load.page.shrink();
        Ok(load)
    }

    /// Checks that the frames fit the source, the query and a page of `bytes` bytes.
    fn check(&self, frames: Option<&Frames>, bytes: u64) -> Result<(), QueryError> {
        let bad = |what| Err(self.locate(QueryError::new(ErrorCode::BadOption).because(what)));
        if self.source.framed != frames.is_some() {
            return bad("frames are required with the shape `framed`, and allowed with no other");
        }
        let metas = self.plan.metas.len();
        if frames.is_some_and(|frames| frames.meta.len() != metas * frames.spans.len()) {
            return bad("the number of properties of a frame differs from that of the query");
        }
        let outside = |meta: &Meta| match meta {
            Meta::Bytes(span) => u64::from(span.offset) + u64::from(span.len) > bytes,
            _ => false,
        };
        if frames.is_some_and(|frames| frames.meta.iter().any(outside)) {
            return bad("a property is outside of the page");
        }
        if frames.is_some_and(|f| !f.starts.is_empty() && f.starts.len() != f.spans.len()) {
            return bad("the number of continuations differs from the number of frames");
        }
        Ok(())
    }

    fn scan(
        &self,
        page: &[u8],
        frames: Option<&Frames>,
        scratch: &mut Items,
        each: &mut dyn FnMut(&Items),
    ) -> Result<(), ScanError> {
        let plan = &self.source.scan;
        let Some(frames) = frames else {
            return weir_scan::scan_parts(page, None, plan, scratch, each);
        };
        if frames.spans.iter().all(|span| span.len > 0) {
            return weir_scan::scan_parts(page, Some(&frames.spans), plan, scratch, each);
        }
        let some: Vec<Span> = frames.spans.iter().copied().filter(|s| s.len > 0).collect();
        let scanned = weir_scan::scan_parts(page, Some(&some), plan, scratch, each);
        scanned.map_err(|mut error| {
            // `error.item` does not count records without a value.
            let full = frames.spans.iter().enumerate().filter(|(_, s)| s.len > 0);
            let at = full.map(|(at, _)| at).nth(error.item);
            error.item = at.unwrap_or(error.item);
            error
        })
    }

    /// Records the keys of the last row, and whether the row is kept.
    fn finish_last_row(&self, load: &mut Load) {
        let Some(last) = load.page.heads.len().checked_sub(1) else {
            return;
        };
        if self.source.sorted {
            load.last_raw = Some(load.page.owned(self.plan, &self.source.constants, last));
        }
        if std::mem::take(&mut load.last_row_dropped) {
            load.page.remove(last, self.plan);
        }
    }

    /// Adds an item. A dropped item stays as the last row until the next item is compared with it.
    fn row(&self, found: &ItemValues<'_>, whole: bool, load: &mut Load) -> Result<(), QueryError> {
        let plan = self.plan;
        let page = &mut load.page;
        let at = page.heads.len();
        let (mut first, mut whole) = (ReducedKey::MIN, whole);
        for (index, key) in plan.keys.iter().enumerate() {
            let reduced = self.reduce(found, key.column, &page.buffer)?;
            whole |= !reduced.is_exact();
            if index > 0 {
                page.keys.push(reduced);
            } else {
                first = reduced;
            }
        }
        page.push(first, found, plan.metas.len(), whole);
        if self.source.sorted && !self.source.trust_order && !plan.keys.is_empty() {
            self.check_order(at, found.raw, load)?;
        }
        if std::mem::take(&mut load.last_row_dropped) {
            load.page.remove(at - 1, plan);
        }
        load.last_row_dropped = !self.keeps(found, load)?;
        Ok(())
    }

    /// Reduces a key of an item.
    #[inline]
    fn reduce(
        &self,
        found: &ItemValues<'_>,
        column: Column,
        page: &[u8],
    ) -> Result<ReducedKey, QueryError> {
        let plan = self.plan;
        let (kind, literal, number) = found.column(page, &self.source.constants, column);
        if kind >= Kind::Array && plan.complex == Complex::Error {
            let mut error = QueryError::new(ErrorCode::OrderKeyType);
            if let Column::Path(path) = column {
                error = error.at(found.value(path).span.offset as usize);
            }
            error.location.item = Some(self.source.items_in + found.raw as u64);
            return Err(self.locate(error));
        }
        Ok(match number {
            Some(number) => ReducedKey::integer(number),
            None => ReducedKey::of(kind, literal, plan.strings),
        })
    }

    /// Checks that an item is not before its predecessor, even if the predecessor was
    /// dropped.
    fn check_order(&self, at: usize, raw: usize, load: &Load) -> Result<(), QueryError> {
        let (plan, constants) = (self.plan, &self.source.constants);
        let page = &load.page;
        if let (Some(before), Some(key)) = (at.checked_sub(1), plan.keys.first()) {
            // The reduced keys decide nearly all comparisons.
            let prefix = |row: usize| page.head(row).key.reduced().prefix(key.descending);
            if prefix(before) < prefix(at) {
                return Ok(());
            }
        }
        let now = |k| page.key(plan, constants, at, k);
        let order = match (at.checked_sub(1), &self.source.last_raw) {
            (Some(before), _) => compare(plan, |k| page.key(plan, constants, before, k), now),
            (None, Some(before)) => compare(plan, row(before), now),
            (None, None) => Ordering::Less,
        };
        if order == Ordering::Greater {
            return Err(self.unsorted(at, raw, page));
        }
        Ok(())
    }

    /// Checks that the first row is not before the lower bound of the source: the merge has
    /// already continued up to that bound.
    fn check_watermark(&self, load: &Load) -> Result<(), QueryError> {
        let (plan, source, page) = (self.plan, self.source, &load.page);
        let Some(watermark) = source.watermark.as_deref() else {
            return Ok(());
        };
        if page.heads.is_empty() || !source.sorted || source.trust_order {
            return Ok(());
        }
        let first = |at| page.key(plan, &source.constants, 0, at);
        if compare(plan, row(watermark), first) == Ordering::Greater {
            return Err(self.unsorted(0, page.index(0) as usize, page));
        }
        Ok(())
    }

    fn unsorted(&self, at: usize, raw: usize, page: &LoadedPage) -> QueryError {
        let mut error = QueryError::new(ErrorCode::SourceNotSorted);
        error = error.at(page.head(at).span.offset as usize);
        error.location.item = Some(self.source.items_in + raw as u64);
        self.locate(error)
    }

    /// Returns whether the item of the last row is kept.
    fn keeps(&self, found: &ItemValues<'_>, load: &mut Load) -> Result<bool, QueryError> {
        let (plan, source) = (self.plan, self.source);
        let page = &load.page;
        let Some(at) = page.heads.len().checked_sub(1) else {
            unreachable!("the item is the last row")
        };
        let wanted = found.raw >= source.skip as usize
            && (plan.missing == Missing::First
                || (0..plan.keys.len())
                    .all(|key| page.reduced(plan, at, key).kind() != Kind::Undefined))
            && match plan.select {
                Select::Path(path) => found.value(path).tag != Tag::Undefined,
                Select::Columns => {
                    let mut columns = plan.columns.iter();
                    columns.any(|named| found.value(named.what).tag != Tag::Undefined)
                }
                _ => true,
            }
            && self.passes(found, load)?;
        Ok(wanted && (source.clip == Clip::No || self.is_after_all(at, load)))
    }

    /// Returns whether an item passes the filter.
    fn passes(&self, found: &ItemValues<'_>, load: &mut Load) -> Result<bool, QueryError> {
        let Some(filter) = &self.plan.filter else {
            return Ok(true);
        };
        let row = Row {
            page: &load.page.buffer,
            item: found.span,
            values: found.values,
            metas: found.metas,
            texts: found.texts,
            constants: &self.source.constants,
            stop: self.stop,
        };
        let passes = if row.is_stopped() {
            Err(OutOfSteps)
        } else {
            filter.matches(&row)
        };
        match (passes, self.source.scan.bad_item()) {
            (Ok(passes), _) => Ok(passes),
            (Err(_), _) if row.is_stopped() => {
                Err(self.locate(QueryError::new(ErrorCode::Cancelled)))
            }
            (Err(_), BadItem::Skip) => {
                load.skipped += 1;
                Ok(false)
            }
            (Err(_), BadItem::Undefined) => Ok(filter.matches_nothing(&row).unwrap_or(false)),
            (Err(_), BadItem::Error) => {
                let mut error = QueryError::out_of_steps().at(found.span.offset as usize);
                error.location.item = Some(self.source.items_in + found.raw as u64);
                Err(self.locate(error))
            }
        }
    }

    /// Returns whether no earlier run returned the row. If an outer boundary excluded the
    /// row, the boundaries inside of it do not count it.
    fn is_after_all(&self, at: usize, load: &mut Load) -> bool {
        let Load {
            page, equal_used, ..
        } = load;
        let precedence = &self.source.precedence;
        let own_page_only = self
            .boundary
            .iter()
            .filter(|boundary| boundary.own_page_only);
        let own_page_only = own_page_only.filter(|boundary| precedence.is_in(&boundary.precedence));
        let least = own_page_only
            .map(|boundary| boundary.precedence.part.len())
            .max();
        // Only the first boundary applies to sources that it does not name.
        let holds = |index: usize, boundary: &Boundary| {
            if precedence.is_in(&boundary.precedence) {
                least.is_none_or(|least| boundary.precedence.part.len() >= least)
            } else {
                index == 0
            }
        };
        let mut boundaries = self.boundary.iter().zip(equal_used).enumerate().rev();
        let after = boundaries.all(|(index, (boundary, used))| {
            !holds(index, boundary) || self.is_after(boundary, at, page, used)
        });
        if !after
            && let Some(boundary) = Boundary::innermost(self.boundary, precedence)
            && page.is_at(self.plan, self.source, at, boundary)
        {
            page.left_out += 1;
        }
        after
    }

    fn is_after(&self, boundary: &Boundary, at: usize, page: &LoadedPage, used: &mut u64) -> bool {
        let (plan, source) = (self.plan, self.source);
        let now = |k| page.key(plan, &source.constants, at, k);
        match compare(plan, now, row(&boundary.keys)) {
            Ordering::Less => return false,
            Ordering::Greater => return true,
            Ordering::Equal => {}
        }
        if !source.precedence.is_in(&boundary.precedence) {
            return source.precedence > boundary.precedence;
        }
        if let (Some(tie), Some(path)) = (&boundary.tie, source.tie) {
            let value = page.value(at, path);
            let literal = Literal::Json(page.bytes(value.span));
            let now = Key {
                reduced: ReducedKey::of(value.tag, literal, plan.strings),
                literal,
            };
            match now.compare(&tie.key(), plan.strings) {
                Ordering::Less => return false,
                Ordering::Greater => return true,
                Ordering::Equal => {}
            }
        }
        let again = *used < boundary.equal;
        *used += u64::from(again);
        !again
    }

    /// Records the last keys, and the number of consecutive items that have them.
    fn record_last_run(&self, load: &mut Load) {
        let (plan, source) = (self.plan, self.source);
        if plan.keys.is_empty() || !source.sorted {
            return;
        }
        let page = &load.page;
        let count = page.heads.len();
        let Some(last) = count.checked_sub(1) else {
            load.last_kept.clone_from(&source.last_kept);
            return;
        };
        let before = source.last_kept.as_ref().map_or(0, |(keys, tie, run)| {
            let key = |at| page.key(plan, &source.constants, 0, at);
            let same = compare(plan, row(keys), key) == Ordering::Equal
                && same_tie(plan, tie.as_ref(), page.tie(plan, source, 0).as_ref());
            if same { *run } else { 0 }
        });
        let run = page.run(plan, source, last);
        let whole = if run == count { before } else { 0 };
        load.last_kept = Some((
            page.owned(plan, &source.constants, last),
            page.tie(plan, source, last),
            whole + run as u64,
        ));
        load.page.run_before = before;
    }

    fn locate(&self, error: QueryError) -> QueryError {
        let mut error = error.of(self.id, &self.source.name);
        error.location.page = Some(self.source.pages_in);
        error
    }

    fn scan_error(&self, error: &ScanError) -> QueryError {
        let code = match error.kind {
            ScanErrorKind::NotUtf8 => ErrorCode::NotUtf8,
            ScanErrorKind::ControlCharacter => ErrorCode::ControlCharacter,
            ScanErrorKind::UnterminatedString => ErrorCode::UnterminatedString,
            ScanErrorKind::Unbalanced => ErrorCode::Unbalanced,
            ScanErrorKind::TrailingData => ErrorCode::TrailingData,
            ScanErrorKind::TooDeep => ErrorCode::TooDeep,
            ScanErrorKind::TooLarge => ErrorCode::PageTooLarge,
            ScanErrorKind::BadEnvelope => ErrorCode::BadEnvelope,
            ScanErrorKind::DuplicateName => ErrorCode::RepeatedName,
            _ => ErrorCode::NotJson,
        };
        let mut found = QueryError::new(code).at(error.offset);
        found.location.item = Some(self.source.items_in + error.item as u64);
        self.locate(found)
    }
}

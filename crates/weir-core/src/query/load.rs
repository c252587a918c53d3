//! From a page to rows: scanned, checked, filtered, with reduced keys.
//!
//! Invariant: a page is taken as a whole or not at all; nothing of the source
//! changes before everything of the page was found good (X3). Payload bytes are
//! read here and not again, but for keys that 16 bytes do not decide.

use std::cmp::Ordering;

use bytes::Bytes;
use weir_scan::{Items, ScanError, ScanErrorKind, Span, Value};

use super::buffer::Buffer;
use super::error::QueryError;
use super::filter::Row;
use super::key::{Key, Kind, Literal, OwnedKey, Reduced};
use super::options::{Complex, Missing};
use super::plan::{Column, Plan, Select};
use super::source::{Clip, Constant, Frames, Meta, Source, SourceId, kind};
use crate::error_code::ErrorCode;

/// What a merge looks at of an item: half a cache line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head {
    /// The first key; nothing without an order.
    pub(crate) key: Reduced,
    /// Where the item is.
    pub(crate) span: Span,
    /// Its number among all items of the page.
    pub(crate) index: u32,
}

/// A page in memory, with the items that the filter let through.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) buffer: Buffer,
    /// Its number within the source, from 0.
    pub(crate) number: u64,
    /// What named it.
    pub(crate) asked: Option<Bytes>,
    /// Kept items.
    pub(crate) heads: Vec<Head>,
    /// `width` values an item.
    pub(crate) values: Vec<Value>,
    pub(crate) width: usize,
    /// As many properties an item as the plan has.
    pub(crate) metas: Vec<Meta>,
    /// Of each item, kept or not, what names a page that begins with it; or
    /// nothing at all.
    pub(crate) starts: Vec<Meta>,
    /// The keys behind the first: one fewer an item than the plan has.
    pub(crate) keys: Vec<Reduced>,
    /// The first item that was not handed out.
    pub(crate) next: usize,
    /// How many items right before the first one had equal keys.
    pub(crate) run_before: u64,
    /// The result page that has this buffer, and its index there.
    pub(crate) mark: (u64, u32),
}

impl Loaded {
    pub(crate) fn value(&self, row: usize, path: usize) -> Value {
        let value = self.values.get(row * self.width + path);
        value.copied().unwrap_or_default()
    }

    fn push(&mut self, head: Head, values: &[Value], metas: &[Meta]) {
        self.heads.push(head);
        self.values.extend_from_slice(values);
        let all = self.heads.len() * self.width;
        self.values.resize(all, Value::default());
        self.metas.extend_from_slice(metas);
    }

    /// Removes the last row but one, or the last.
    fn remove(&mut self, row: usize, plan: &Plan) {
        fn cut<T: Copy>(all: &mut Vec<T>, row: usize, width: usize) {
            let (from, to) = (row * width, ((row + 1) * width).min(all.len()));
            all.copy_within(to.., from);
            all.truncate(all.len() - (to - from));
        }
        cut(&mut self.heads, row, 1);
        cut(&mut self.values, row, self.width);
        cut(&mut self.keys, row, plan.keys.len().saturating_sub(1));
        if !self.metas.is_empty() {
            cut(&mut self.metas, row, plan.metas.len());
        }
    }

    /// A row of the page.
    #[inline]
    pub(crate) fn head(&self, row: usize) -> Head {
        self.heads.get(row).copied().unwrap_or_default()
    }

    /// A key of a row, reduced.
    #[inline]
    fn reduced(&self, plan: &Plan, row: usize, at: usize) -> Reduced {
        match at.checked_sub(1) {
            None => self.head(row).key,
            Some(behind) => {
                let width = plan.keys.len().saturating_sub(1);
                let key = self.keys.get(row * width + behind);
                key.copied().unwrap_or_default()
            }
        }
    }

    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        span.of(&self.buffer)
    }

    /// What names a page that begins with a row, if that has a name.
    pub(crate) fn start(&self, row: usize) -> Option<Bytes> {
        Some(match *self.starts.get(self.head(row).index as usize)? {
            Meta::Nothing => return None,
            Meta::Number(number) => Bytes::from(number.to_string()),
            Meta::Bytes(span) => Bytes::copy_from_slice(self.bytes(span)),
            Meta::Kind(kind) => Bytes::from_static(kind.name().as_bytes()),
        })
    }

    /// The value of a column: its kind, bytes, and number of the engine.
    pub(crate) fn column<'a>(
        &'a self,
        constants: &'a [Option<Constant>],
        metas: usize,
        row: usize,
        column: Column,
    ) -> (Kind, Literal<'a>, Option<u64>) {
        match column {
            Column::Path(path) => {
                let value = self.value(row, path);
                (kind(value.tag), Literal::Json(self.bytes(value.span)), None)
            }
            Column::Meta(meta) => {
                if let Some(Some(constant)) = constants.get(meta) {
                    return (constant.kind, Literal::Json(&constant.literal), None);
                }
                match self.metas.get(row * metas + meta).copied() {
                    None | Some(Meta::Nothing) => (Kind::Undefined, Literal::Json(&[]), None),
                    Some(Meta::Number(number)) => (Kind::Number, Literal::Json(&[]), Some(number)),
                    Some(Meta::Bytes(span)) => (Kind::String, Literal::Raw(self.bytes(span)), None),
                    Some(Meta::Kind(kind)) => {
                        (Kind::String, Literal::Raw(kind.name().as_bytes()), None)
                    }
                }
            }
        }
    }

    /// A key of a row.
    #[inline]
    pub(crate) fn key<'a>(
        &'a self,
        plan: &Plan,
        constants: &'a [Option<Constant>],
        row: usize,
        at: usize,
    ) -> Key<'a> {
        let reduced = self.reduced(plan, row, at);
        let literal = match plan.keys.get(at) {
            Some(key) if !reduced.is_exact() => {
                self.column(constants, plan.metas.len(), row, key.column).1
            }
            _ => Literal::Json(&[]),
        };
        Key { reduced, literal }
    }

    /// What orders a row among equal ones, if the source has that.
    pub(crate) fn tie(&self, plan: &Plan, source: &Source, row: usize) -> Option<OwnedKey> {
        let value = self.value(row, source.tie?);
        let literal = Literal::Json(self.bytes(value.span));
        Some(OwnedKey::of(&Key {
            reduced: Reduced::of(kind(value.tag), literal, plan.strings),
            literal,
        }))
    }

    /// How many rows up to this one have its keys and its tie.
    pub(crate) fn run(&self, plan: &Plan, source: &Source, row: usize) -> usize {
        let key = |row: usize| move |at| self.key(plan, &source.constants, row, at);
        let tie = self.tie(plan, source, row);
        let mut run = 1;
        while run <= row
            && compare(plan, key(row), key(row - run)) == Ordering::Equal
            && same_tie(
                plan,
                tie.as_ref(),
                self.tie(plan, source, row - run).as_ref(),
            )
        {
            run += 1;
        }
        run
    }

    /// All keys of a row, to be kept.
    pub(crate) fn owned(
        &self,
        plan: &Plan,
        constants: &[Option<Constant>],
        row: usize,
    ) -> Vec<OwnedKey> {
        let keys = (0..plan.keys.len()).map(|at| self.key(plan, constants, row, at));
        keys.map(|key| OwnedKey::of(&key)).collect()
    }
}

/// Order of two rows of keys, as the query says.
pub(crate) fn compare<'a>(
    plan: &Plan,
    a: impl Fn(usize) -> Key<'a>,
    b: impl Fn(usize) -> Key<'a>,
) -> Ordering {
    for (at, key) in plan.keys.iter().enumerate() {
        let order = a(at).compare(&b(at), plan.strings);
        if order != Ordering::Equal {
            return if key.descending {
                order.reverse()
            } else {
                order
            };
        }
    }
    Ordering::Equal
}

/// Whether two ties are equal, or there is none.
fn same_tie(plan: &Plan, a: Option<&OwnedKey>, b: Option<&OwnedKey>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.key().compare(&b.key(), plan.strings) == Ordering::Equal,
        _ => true,
    }
}

/// A row of kept keys.
pub(crate) fn row<'a>(keys: &'a [OwnedKey]) -> impl Fn(usize) -> Key<'a> {
    move |at| {
        keys.get(at).map_or(
            Key {
                reduced: Reduced::LEAST,
                literal: Literal::Json(&[]),
            },
            OwnedKey::key,
        )
    }
}

/// Up to where an earlier run has handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Boundary {
    pub(crate) keys: Vec<OwnedKey>,
    /// Ordinal of the source of the last item.
    pub(crate) ordinal: u64,
    pub(crate) tie: Option<OwnedKey>,
    /// Items with exactly these keys (and tie) that were handed out.
    pub(crate) equal: u64,
}

impl Boundary {
    /// Whether both are at the same place in the order.
    pub(crate) fn is_at(&self, other: &Self, plan: &Plan) -> bool {
        self.ordinal == other.ordinal
            && compare(plan, row(&self.keys), row(&other.keys)) == Ordering::Equal
            && same_tie(plan, self.tie.as_ref(), other.tie.as_ref())
    }
}

/// Keys and tie of the last item that was kept, and how many in a row had them.
pub(crate) type LastKept = (Vec<OwnedKey>, Option<OwnedKey>, u64);

/// What a page would change.
pub(crate) struct Load {
    pub(crate) page: Loaded,
    pub(crate) raw: u64,
    pub(crate) last_raw: Option<Vec<OwnedKey>>,
    pub(crate) last_kept: Option<LastKept>,
    pub(crate) equal_used: u64,
    pub(crate) skipped: u64,
    /// Whether the last row is of an item that is not kept.
    ghost: bool,
}

/// What is needed to take a page of a source.
pub(crate) struct Loader<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) source: &'a Source,
    pub(crate) id: SourceId,
    pub(crate) boundary: Option<&'a Boundary>,
}

impl Loader<'_> {
    /// Scans, checks and filters.
    pub(crate) fn load(
        &self,
        buffer: Buffer,
        frames: Option<&Frames>,
        scratch: &mut Items,
    ) -> Result<Load, QueryError> {
        let frames = match (self.source.framed, frames) {
            (true, Some(frames)) => Some(frames),
            (false, None) => None,
            _ => {
                let what = "frames come with the shape `framed`, and only with it";
                return Err(self.place(QueryError::new(ErrorCode::BadOption).because(what)));
            }
        };
        let metas = self.plan.metas.len();
        if frames.is_some_and(|frames| frames.meta.len() != metas * frames.spans.len()) {
            let what = "a frame has another number of properties than were asked for";
            return Err(self.place(QueryError::new(ErrorCode::BadOption).because(what)));
        }
        if frames.is_some_and(|f| !f.starts.is_empty() && f.starts.len() != f.spans.len()) {
            let what = "frames have another number of names than of records";
            return Err(self.place(QueryError::new(ErrorCode::BadOption).because(what)));
        }
        let scanned = self.scan(&buffer, frames, scratch);
        scanned.map_err(|error| self.scan_error(&error))?;
        let width = scratch.width();
        let page = Loaded {
            buffer,
            number: self.source.pages_in,
            asked: self.source.asked.clone(),
            heads: Vec::new(),
            values: Vec::new(),
            width,
            metas: Vec::new(),
            starts: frames.map_or_else(Vec::new, |frames| frames.starts.clone()),
            keys: Vec::new(),
            next: 0,
            run_before: 0,
            mark: (0, 0),
        };
        let mut load = Load {
            page,
            raw: 0,
            last_raw: None,
            last_kept: None,
            equal_used: 0,
            skipped: scratch.skipped() as u64,
            ghost: false,
        };
        self.rows(frames, scratch, &mut load)?;
        self.runs(&mut load);
        Ok(load)
    }

    fn scan(
        &self,
        page: &[u8],
        frames: Option<&Frames>,
        scratch: &mut Items,
    ) -> Result<(), ScanError> {
        let Some(frames) = frames else {
            return weir_scan::scan_into(page, &self.source.scan, scratch);
        };
        if frames.spans.iter().all(|span| span.len > 0) {
            return weir_scan::scan_framed(page, &frames.spans, &self.source.scan, scratch);
        }
        let some: Vec<Span> = frames.spans.iter().copied().filter(|s| s.len > 0).collect();
        let scanned = weir_scan::scan_framed(page, &some, &self.source.scan, scratch);
        scanned.map_err(|mut error| {
            // Counted with those that have no value.
            let full = frames.spans.iter().enumerate().filter(|(_, s)| s.len > 0);
            let at = full.map(|(at, _)| at).nth(error.item);
            error.item = at.unwrap_or(error.item);
            error
        })
    }

    fn rows(
        &self,
        frames: Option<&Frames>,
        items: &Items,
        load: &mut Load,
    ) -> Result<(), QueryError> {
        let count = frames.map_or(items.len(), |frames| frames.spans.len());
        if self.plan.filter.is_none() {
            // Nearly all of them are kept; room that doubles would be wasted.
            let page = &mut load.page;
            page.heads.reserve_exact(count);
            page.values.reserve_exact(count * page.width);
            page.metas.reserve_exact(count * self.plan.metas.len());
            let keys = self.plan.keys.len().saturating_sub(1);
            page.keys.reserve_exact(count * keys);
        }
        let mut scanned = 0;
        for raw in 0..count {
            let (span, values, metas) = match frames {
                None => (
                    items.item(raw).unwrap_or_default(),
                    items.values(raw),
                    &[][..],
                ),
                Some(frames) => {
                    let span = frames.spans.get(raw).copied().unwrap_or_default();
                    let width = self.plan.metas.len();
                    let metas = frames.meta.get(raw * width..(raw + 1) * width);
                    let metas = metas.unwrap_or_default();
                    if span.len == 0 {
                        (span, &[][..], metas)
                    } else if items.item(scanned) == Some(span) {
                        scanned += 1;
                        (span, items.values(scanned - 1), metas)
                    } else {
                        // A bad item that was left out.
                        continue;
                    }
                }
            };
            self.row(raw, span, values, metas, load)?;
        }
        load.raw = count as u64;
        let last = load.page.heads.len().checked_sub(1);
        if let Some(last) = last
            && self.source.sorted
        {
            load.last_raw = Some(load.page.owned(self.plan, &self.source.constants, last));
        }
        if let Some(last) = last
            && std::mem::take(&mut load.ghost)
        {
            load.page.remove(last, self.plan);
        }
        Ok(())
    }

    /// Adds an item. One that is not kept stays as a ghost until the next is
    /// compared with it.
    fn row(
        &self,
        raw: usize,
        span: Span,
        values: &[Value],
        metas: &[Meta],
        load: &mut Load,
    ) -> Result<(), QueryError> {
        let at = load.page.heads.len();
        let head = Head {
            key: Reduced::LEAST,
            span,
            index: u32::try_from(raw).unwrap_or(u32::MAX),
        };
        load.page.push(head, values, metas);
        self.reduce(at, raw, &mut load.page)?;
        if self.source.sorted && !self.source.trust_order && !self.plan.keys.is_empty() {
            self.sorted(at, raw, load)?;
        }
        if std::mem::take(&mut load.ghost) {
            load.page.remove(at - 1, self.plan);
        }
        let at = load.page.heads.len() - 1;
        load.ghost = !self.keeps(at, load);
        Ok(())
    }

    fn reduce(&self, at: usize, raw: usize, page: &mut Loaded) -> Result<(), QueryError> {
        let plan = self.plan;
        for (place, key) in plan.keys.iter().enumerate() {
            let constants = &self.source.constants;
            let (kind, literal, number) = page.column(constants, plan.metas.len(), at, key.column);
            if kind >= Kind::Array && plan.complex == Complex::Error {
                let mut error = QueryError::new(ErrorCode::OrderKeyType);
                if let Column::Path(path) = key.column {
                    error = error.at(page.value(at, path).span.offset as usize);
                }
                error.place.item = Some(self.source.items_in + raw as u64);
                return Err(self.place(error));
            }
            let reduced = match number {
                Some(number) => Reduced::integer(number),
                None => Reduced::of(kind, literal, plan.strings),
            };
            if place > 0 {
                page.keys.push(reduced);
            } else if let Some(head) = page.heads.get_mut(at) {
                head.key = reduced;
            }
        }
        Ok(())
    }

    /// Compares an item with the one before it, kept or not.
    fn sorted(&self, at: usize, raw: usize, load: &Load) -> Result<(), QueryError> {
        let (plan, constants) = (self.plan, &self.source.constants);
        let page = &load.page;
        let now = |k| page.key(plan, constants, at, k);
        let order = match (at.checked_sub(1), &self.source.last_raw) {
            (Some(before), _) => compare(plan, |k| page.key(plan, constants, before, k), now),
            (None, Some(before)) => compare(plan, row(before), now),
            (None, None) => Ordering::Less,
        };
        if order == Ordering::Greater {
            let mut error = QueryError::new(ErrorCode::SourceNotSorted);
            let span = page.head(at).span;
            error = error.at(span.offset as usize);
            error.place.item = Some(self.source.items_in + raw as u64);
            return Err(self.place(error));
        }
        Ok(())
    }

    /// Whether an item goes on.
    fn keeps(&self, at: usize, load: &mut Load) -> bool {
        let (plan, source) = (self.plan, self.source);
        let page = &load.page;
        page.head(at).index >= source.skip
            && (plan.missing == Missing::First
                || (0..plan.keys.len())
                    .all(|key| page.reduced(plan, at, key).kind() != Kind::Undefined))
            && match plan.select {
                Select::Path(path) => page.value(at, path).tag != weir_scan::Tag::Undefined,
                _ => true,
            }
            && plan.filter.as_ref().is_none_or(|filter| {
                let start = at * page.width;
                filter.matches(&Row {
                    page: &page.buffer,
                    item: page.head(at).span,
                    values: page.values.get(start..).unwrap_or_default(),
                    metas: page.metas.get(at * plan.metas.len()..).unwrap_or_default(),
                    constants: &source.constants,
                })
            })
            && self.is_behind_boundary(at, load)
    }

    fn is_behind_boundary(&self, at: usize, load: &mut Load) -> bool {
        let (Clip::Boundary, Some(boundary)) = (self.source.clip, self.boundary) else {
            return true;
        };
        let (plan, source, page) = (self.plan, self.source, &load.page);
        let now = |k| page.key(plan, &source.constants, at, k);
        match compare(plan, now, row(&boundary.keys)) {
            Ordering::Less => return false,
            Ordering::Greater => return true,
            Ordering::Equal => {}
        }
        match source.ordinal.cmp(&boundary.ordinal) {
            Ordering::Less => return false,
            Ordering::Greater => return true,
            Ordering::Equal => {}
        }
        if let (Some(tie), Some(path)) = (&boundary.tie, source.tie) {
            let value = page.value(at, path);
            let literal = Literal::Json(page.bytes(value.span));
            let now = Key {
                reduced: Reduced::of(kind(value.tag), literal, plan.strings),
                literal,
            };
            match now.compare(&tie.key(), plan.strings) {
                Ordering::Less => return false,
                Ordering::Greater => return true,
                Ordering::Equal => {}
            }
        }
        let again = load.equal_used < boundary.equal;
        load.equal_used += u64::from(again);
        !again
    }

    /// Notes the last keys, and how many items in a row have them.
    fn runs(&self, load: &mut Load) {
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

    fn place(&self, error: QueryError) -> QueryError {
        let mut error = error.of(self.id, &self.source.name);
        error.place.page = Some(self.source.pages_in);
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
        found.place.item = Some(self.source.items_in + error.item as u64);
        self.place(found)
    }
}

//! Finds the items of a page.
//!
//! Invariants: a page is accepted as a whole or rejected. Of several faults, the first position is
//! reported; at one position, a fault of UTF-8 is reported before a fault of JSON.

use crate::error::{ScanError, ScanErrorKind};
use crate::items::{Items, Span, Value};
use crate::kernel::scalar::Fault;
use crate::path::Step;
use crate::plan::{BadItem, Level, Plan, Shape};
use crate::token::{blanks, unexpected};
use crate::walk::Walk;

/// Finds the items of `page` by `plan`. O(page) in time, O(items) in memory.
///
/// # Errors
/// The kind and the position of the fault; no item is returned.
pub fn scan(page: &[u8], plan: &Plan) -> Result<Items, ScanError> {
    let mut items = Items::default();
    scan_into(page, plan, &mut items)?;
    Ok(items)
}

/// As [`scan`], but writes to `items`, whose memory is reused.
///
/// # Errors
/// As [`scan`]; `items` is empty then.
pub fn scan_into(page: &[u8], plan: &Plan, items: &mut Items) -> Result<(), ScanError> {
    run(page, plan, items, None, |job| job.all(None))
}

/// As [`scan_into`] for a plan of shape `Framed`: the items are the `frames` of the page, in the
/// given order. Bytes of the page outside of the frames are not read.
///
/// # Errors
/// As [`scan`]; for a frame that is not inside the page, `TooLarge`.
pub fn scan_framed(
    page: &[u8],
    frames: &[Span],
    plan: &Plan,
    items: &mut Items,
) -> Result<(), ScanError> {
    run(page, plan, items, None, |job| job.all(Some(frames)))
}

/// Number of items that [`scan_parts`] passes on at a time.
pub const PART_ITEMS: usize = 256;

/// As [`scan_into`], or [`scan_framed`] if there are `frames`, for a caller that visits each item
/// once. `each` gets the items in order, at most [`PART_ITEMS`] at a time, in `items`, whose memory
/// is reused. So an item is visited while it is in the cache, and all items need no memory at once.
/// The caller must discard the visited items if the scan fails. After a successful scan, `items`
/// has the number of skipped items.
///
/// # Errors
/// As [`scan`]; a page with a fault is scanned twice.
pub fn scan_parts(
    page: &[u8],
    frames: Option<&[Span]>,
    plan: &Plan,
    items: &mut Items,
    each: &mut dyn FnMut(&Items),
) -> Result<(), ScanError> {
    let done = run(page, plan, items, Some(each), |job| job.all(frames));
    let Err(error) = done else {
        return Ok(());
    };
    // A fault has an index of an item, but earlier items are discarded. So the page is scanned
    // again. A borrowed page may have changed; its first fault remains an error.
    let mut all = Items::default();
    let again = run(page, plan, &mut all, None, |job| job.all(frames));
    Err(again.err().unwrap_or(error))
}

/// Number of bytes after a line that are read with it: a block less one byte, so that a kernel
/// reads the line in whole blocks. The bytes after a frame are not read, because they may be no
/// text.
const READ_AFTER: usize = 63;

pub(crate) fn at_item((kind, offset): Fault, item: usize) -> ScanError {
    ScanError { kind, offset, item }
}

pub(crate) fn too_large(offset: usize, item: usize) -> ScanError {
    at_item((ScanErrorKind::TooLarge, offset), item)
}

type OnItems<'a> = Option<&'a mut dyn FnMut(&Items)>;

fn run(
    page: &[u8],
    plan: &Plan,
    items: &mut Items,
    each: OnItems<'_>,
    work: impl FnOnce(&mut Job<'_, '_>) -> Result<(), ScanError>,
) -> Result<(), ScanError> {
    items.clear(plan.paths.len());
    if page.len() as u64 > plan.limits.page_bytes_max {
        return Err(too_large(0, 0));
    }
    let mut job = Job {
        page,
        plan,
        items,
        each,
        passed: 0,
    };
    let done = work(&mut job);
    if done.is_ok() {
        job.flush_part();
    }
    if done.is_err() {
        items.clear(plan.paths.len());
    }
    done
}

/// A scan in progress.
struct Job<'a, 'e> {
    page: &'a [u8],
    plan: &'a Plan,
    items: &'a mut Items,
    /// Receives the items as they are found.
    each: OnItems<'e>,
    /// Number of items that `each` has received.
    passed: usize,
}

impl<'a> Job<'a, '_> {
    /// Scans the frames, or the page by the shape of the plan.
    fn all(&mut self, frames: Option<&[Span]>) -> Result<(), ScanError> {
        if let Some(frames) = frames {
            return self.frames(frames);
        }
        match &self.plan.shape {
            Shape::Array => self.whole(&[]),
            Shape::Member(path) => self.whole(path.steps()),
            Shape::Lines => self.lines(),
            Shape::Values => self.values(),
            Shape::Single | Shape::Framed => self.frames(&[Span::new(0, self.page.len())]),
        }
    }

    /// Passes the found items on, if the caller receives them in parts.
    fn flush_part(&mut self) {
        if let Some(each) = &mut self.each {
            each(self.items);
            self.passed += self.items.spans.len();
            self.items.spans.clear();
            self.items.values.clear();
        }
    }

    /// Passes the items on when there are enough for a part.
    #[inline]
    fn part(&mut self) {
        if self.items.spans.len() >= PART_ITEMS {
            self.flush_part();
        }
    }

    fn walk(&self, bytes: &'a [u8], readable: &'a [u8]) -> Walk<'a> {
        Walk {
            bytes,
            readable,
            paths: &self.plan.paths,
            kernel: self.plan.kernel,
            strict: self.plan.level == Level::Strict,
            wanted: None,
            depth_max: self.plan.limits.depth_max,
            high: false,
        }
    }

    /// Scans a page that is one value, with the array of items at the end of `steps`.
    fn whole(&mut self, steps: &[Step]) -> Result<(), ScanError> {
        let page = self.page;
        let mut walk = self.walk(page, page);
        let done = self.envelope(&mut walk, steps);
        let high = walk.high;
        let done = self.utf8(page, 0, high, done);
        done.map_err(|fault| at_item(fault, self.items_before(fault.1)))
    }

    /// Number of items found so far that end before `offset`.
    fn items_before(&self, offset: usize) -> usize {
        let spans = &self.items.spans;
        spans.partition_point(|span| span.end() <= offset)
    }

    /// Adds the check of UTF-8 to the result of a scan of `bytes[start..]`. The check is needed if
    /// bytes that are not ASCII were seen, or if the scan failed and may have passed such bytes
    /// before.
    fn utf8(
        &self,
        bytes: &[u8],
        start: usize,
        high: bool,
        done: Result<(), Fault>,
    ) -> Result<(), Fault> {
        let rest = bytes.get(start..).unwrap_or(&[]);
        if done.is_ok() && (!high || self.plan.kernel.utf8(rest)) {
            return done;
        }
        let Err(error) = std::str::from_utf8(rest) else {
            return done;
        };
        let offset = start + error.valid_up_to();
        match done {
            Err(first) if first.1 < offset => done,
            _ => Err((ScanErrorKind::NotUtf8, offset)),
        }
    }

    fn envelope(&mut self, walk: &mut Walk<'_>, steps: &[Step]) -> Result<(), Fault> {
        let at = blanks(self.page, 0);
        if at == self.page.len() {
            return Err((ScanErrorKind::BadEnvelope, at));
        }
        let end = self.descend(walk, at, 0, steps)?;
        let end = blanks(self.page, end);
        if end < self.page.len() {
            return Err((ScanErrorKind::TrailingData, end));
        }
        Ok(())
    }

    /// Descends into the value at `at` towards the array; returns its end. The recursion is as deep
    /// as the path is long.
    fn descend(
        &mut self,
        walk: &mut Walk<'_>,
        at: usize,
        depth: u32,
        steps: &[Step],
    ) -> Result<usize, Fault> {
        let page = self.page;
        let Some((step, rest)) = steps.split_first() else {
            return self.elements(walk, at);
        };
        let open = if matches!(step, Step::Name(_)) {
            b'{'
        } else {
            b'['
        };
        match page.get(at) {
            Some(byte) if *byte == open => {}
            Some(b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                return Err((ScanErrorKind::BadEnvelope, at));
            }
            _ => return Err(unexpected(page, at)),
        }
        if depth >= self.plan.limits.depth_max {
            return Err((ScanErrorKind::TooDeep, at));
        }
        match step {
            Step::Name(name) => self.member(walk, at, depth, name, rest),
            Step::Index(index) => self.element(walk, at, depth, *index, rest),
        }
    }

    fn member(
        &mut self,
        walk: &mut Walk<'_>,
        at: usize,
        depth: u32,
        name: &str,
        rest: &[Step],
    ) -> Result<usize, Fault> {
        let page = self.page;
        let mut found = false;
        let mut at = blanks(page, at + 1);
        if page.get(at) == Some(&b'}') {
            return Err((ScanErrorKind::BadEnvelope, at));
        }
        loop {
            let name_at = at;
            if page.get(at) != Some(&b'"') {
                return Err(unexpected(page, at));
            }
            let (same, after) = walk.is_name(at, name)?;
            at = blanks(page, after);
            if page.get(at) != Some(&b':') {
                return Err(unexpected(page, at));
            }
            at = blanks(page, at + 1);
            at = if same && !found {
                found = true;
                self.descend(walk, at, depth + 1, rest)?
            } else if same && walk.strict {
                return Err((ScanErrorKind::DuplicateName, name_at));
            } else {
                walk.checked(at, depth + 1)?
            };
            at = blanks(page, at);
            match page.get(at) {
                Some(b',') => at = blanks(page, at + 1),
                Some(b'}') if found => return Ok(at + 1),
                Some(b'}') => return Err((ScanErrorKind::BadEnvelope, at)),
                Some(b']') => return Err((ScanErrorKind::Unbalanced, at)),
                _ => return Err(unexpected(page, at)),
            }
        }
    }

    fn element(
        &mut self,
        walk: &mut Walk<'_>,
        at: usize,
        depth: u32,
        index: i64,
        rest: &[Step],
    ) -> Result<usize, Fault> {
        let page = self.page;
        let first = blanks(page, at + 1);
        if page.get(first) == Some(&b']') {
            return Err((ScanErrorKind::BadEnvelope, first));
        }
        let mut wanted = u64::try_from(index).ok();
        if wanted.is_none() {
            let (count, _) = walk.elements(first, |walk, at, _| walk.checked(at, depth + 1))?;
            wanted = count.checked_sub(index.unsigned_abs());
        }
        let mut found = false;
        let (_, end) = walk.elements(first, |walk, at, number| {
            if Some(number) == wanted {
                found = true;
                self.descend(walk, at, depth + 1, rest)
            } else {
                walk.checked(at, depth + 1)
            }
        })?;
        if !found {
            return Err((ScanErrorKind::BadEnvelope, end - 1));
        }
        Ok(end)
    }

    /// Scans the array of items.
    fn elements(&mut self, walk: &mut Walk<'_>, at: usize) -> Result<usize, Fault> {
        let page = self.page;
        match page.get(at) {
            Some(b'[') => {}
            Some(b'{' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                return Err((ScanErrorKind::BadEnvelope, at));
            }
            _ => return Err(unexpected(page, at)),
        }
        let mut at = blanks(page, at + 1);
        if page.get(at) == Some(&b']') {
            return Ok(at + 1);
        }
        loop {
            let end = self.item(walk, at)?;
            self.part();
            match walk.after_element(end)? {
                (end, true) => return Ok(end),
                (next, false) => at = next,
            }
        }
    }

    /// Scans an item that begins at `at`; returns its end.
    fn item(&mut self, walk: &mut Walk<'_>, at: usize) -> Result<usize, Fault> {
        let first = self.items.values.len();
        let all = first + self.items.width;
        self.items.values.resize(all, Value::default());
        let out = self.items.values.get_mut(first..).unwrap_or(&mut []);
        let end = walk.value(at, 0, 0, out)?;
        if (end - at) as u64 > self.plan.limits.item_bytes_max {
            return Err((ScanErrorKind::TooLarge, at));
        }
        self.items.spans.push(Span::new(at, end));
        Ok(end)
    }

    /// Scans values in sequence.
    fn values(&mut self) -> Result<(), ScanError> {
        let page = self.page;
        let mut walk = self.walk(page, page);
        let done = self.all_values(&mut walk);
        let high = walk.high;
        let done = self.utf8(page, 0, high, done);
        done.map_err(|fault| at_item(fault, self.passed + self.items_before(fault.1)))
    }

    fn all_values(&mut self, walk: &mut Walk<'_>) -> Result<(), Fault> {
        let page = self.page;
        let mut at = blanks(page, 0);
        while at < page.len() {
            let end = self.item(walk, at)?;
            let word = |at: usize| page.get(at).is_some_and(u8::is_ascii_alphanumeric);
            let minus = page.get(end) == Some(&b'-');
            if word(end - 1) && (word(end) || minus) {
                return Err(unexpected(page, end));
            }
            self.part();
            at = blanks(page, end);
        }
        Ok(())
    }

    fn lines(&mut self) -> Result<(), ScanError> {
        let mut start = 0;
        while start < self.page.len() {
            let end = self.plan.kernel.line(self.page, start);
            let first = blanks(self.page.get(..end).unwrap_or(&[]), start);
            if first < end {
                let line = self.page.get(first..end).unwrap_or(&[]);
                let blank = |b: &u8| matches!(b, b' ' | b'\t' | b'\r');
                let kept = line.iter().rposition(|b| !blank(b)).unwrap_or(0);
                let end = first + kept + 1;
                let readable = self.page.get(..end + READ_AFTER).unwrap_or(self.page);
                self.framed(first, end, readable)?;
                self.part();
            }
            start = end + 1;
        }
        Ok(())
    }

    fn frames(&mut self, frames: &[Span]) -> Result<(), ScanError> {
        for frame in frames {
            if frame.end() > self.page.len() {
                return Err(too_large(
                    frame.offset as usize,
                    self.passed + self.items.len(),
                ));
            }
            let readable = self.page.get(..frame.end()).unwrap_or(&[]);
            self.framed(frame.offset as usize, frame.end(), readable)?;
            self.part();
        }
        Ok(())
    }

    /// Scans the item `page[start..end]`. `readable` is `page[..end]`, possibly with some of the
    /// bytes after it.
    fn framed(&mut self, start: usize, end: usize, readable: &'a [u8]) -> Result<(), ScanError> {
        let number = self.passed + self.items.len() + self.items.skipped;
        if (end - start) as u64 > self.plan.limits.item_bytes_max {
            return Err(too_large(start, number));
        }
        let span = Span::new(start, end);
        if self.plan.level == Level::None {
            self.items.spans.push(span);
            return Ok(());
        }
        let Some(frame) = self.page.get(..end) else {
            return Err(too_large(start, number));
        };
        let (items, values) = (self.items.spans.len(), self.items.values.len());
        let mut walk = self.walk(frame, readable);
        let at = blanks(frame, start);
        let mut done = self.item(&mut walk, at).and_then(|end| {
            let end = blanks(frame, end);
            if end < frame.len() {
                return Err((ScanErrorKind::TrailingData, end));
            }
            Ok(())
        });
        if at == end {
            done = Err((ScanErrorKind::NotJson, at));
        }
        let Err(fault) = self.utf8(frame, start, walk.high, done) else {
            // The spans of frames stay unchanged.
            if let Some(last) = self.items.spans.last_mut() {
                *last = span;
            }
            return Ok(());
        };
        self.items.spans.truncate(items);
        self.items.values.truncate(values);
        match self.plan.bad_item {
            BadItem::Error => return Err(at_item(fault, number)),
            BadItem::Skip => self.items.skipped += 1,
            BadItem::Undefined => {
                self.items.spans.push(span);
                let width = values + self.items.width;
                self.items.values.resize(width, Value::default());
            }
        }
        Ok(())
    }
}

//! Walks over one item along the requested paths.
//!
//! An object or array on a path is read member by member; every other value is skipped (structural)
//! or checked (strict). When all requested values of an object were found, the rest of the object
//! is skipped too.
//!
//! Invariants: the recursion is as deep as the longest path; equal bytes give equal results with
//! every kernel; nothing is allocated.

use std::cmp::Ordering;

use crate::error::ScanErrorKind;
use crate::items::{Span, Tag, Value};
use crate::kernel::scalar::{Fault, pass_or_fault};
use crate::kernel::{Kernel, Open, SkippedString};
use crate::path_set::{Node, PathSet};
use crate::strict;
use crate::text::Text;
use crate::token::{self, blanks, literal, number, unexpected};

/// The constants of a walk, and the state that it collects.
pub(crate) struct Walk<'a> {
    pub(crate) bytes: &'a [u8],
    /// `bytes`, and the bytes of the page after them that a kernel may read. With them, a kernel
    /// reads the end of `bytes` as a whole block.
    pub(crate) readable: &'a [u8],
    pub(crate) paths: &'a PathSet,
    pub(crate) kernel: &'static Kernel,
    pub(crate) strict: bool,
    /// Number of values that are still missing, for a walk that ends with the last requested value.
    /// `None` for a walk to the end of the item.
    pub(crate) wanted: Option<usize>,
    pub(crate) depth_max: u32,
    /// Whether bytes that are not ASCII may have been read.
    pub(crate) high: bool,
}

/// Kind and end of a value that was walked over.
pub(crate) type WalkResult = (Tag, bool, usize);

impl Walk<'_> {
    /// Walks over the value at `at`, which is inside of `depth` open brackets and at `node` of the
    /// paths. Writes the found values to `out`, one entry for each path.
    pub(crate) fn value(
        &mut self,
        at: usize,
        depth: u32,
        node: usize,
        out: &mut [Value],
    ) -> Result<usize, Fault> {
        let paths = self.paths;
        let Some(node) = paths.nodes.get(node) else {
            return self.skip_value(at, depth).map(|walked| walked.2);
        };
        let (tag, escaped, end) = match self.bytes.get(at) {
            Some(b'{') if !node.names.is_empty() => {
                (Tag::Object, false, self.object(at, depth, node, out)?)
            }
            Some(b'[') if !(node.front.is_empty() && node.back.is_empty()) => {
                (Tag::Array, false, self.array(at, depth, node, out)?)
            }
            _ => self.skip_value(at, depth)?,
        };
        if self.is_over() {
            // The walk ended inside of this value, whose rest is not needed.
            return Ok(end);
        }
        for output in &node.outputs {
            if let Some(value) = out.get_mut(usize::from(*output)) {
                *value = Value {
                    span: Span::new(at, end),
                    tag,
                    escaped,
                };
            }
        }
        self.wanted = self.wanted.map(|left| left - node.outputs.len());
        if self.is_over() {
            // The walk ends here, so no caller reads the next byte.
            self.check_end(end, depth)?;
        }
        Ok(end)
    }

    /// Checks the first byte after a value that ends at `at`, inside of `depth` open brackets. A
    /// number or literal ends at any byte, for example in `1_000`.
    fn check_end(&self, at: usize, depth: u32) -> Result<(), Fault> {
        let at = blanks(self.bytes, at);
        match self.bytes.get(at) {
            Some(b',' | b'}' | b']') if depth > 0 => Ok(()),
            None if depth == 0 => Ok(()),
            _ => Err(unexpected(self.bytes, at)),
        }
    }

    /// Whether all requested values were found, and the rest of the item is not needed.
    fn is_over(&self) -> bool {
        self.wanted == Some(0)
    }

    /// Walks over a value that no path enters. Scalars are checked; containers are checked only at
    /// `strict`.
    pub(crate) fn skip_value(&mut self, at: usize, depth: u32) -> Result<WalkResult, Fault> {
        let bytes = self.bytes;
        Ok(match bytes.get(at) {
            Some(b'{') => (Tag::Object, false, self.container(at, depth, true)?),
            Some(b'[') => (Tag::Array, false, self.container(at, depth, false)?),
            Some(b'"') => {
                let passed = self.string(at)?;
                (Tag::String, passed.escaped, passed.close + 1)
            }
            Some(b'-' | b'0'..=b'9') => (Tag::Number, false, number(bytes, at)?),
            Some(b't') => (Tag::True, false, literal(bytes, at, b"true")?),
            Some(b'f') => (Tag::False, false, literal(bytes, at, b"false")?),
            Some(b'n') => (Tag::Null, false, literal(bytes, at, b"null")?),
            _ => return Err(unexpected(bytes, at)),
        })
    }

    fn container(&mut self, at: usize, depth: u32, curly: bool) -> Result<usize, Fault> {
        let max = self.depth_max.saturating_sub(depth);
        if max == 0 {
            return Err((ScanErrorKind::TooDeep, at));
        }
        if self.strict {
            let walked = strict::value(self.kernel, self.bytes, at, max)?;
            self.high |= walked.high;
            return Ok(walked.end);
        }
        self.pass(at + 1, curly, max)
    }

    /// Skips from inside of a bracket to after the bracket that closes it.
    fn pass(&mut self, at: usize, curly: bool, max: u32) -> Result<usize, Fault> {
        let open = Open {
            total: 1,
            curly: u32::from(curly),
            max,
        };
        let passed = match self.kernel.pass(self.readable, at, open) {
            Some(passed) if passed.end <= self.bytes.len() => passed,
            _ => pass_or_fault(self.bytes, at, open)?,
        };
        self.high |= passed.high;
        Ok(passed.end)
    }

    /// Reads a string whose opening quote is at `at`, and checks its escapes.
    pub(crate) fn string(&mut self, at: usize) -> Result<SkippedString, Fault> {
        let passed = match token::short_string(self.readable, at + 1) {
            Some(passed) if passed.close < self.bytes.len() => passed,
            _ => token::long_string(self.kernel, self.bytes, at)?,
        };
        self.high |= passed.high;
        Ok(passed)
    }

    fn object(
        &mut self,
        at: usize,
        depth: u32,
        node: &Node,
        out: &mut [Value],
    ) -> Result<usize, Fault> {
        if depth >= self.depth_max {
            return Err((ScanErrorKind::TooDeep, at));
        }
        let bytes = self.bytes;
        let mut at = blanks(bytes, at + 1);
        if bytes.get(at) == Some(&b'}') {
            return Ok(at + 1);
        }
        let mut missing = u64::MAX >> (64 - node.names.len().clamp(1, 64));
        loop {
            if bytes.get(at) != Some(&b'"') {
                return Err(unexpected(bytes, at));
            }
            // At `strict`, a repeated name is a fault.
            let searched = if self.strict { u64::MAX } else { missing };
            let (wanted, after) = self.name(at, node, searched)?;
            let name_at = at;
            at = blanks(bytes, after);
            if bytes.get(at) != Some(&b':') {
                return Err(unexpected(bytes, at));
            }
            at = blanks(bytes, at + 1);
            let index = wanted.filter(|index| missing >> index & 1 == 1);
            at = if let Some(index) = index {
                missing &= !(1 << index);
                let child = node.names.get(index).map_or(usize::MAX, |name| name.node);
                let end = self.value(at, depth + 1, child, out)?;
                if self.is_over() {
                    return Ok(end);
                }
                end
            } else {
                if self.strict && wanted.is_some() {
                    return Err((ScanErrorKind::DuplicateName, name_at));
                }
                self.skip_value(at, depth + 1)?.2
            };
            if missing == 0 && !self.strict {
                return self.skip_rest(at, true, depth, node);
            }
            at = blanks(bytes, at);
            match bytes.get(at) {
                Some(b',') => at = blanks(bytes, at + 1),
                Some(b'}') => return Ok(at + 1),
                Some(b']') => return Err((ScanErrorKind::Unbalanced, at)),
                _ => return Err(unexpected(bytes, at)),
            }
        }
    }

    /// The end of a container in which all requested values were visited, the last of which ends at
    /// `at`. If only the values in the item are requested, the end of the item is not needed.
    fn skip_rest(
        &mut self,
        at: usize,
        curly: bool,
        depth: u32,
        node: &Node,
    ) -> Result<usize, Fault> {
        let at = blanks(self.bytes, at);
        let close = if curly { b'}' } else { b']' };
        let next = self.bytes.get(at);
        match next {
            Some(b',') => {}
            Some(next) if *next == close => {}
            Some(b'}' | b']') => return Err((ScanErrorKind::Unbalanced, at)),
            _ => return Err(unexpected(self.bytes, at)),
        }
        if self.wanted.is_some() && depth == 0 && node.outputs.is_empty() {
            self.wanted = Some(0);
            return Ok(at);
        }
        if next == Some(&close) {
            return Ok(at + 1);
        }
        self.pass(at, curly, self.depth_max - depth)
    }

    /// Reads the member name at `at`. Returns its index among the requested names, and its end.
    /// The index may be `None` for a name whose bit in `searched` is 0.
    fn name(
        &mut self,
        at: usize,
        node: &Node,
        searched: u64,
    ) -> Result<(Option<usize>, usize), Fault> {
        let rest = self.bytes.get(at..).unwrap_or(&[]);
        for (index, name) in node.names.iter().enumerate() {
            if searched >> index & 1 == 1
                && let Some(quoted) = &name.quoted
                && quoted.starts(rest)
            {
                return Ok((Some(index), at + quoted.bytes.len()));
            }
        }
        let passed = self.string(at)?;
        let end = passed.close + 1;
        // Without a backslash, the comparison above would have found it, unless the name requires
        // one or was not searched.
        if !passed.escaped {
            return Ok((None, end));
        }
        let text = Text::new(self.bytes.get(at..end).unwrap_or(&[]));
        let order = |place: &u8| {
            let name = node.names.get(usize::from(*place));
            name.map_or(Ordering::Less, |name| Text::plain(&name.text).cmp(&text))
        };
        let place = node.sorted.binary_search_by(order).ok();
        let found = place.and_then(|place| node.sorted.get(place));
        Ok((found.map(|place| usize::from(*place)), end))
    }

    /// Whether the member name at `at` is `name`, and the end of that name.
    pub(crate) fn is_name(&mut self, at: usize, name: &str) -> Result<(bool, usize), Fault> {
        let end = self.string(at)?.close + 1;
        let text = Text::new(self.bytes.get(at..end).unwrap_or(&[]));
        Ok((text.is(name), end))
    }

    /// Checks a value entirely, at every level; returns its end.
    pub(crate) fn checked(&mut self, at: usize, depth: u32) -> Result<usize, Fault> {
        let max = self.depth_max.saturating_sub(depth);
        let walked = strict::value(self.kernel, self.bytes, at, max)?;
        self.high |= walked.high;
        Ok(walked.end)
    }

    fn array(
        &mut self,
        at: usize,
        depth: u32,
        node: &Node,
        out: &mut [Value],
    ) -> Result<usize, Fault> {
        if depth >= self.depth_max {
            return Err((ScanErrorKind::TooDeep, at));
        }
        let start = blanks(self.bytes, at + 1);
        if self.bytes.get(start) == Some(&b']') {
            return Ok(start + 1);
        }
        let mut length = None;
        if !node.back.is_empty() {
            // The first walk counts the elements, to resolve negative indexes.
            let counted = self.elements(start, |walk, at, _| {
                walk.skip_value(at, depth + 1).map(|walked| walked.2)
            });
            length = Some(counted?.0);
        }
        let last = node.front.iter().map(|(index, _)| *index).max();
        let from_back = |index: u64| {
            let left = length.map(|length: u64| length - index)?;
            let back = node.back.iter().find(|back| back.0 == left);
            back.map(|back| back.1)
        };
        let mut at = start;
        let mut index = 0;
        loop {
            let front = node.front.iter().find(|front| front.0 == index);
            let children = [front.map(|front| front.1), from_back(index)];
            let mut end = None;
            for child in children.into_iter().flatten() {
                end = Some(self.value(at, depth + 1, child, out)?);
            }
            at = match end {
                Some(end) => end,
                None => self.skip_value(at, depth + 1)?.2,
            };
            if self.is_over() {
                return Ok(at);
            }
            if length.is_none() && last == Some(index) && !self.strict {
                return self.skip_rest(at, false, depth, node);
            }
            match self.after_element(at)? {
                (end, true) => return Ok(end),
                (next, false) => at = next,
            }
            index += 1;
        }
    }

    /// Visits the elements of an array from the first of them, at `at`. Returns their number, and
    /// the offset of the first byte after the array.
    pub(crate) fn elements(
        &mut self,
        at: usize,
        mut each: impl FnMut(&mut Self, usize, u64) -> Result<usize, Fault>,
    ) -> Result<(u64, usize), Fault> {
        let (mut at, mut count) = (at, 0);
        loop {
            let end = each(self, at, count)?;
            count += 1;
            match self.after_element(end)? {
                (end, true) => return Ok((count, end)),
                (next, false) => at = next,
            }
        }
    }

    /// After an element: the start of the next element, or the end of the array and `true`.
    pub(crate) fn after_element(&self, at: usize) -> Result<(usize, bool), Fault> {
        let at = blanks(self.bytes, at);
        match self.bytes.get(at) {
            Some(b',') => Ok((blanks(self.bytes, at + 1), false)),
            Some(b']') => Ok((at + 1, true)),
            Some(b'}') => Err((ScanErrorKind::Unbalanced, at)),
            _ => Err(unexpected(self.bytes, at)),
        }
    }
}

//! Expression and item to values, or to true and false.
//!
//! A node is the offset at which a value begins. The nodes below one are met by reading its bytes
//! from front to back, which is the order that RFC 9535 asks for and needs no stack.
//!
//! Invariant: recursion is bounded by the expression: one level for each segment and each nesting.

use super::Bindings;
use super::ast::{Inner, Logical, Operand, Pattern, Root, Segment, Selector};
use super::compare::{Known, compare};
use super::regex::Regex;
use crate::children::{Child, Children};
use crate::items::{Span, Tag, Value};
use crate::kernel::Kernel;
use crate::path_set::PathSet;
use crate::plan::Limits;
use crate::text::Text;
use crate::walk::Walk;
use std::borrow::Cow;
use std::ops::ControlFlow;

type Flow = ControlFlow<()>;
type Visit<'v> = dyn FnMut(usize) -> Flow + 'v;

/// One item, and what is known of it.
pub(super) struct Evaluation<'a> {
    bytes: &'a [u8],
    /// Where the item begins.
    item: usize,
    /// Values of the paths of the expression.
    found: &'a [Value],
    bindings: &'a dyn Bindings,
    no_paths: PathSet,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(
        bytes: &'a [u8],
        item: usize,
        found: &'a [Value],
        bindings: &'a dyn Bindings,
    ) -> Self {
        Self {
            bytes,
            item,
            found,
            bindings,
            no_paths: PathSet::none(),
        }
    }

    /// Whether `expression` is true of the item.
    pub(super) fn test(&self, expression: &Logical) -> bool {
        self.logical(expression, self.item)
    }

    /// Visits what a query from the item yields.
    pub(super) fn query(&self, segments: &[Segment], visit: &mut dyn FnMut(Value) -> Flow) -> Flow {
        self.segments(segments, self.item, &mut |at| match self.value(at) {
            Some(value) => visit(value),
            None => Flow::Continue(()),
        })
    }

    fn walk(&self) -> Walk<'_> {
        Walk {
            bytes: self.bytes,
            paths: &self.no_paths,
            kernel: Kernel::chosen(),
            strict: false,
            depth_max: Limits::default().depth_max,
            high: false,
        }
    }

    /// The value that begins at `at`; `None` if it is not JSON.
    fn value(&self, at: usize) -> Option<Value> {
        let (tag, escaped, end) = self.walk().other(at, 0).ok()?;
        Some(Value {
            span: Span::new(at, end),
            tag,
            escaped,
        })
    }

    /// Visits the nodes that `segments` yield from the node at `at`.
    fn segments(&self, segments: &[Segment], at: usize, visit: &mut Visit<'_>) -> Flow {
        let Some((first, rest)) = segments.split_first() else {
            return visit(at);
        };
        let mut each = |node: usize| {
            first.selectors.iter().try_for_each(|selector| {
                self.select(selector, node, &mut |child| {
                    self.segments(rest, child, visit)
                })
            })
        };
        if first.descendant {
            self.below(at, &mut each)
        } else {
            each(at)
        }
    }

    /// Visits the node at `at` and all containers below it, each before what is in it.
    fn below(&self, at: usize, visit: &mut Visit<'_>) -> Flow {
        let Some(whole) = self.value(at) else {
            return Flow::Continue(());
        };
        let (mut at, end) = (at, whole.span.end());
        let mut walk = self.walk();
        while at < end {
            match self.bytes.get(at) {
                Some(b'{' | b'[') => {
                    visit(at)?;
                    at += 1;
                }
                Some(b'"') => match walk.string(at) {
                    Ok(passed) => at = passed.close + 1,
                    Err(_) => break,
                },
                _ => at += 1,
            }
        }
        Flow::Continue(())
    }

    /// Visits the children of the node at `at` that `selector` selects.
    fn select(&self, selector: &Selector, at: usize, visit: &mut Visit<'_>) -> Flow {
        let object = self.bytes.get(at) == Some(&b'{');
        if !object && self.bytes.get(at) != Some(&b'[') {
            return Flow::Continue(());
        }
        let mut walk = self.walk();
        let mut children = Children::new(&mut walk, at).map_while(Result::ok);
        let start = |child: &Child| child.value.span.offset as usize;
        match selector {
            Selector::Wildcard => children.try_for_each(|child| visit(start(&child))),
            Selector::Filter(expression) => children.try_for_each(|child| {
                let at = start(&child);
                if self.logical(expression, at) {
                    return visit(at);
                }
                Flow::Continue(())
            }),
            Selector::Name(name) if object => {
                let found = children.find(|child| {
                    let span = child.name.unwrap_or_default();
                    Text::new(span.of(self.bytes)).is(name)
                });
                found.map_or(Flow::Continue(()), |child| visit(start(&child)))
            }
            Selector::Index(index) if !object => {
                let index = match usize::try_from(*index) {
                    Ok(index) => Some(index),
                    Err(_) => self.length(at).checked_sub(magnitude(*index)),
                };
                let found = index.and_then(|index| children.nth(index));
                found.map_or(Flow::Continue(()), |child| visit(start(&child)))
            }
            Selector::Slice {
                start: from,
                end,
                step,
            } if !object => {
                let starts: Vec<usize> = children.map(|child| start(&child)).collect();
                slice(&starts, *from, *end, *step, visit)
            }
            Selector::Name(_) | Selector::Index(_) | Selector::Slice { .. } => Flow::Continue(()),
        }
    }

    /// Number of children of the node at `at`.
    fn length(&self, at: usize) -> usize {
        Children::new(&mut self.walk(), at)
            .map_while(Result::ok)
            .count()
    }

    fn logical(&self, expression: &Logical, current: usize) -> bool {
        match expression {
            Logical::Any(parts) => parts.iter().any(|part| self.logical(part, current)),
            Logical::All(parts) => parts.iter().all(|part| self.logical(part, current)),
            Logical::Not(part) => !self.logical(part, current),
            Logical::Compare(comparison, a, b) => {
                let (a, b) = (self.operand(a, current), self.operand(b, current));
                compare(*comparison, &a, &b)
            }
            Logical::Exists(inner) => self.nodes(inner, current, 1) > 0,
            Logical::Undefined(operand) => {
                matches!(self.operand(operand, current), Known::Nothing)
            }
            Logical::Starts(text, start) => {
                let (text, start) = (self.operand(text, current), self.operand(start, current));
                match (text.text(), start.text()) {
                    (Some(text), Some(start)) => text.starts_with(start),
                    _ => false,
                }
            }
            Logical::Regex {
                text,
                pattern,
                whole,
            } => {
                let text = self.operand(text, current);
                let Some(text) = text.text() else {
                    return false;
                };
                let matches = |regex: &Regex| regex.matches(text.chars(), *whole);
                match pattern {
                    Pattern::Fixed(regex) => regex.as_ref().is_some_and(matches),
                    Pattern::Computed(operand) => {
                        let pattern = self.operand(operand, current);
                        let Some(pattern) = pattern.text() else {
                            return false;
                        };
                        let mut decoded = Vec::new();
                        pattern.decode_into(&mut decoded);
                        let decoded = String::from_utf8(decoded).ok();
                        let regex = decoded.and_then(|pattern| Regex::parse(&pattern));
                        regex.as_ref().is_some_and(matches)
                    }
                }
            }
        }
    }

    /// How many nodes a query yields, counted up to `most`.
    fn nodes(&self, inner: &Inner, current: usize, most: usize) -> usize {
        if let Some(slot) = inner.slot {
            let found = self.found.get(slot);
            return usize::from(found.is_some_and(|value| value.tag != Tag::Undefined));
        }
        let mut count = 0;
        let _ = self.inner(inner, current, &mut |_| {
            count += 1;
            if count < most {
                return Flow::Continue(());
            }
            Flow::Break(())
        });
        count
    }

    fn inner(&self, inner: &Inner, current: usize, visit: &mut Visit<'_>) -> Flow {
        let start = match inner.root {
            Root::Item => self.item,
            Root::Current => current,
        };
        self.segments(&inner.segments, start, visit)
    }

    /// The one node that a query yields; nothing if there is none or another one.
    fn only(&self, inner: &Inner, current: usize) -> Known<'a> {
        if let Some(slot) = inner.slot {
            let found = self.found.get(slot).copied().unwrap_or_default();
            return match found.tag {
                Tag::Undefined => Known::Nothing,
                _ => Known::Json(Cow::Borrowed(found.span.of(self.bytes))),
            };
        }
        let mut node = None;
        let flow = self.inner(inner, current, &mut |at| {
            if node.is_some() {
                return Flow::Break(());
            }
            node = Some(at);
            Flow::Continue(())
        });
        let node = node.filter(|_| flow.is_continue());
        match node.and_then(|at| self.value(at)) {
            Some(value) => Known::Json(Cow::Borrowed(value.span.of(self.bytes))),
            None => Known::Nothing,
        }
    }

    fn operand<'k>(&'k self, operand: &'k Operand, current: usize) -> Known<'k> {
        let bound = |value: Option<Cow<'k, [u8]>>| value.map_or(Known::Nothing, Known::Json);
        match operand {
            Operand::Literal(json) => Known::Json(Cow::Borrowed(json)),
            Operand::Text(text) => Known::Plain(text),
            Operand::Singular(inner) | Operand::Value(inner) => self.only(inner, current),
            Operand::Count(inner) => {
                Known::Count(self.nodes(inner, current, usize::MAX).to_string())
            }
            Operand::Param(name) => bound(self.bindings.param(name)),
            Operand::Meta(name) => bound(self.bindings.meta(name)),
            Operand::Length(of) => length(&self.operand(of, current)),
            Operand::Type(of) => Known::Plain(match self.operand(of, current).tag() {
                Tag::Undefined => "undefined",
                Tag::Null => "null",
                Tag::False | Tag::True => "boolean",
                Tag::Number => "number",
                Tag::String => "string",
                Tag::Array => "array",
                Tag::Object => "object",
            }),
        }
    }
}

/// Characters of a string, elements of an array, members of an object.
fn length(of: &Known<'_>) -> Known<'static> {
    let count = if let Some(text) = of.text() {
        text.chars().count()
    } else if matches!(of.tag(), Tag::Array | Tag::Object) {
        let evaluation = Evaluation::new(of.json(), 0, &[], &());
        evaluation.length(0)
    } else {
        return Known::Nothing;
    };
    Known::Count(count.to_string())
}

fn magnitude(index: i64) -> usize {
    usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX)
}

/// RFC 9535, 2.3.4.2.2.
fn slice(
    starts: &[usize],
    from: Option<i64>,
    end: Option<i64>,
    step: i64,
    visit: &mut Visit<'_>,
) -> Flow {
    let length = i64::try_from(starts.len()).unwrap_or(i64::MAX);
    let place = |index: i64| if index < 0 { length + index } else { index };
    let mut node = |at: i64| {
        let start = usize::try_from(at).ok().and_then(|at| starts.get(at));
        start.map_or(Flow::Continue(()), |start| visit(*start))
    };
    if step > 0 {
        let (mut at, upto) = (
            place(from.unwrap_or(0)).clamp(0, length),
            place(end.unwrap_or(length)).clamp(0, length),
        );
        while at < upto {
            node(at)?;
            at = at.saturating_add(step);
        }
    } else if step < 0 {
        let (mut at, downto) = (
            place(from.unwrap_or(length - 1)).clamp(-1, length - 1),
            end.map_or(-1, |end| place(end).clamp(-1, length - 1)),
        );
        while at > downto {
            node(at)?;
            at = at.saturating_add(step);
        }
    }
    Flow::Continue(())
}

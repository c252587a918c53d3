//! Evaluates an expression on an item, to values or to true or false.
//!
//! A node is the offset at which a value begins. The descendants of a node are found by reading its
//! bytes from start to end. RFC 9535 requires this order, and it needs no stack.
//!
//! Invariants: recursion is bounded by the expression: one level for each segment and each nesting.
//! Work is bounded by the budget: each byte that is read costs a step, and each value that is
//! examined costs `STEPS_PER_VALUE`. When the budget is used up, no further node is visited. The
//! number of steps depends only on expression and item, not on the kernel.

use super::ast::{Inner, Logical, Operand, Pattern, Root, Segment, Selector};
use super::compare::{ComparedValue, compare};
use super::regex::Regex;
use super::{Bindings, OutOfSteps};
use crate::children::{Child, Children};
use crate::items::{Span, Tag, Value};
use crate::kernel::Kernel;
use crate::kernel::scalar::Fault;
use crate::path_set::PathSet;
use crate::plan::Limits;
use crate::text::Text;
use crate::walk::Walk;
use std::borrow::Cow;
use std::cell::Cell;
use std::ops::ControlFlow;

type Flow = ControlFlow<()>;
type Visit<'v> = dyn FnMut(usize) -> Flow + 'v;

/// Steps for examining a value, in addition to those for its bytes.
const STEPS_PER_VALUE: u64 = 8;

/// Steps for each byte of a pattern from the data.
const COMPILE: usize = 8;

/// Steps between two checks whether the caller still needs the result.
const STEPS_PER_CHECK: u64 = 1 << 24;

/// The evaluation of an expression on one item.
pub(super) struct Evaluation<'a> {
    bytes: &'a [u8],
    /// Offset of the item.
    item: usize,
    /// Values of the paths of the expression.
    found: &'a [Value],
    bindings: &'a dyn Bindings,
    no_paths: PathSet,
    /// Steps until the next check of the caller.
    left: Cell<u64>,
    /// Steps of the budget after `left`.
    later: Cell<u64>,
    /// Whether the budget is used up, or the caller has cancelled.
    stopped: Cell<bool>,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(
        bytes: &'a [u8],
        item: usize,
        found: &'a [Value],
        bindings: &'a dyn Bindings,
        steps: u64,
    ) -> Self {
        let left = steps.min(STEPS_PER_CHECK);
        Self {
            bytes,
            item,
            found,
            bindings,
            no_paths: PathSet::none(),
            left: Cell::new(left),
            later: Cell::new(steps - left),
            stopped: Cell::new(false),
        }
    }

    /// Whether `expression` is true for the item.
    pub(super) fn test(&self, expression: &Logical) -> Result<bool, OutOfSteps> {
        let found = self.logical(expression, self.item);
        self.end().map(|()| found)
    }

    /// Visits the values of a query from the item.
    pub(super) fn query(
        &self,
        segments: &[Segment],
        visit: &mut dyn FnMut(Value) -> Flow,
    ) -> Result<(), OutOfSteps> {
        let _ = self.segments(segments, self.item, &mut |at| match self.value(at) {
            Some(value) => visit(value),
            None => Flow::Continue(()),
        });
        self.end()
    }

    fn end(&self) -> Result<(), OutOfSteps> {
        if self.stopped.get() {
            return Err(OutOfSteps);
        }
        Ok(())
    }

    /// Charges for examining a value and for `bytes` bytes. Breaks if the budget does not suffice,
    /// and on every later call.
    #[inline]
    fn spend(&self, bytes: usize) -> Flow {
        let steps = STEPS_PER_VALUE + bytes as u64;
        match self.left.get().checked_sub(steps) {
            Some(left) => {
                self.left.set(left);
                Flow::Continue(())
            }
            None => self.spend_later(steps),
        }
    }

    #[cold]
    fn spend_later(&self, steps: u64) -> Flow {
        let all = self.left.get() + self.later.get();
        let rest = all.checked_sub(steps).filter(|_| self.bindings.is_needed());
        let left = rest.unwrap_or(0).min(STEPS_PER_CHECK);
        self.left.set(left);
        self.later.set(rest.unwrap_or(0) - left);
        if rest.is_some() {
            return Flow::Continue(());
        }
        self.stopped.set(true);
        Flow::Break(())
    }

    /// The end of a value that was read from `at`; the end of the item if the value is not JSON.
    fn passed<T>(
        &self,
        at: usize,
        walked: Result<T, Fault>,
        end: impl Fn(&T) -> usize,
    ) -> Option<T> {
        let upto = walked.as_ref().map_or(self.bytes.len(), end);
        let paid = self.spend(upto.saturating_sub(at));
        walked.ok().filter(|_| paid.is_continue())
    }

    fn walk(&self) -> Walk<'_> {
        Walk {
            bytes: self.bytes,
            readable: self.bytes,
            paths: &self.no_paths,
            kernel: Kernel::chosen(),
            strict: false,
            wanted: None,
            depth_max: Limits::default().depth_max,
            high: false,
        }
    }

    /// The value that begins at `at`; `None` if it is not JSON.
    fn value(&self, at: usize) -> Option<Value> {
        let (tag, escaped, end) =
            self.passed(at, self.walk().skip_value(at, 0), |walked| walked.2)?;
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

    /// Visits the node at `at` and all containers below it, each before its content.
    fn below(&self, at: usize, visit: &mut Visit<'_>) -> Flow {
        let Some(whole) = self.value(at) else {
            return Flow::Continue(());
        };
        self.spend(whole.span.len as usize)?;
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
        let mut children = self.children(&mut walk, at);
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

    /// The children of the node at `at`, each charged to the budget.
    fn children<'w>(
        &'w self,
        walk: &'w mut Walk<'w>,
        at: usize,
    ) -> impl Iterator<Item = Child> + 'w {
        let mut children = Children::new(walk, at);
        let mut from = at;
        // A node without children is charged too.
        let mut paid = self.spend(children.passed().saturating_sub(at));
        std::iter::from_fn(move || {
            if paid.is_break() {
                return None;
            }
            let child = children.next()?;
            let end = children.passed();
            let child = self.passed(from, child, |_| end);
            from = end;
            paid = if child.is_some() {
                paid
            } else {
                Flow::Break(())
            };
            child
        })
    }

    /// Number of children of the node at `at`.
    fn length(&self, at: usize) -> usize {
        self.children(&mut self.walk(), at).count()
    }

    fn logical(&self, expression: &Logical, current: usize) -> bool {
        match expression {
            Logical::Any(parts) => parts.iter().any(|part| self.logical(part, current)),
            Logical::All(parts) => parts.iter().all(|part| self.logical(part, current)),
            Logical::Not(part) => !self.logical(part, current),
            Logical::Compare(comparison, a, b) => {
                let (a, b) = (self.operand(a, current), self.operand(b, current));
                let paid = self.spend(a.work_with(&b));
                paid.is_continue()
                    && compare(*comparison, &a, &b, &mut |steps| self.spend(steps))
                    && !self.stopped.get()
            }
            Logical::Exists(inner) => {
                self.spend(0).is_continue() && self.nodes(inner, current, 1) > 0
            }
            Logical::Undefined(operand) => {
                let found = self.operand(operand, current);
                self.spend(0).is_continue() && matches!(found, ComparedValue::Nothing)
            }
            Logical::Starts(text, start) => {
                let (text, start) = (self.operand(text, current), self.operand(start, current));
                if self
                    .spend(text.work().saturating_add(start.work()))
                    .is_break()
                {
                    return false;
                }
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
                if self.spend(text.work()).is_break() {
                    return false;
                }
                let Some(text) = text.text() else {
                    return false;
                };
                let matches = |regex: &Regex| {
                    let spend = &mut |steps| self.spend(steps);
                    regex.matches(text.chars(), *whole, spend)
                };
                match pattern {
                    Pattern::Fixed(regex) => regex.as_ref().is_some_and(matches),
                    Pattern::Computed(operand) => {
                        let pattern = self.operand(operand, current);
                        // Charges for reading the pattern.
                        if self.spend(pattern.bytes() * COMPILE).is_break() {
                            return false;
                        }
                        let Some(pattern) = pattern.text() else {
                            return false;
                        };
                        let mut decoded = Vec::new();
                        pattern.decode_into(&mut decoded);
                        let decoded = String::from_utf8(decoded).ok();
                        let mut work = 0;
                        let regex =
                            decoded.and_then(|pattern| Regex::parse_counted(&pattern, &mut work));
                        if self.spend(work).is_break() {
                            return false;
                        }
                        regex.as_ref().is_some_and(matches)
                    }
                }
            }
        }
    }

    /// The number of nodes of a query, counted up to `most`.
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

    /// The value of the only node of a query; nothing if the query yields no node or several.
    fn only(&self, inner: &Inner, current: usize) -> ComparedValue<'a> {
        if let Some(slot) = inner.slot {
            let found = self.found.get(slot).copied().unwrap_or_default();
            return match found.tag {
                Tag::Undefined => ComparedValue::Nothing,
                _ => ComparedValue::Json(Cow::Borrowed(found.span.of(self.bytes))),
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
            Some(value) => ComparedValue::Json(Cow::Borrowed(value.span.of(self.bytes))),
            None => ComparedValue::Nothing,
        }
    }

    fn operand<'k>(&'k self, operand: &'k Operand, current: usize) -> ComparedValue<'k> {
        let bound = |value: Option<Cow<'k, [u8]>>| {
            value.map_or(ComparedValue::Nothing, ComparedValue::Json)
        };
        match operand {
            Operand::Literal(json) => ComparedValue::Json(Cow::Borrowed(json)),
            Operand::Text(text) => ComparedValue::Plain(text),
            Operand::Singular(inner) | Operand::Value(inner) => self.only(inner, current),
            Operand::Count(inner) => {
                ComparedValue::Count(self.nodes(inner, current, usize::MAX).to_string())
            }
            Operand::Param(name) => bound(self.bindings.param(name)),
            Operand::Meta(name) => {
                let value = self.bindings.meta(name);
                let paid = self.spend(value.as_ref().map_or(0, |value| value.len()));
                bound(value.filter(|_| paid.is_continue()))
            }
            Operand::Length(of) => self.length_of(&self.operand(of, current)),
            Operand::Type(of) => ComparedValue::Plain(match self.operand(of, current).tag() {
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

    /// Characters of a string, elements of an array, members of an object.
    fn length_of(&self, of: &ComparedValue<'_>) -> ComparedValue<'static> {
        let bytes = of.json().len();
        if self.spend(bytes).is_break() {
            return ComparedValue::Nothing;
        }
        let count = if let Some(text) = of.text() {
            text.chars().count()
        } else if matches!(of.tag(), Tag::Array | Tag::Object) {
            let evaluation = Evaluation::new(of.json(), 0, &[], &(), u64::MAX);
            evaluation.length(0)
        } else {
            return ComparedValue::Nothing;
        };
        ComparedValue::Count(count.to_string())
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::super::{Filter, OutOfSteps};
    use super::Evaluation;

    /// The pattern is compiled again for each evaluation.
    #[test]
    fn the_compilation_of_a_pattern_in_the_data_costs_steps() {
        let optional = "a?".repeat(31);
        for (pattern, least) in [("(a{1000}){5}", 32_768), (optional.as_str(), 5_000)] {
            let item = format!("{{\"text\":\"x\",\"pattern\":\"{pattern}\"}}");
            let filter = Filter::parse("match(@.text, @.pattern)").unwrap();
            let found = filter.paths.find(item.as_bytes());
            let evaluation = Evaluation::new(item.as_bytes(), 0, &found, &(), 1_000_000);
            assert_eq!(evaluation.test(&filter.expression), Ok(false));
            let steps = 1_000_000 - evaluation.left.get();
            assert!(steps >= least, "{pattern}: {steps} steps");
        }
    }

    /// Kernels decide independently, so their results must agree.
    #[test]
    fn the_number_of_steps_is_fixed() {
        let text = "x".repeat(300);
        let long = format!("{{\"a\":[\"{text}\",{{\"b\":[1,2,[],{{}}]}}],\"c\":[[\"{text}\"]]  }}");
        let broken = format!("{{\"a\":[\"{text}\",{{\"b\":[1,nul]}}],\"c\":[\"{text}\", x]}}");
        for (item, expression, steps) in [
            ("{}", "@.a == 1", 8),
            (&*long, "@.a[0] == @.c[0][0]", 384),
            (&long, "@..b[9]", 2_109),
            (&long, "count(@..*) == 3 && @..[?@ == $.c]", 3_062),
            (
                &long,
                "search(@.a[0], 'y|(xx)+z') || @[?length(@) == 7]",
                4_124,
            ),
            (&broken, "@..b[9]", 2_359),
            (&broken, "@..*..*", 2_610),
        ] {
            let filter = Filter::parse(expression).unwrap();
            let found = filter.paths.find(item.as_bytes());
            let run = |steps| {
                let item = item.as_bytes();
                let evaluation = Evaluation::new(item, 0, &found, &(), steps);
                let done = evaluation.test(&filter.expression);
                (done, evaluation.left.get())
            };
            let needed = 1_000_000 - run(1_000_000).1;
            assert_eq!(needed, steps, "{expression} of {item}");
            assert!(run(needed).0.is_ok());
            assert_eq!(run(needed - 1).0, Err(OutOfSteps));
        }
    }
}

//! The incremental packet parser.
//!
//! Invariants:
//! - The parser never copies, allocates, or reads outside of the buffer of a call.
//! - After `…Start`, `…Cont` and `…End` are joined, the events do not depend on how the input
//!   is split. Neither does the position of an error.
//! - The work is linear in the input, even if the input arrives byte by byte.
//! - A packet ends at the same byte in full mode and in routing-only mode.
//! - The parser never resynchronises after an error.
//!
//! [`Parser::step`] has the short path, for a line that is complete, short and regular. The exact
//! path in `parser/exact.rs` handles all other lines and all errors, and can resume within a line.
//! Both paths use the same scanners. Each line that the short path accepts gives the same event on
//! the exact path.

#![allow(
    clippy::inline_always,
    reason = "the hot loop is measured; see examples/bench.rs"
)]

use crate::error::ParseError;
use crate::event::{ParseStep, Variable};
use crate::limits::Limits;
use crate::operator::Operator;
use crate::scan::{BAR, LF, Mark, TAB, keyword_len, near_end, near_lf, near_number};

mod exact;

/// The kind of input of a [`Parser`], and how much of it the parser reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A stream of packets; all parts are reported.
    Full,
    /// A stream of packets; the contents are reported as raw bytes. For relays.
    RoutingOnly,
    /// One content of a known length, in the form that routing-only mode returns.
    Content {
        /// Length of the content in bytes, including the final LF.
        length: u64,
    },
}

/// No announced length. Each length is smaller, because other bytes follow in the content.
const NO_LENGTH: u64 = u64::MAX;

/// The position of the parser in the grammar. The first three states are at the start of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// At a line of the routing header.
    Routing,
    /// At the first line of a content, where a state operation is allowed.
    First,
    /// At a further line of a content.
    Entity,
    /// In the middle of a line that did not end in the last buffer.
    Line,
    /// Before the LF after a sized value.
    ValueLf,
    /// Inside a sized value.
    ValuePart,
    /// Inside sized data.
    BodyPart,
    /// Before the LF after sized data.
    BodyLf,
    /// Inside an unsized content in routing-only mode.
    Raw,
    /// Inside a sized content in routing-only mode.
    RawPart,
    /// After a sized content in routing-only mode, before the check of its last byte.
    RawLf,
    /// Before the end mark.
    End,
    /// After the content of content mode.
    Done,
    /// After an error.
    Failed,
}

/// Progress within a line whose end has not arrived.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// State at the start of the line.
    state: State,
    stage: exact::Stage,
    /// Bytes of the line that are already scanned.
    scanned: usize,
    /// Index of the end of the name.
    name_end: usize,
    /// The length read so far; `digits` counts its digits.
    number: u64,
    digits: u8,
}

impl Line {
    const fn new(state: State) -> Line {
        Line {
            state,
            stage: exact::Stage::Start,
            scanned: 0,
            name_end: 0,
            number: 0,
            digits: 0,
        }
    }
}

/// Incremental zero-copy parser for PSYC packets.
///
/// Call [`step`](Parser::step) with the bytes that are not consumed, until it returns
/// [`NeedMore`](ParseStep::NeedMore). Then remove the consumed bytes from the front of the buffer,
/// call [`release`](Parser::release), append input, and continue. After an error, every step
/// returns this error until [`reset`](Parser::reset).
///
/// ```
/// use weir_psyc::{Mode, ParseStep, Parser};
///
/// let mut parser = Parser::new(Mode::Full);
/// let buffer = b":_tag\t7\n\n_ping\n|\n";
/// let mut seen = Vec::new();
/// loop {
///     match parser.step(buffer) {
///         ParseStep::Routing(tag) => seen.push(tag.value),
///         ParseStep::Body { method, .. } => seen.push(method),
///         ParseStep::NeedMore(_) => break,
///         ParseStep::Complete => {}
///         other => panic!("{other:?}"),
///     }
/// }
/// assert_eq!(seen, [&b"7"[..], b"_ping"]);
/// assert_eq!(parser.consumed(), buffer.len());
/// ```
#[derive(Clone, Debug)]
pub struct Parser {
    /// Bytes of the caller's buffer that are consumed.
    pos: usize,
    state: State,
    /// Whether the length of the content was announced.
    sized: bool,
    /// How many more modifiers the current header may have.
    modifiers: u32,
    /// How many more bytes the routing header or the content may have, counted from the line start.
    left: u64,
    limits: Limits,
    mode: Mode,
    /// Stream offset of the first byte of the caller's buffer.
    base: u64,
    /// Announced content length of this packet.
    content_length: Option<u64>,
    /// Announced length of the value or data reported last; valid only in some states.
    /// [`NO_LENGTH`] before the first one, and at the end of a content without data.
    value_length: u64,
    /// Missing bytes of a value, data or content that is reported in parts.
    missing: u64,
    /// The part of a delimiter at the end of the scanned bytes of an unsized content.
    mark: Mark,
    line: Line,
    error: Option<ParseError>,
}

impl Parser {
    /// A parser with [`Limits::DEFAULT`].
    #[inline]
    pub fn new(mode: Mode) -> Parser {
        Parser::with_limits(mode, Limits::DEFAULT)
    }

    /// A parser with the given limits.
    #[inline]
    pub fn with_limits(mode: Mode, limits: Limits) -> Parser {
        let mut parser = Parser {
            pos: 0,
            state: State::Routing,
            sized: false,
            modifiers: limits.routing_modifiers,
            left: limits.routing_header,
            limits,
            mode,
            base: 0,
            content_length: None,
            value_length: NO_LENGTH,
            missing: 0,
            mark: Mark::None,
            line: Line::new(State::Routing),
            error: None,
        };
        if let Mode::Content { length } = mode {
            parser.state = if length == 0 {
                State::End
            } else {
                State::First
            };
            parser.sized = true;
            parser.left = length;
            parser.content_length = Some(length);
            parser.modifiers = limits.entity_modifiers;
        }
        parser
    }

    /// Continues in `buffer`, which holds all bytes that are not released yet.
    ///
    /// The consumed bytes stay at the front until [`release`](Parser::release). Between calls, the
    /// caller may append bytes, but must not change the bytes from
    /// [`consumed`](Parser::consumed) on. The work is linear in the new bytes: a short line is
    /// scanned at most once more when its end arrives. Sized bytes are skipped, not scanned.
    ///
    /// Always inlined: the compiler then merges the event with the caller's `match`, and a step
    /// costs a third less. Call it from one place, in a loop.
    #[inline(always)]
    pub fn step<'a>(&mut self, buffer: &'a [u8]) -> ParseStep<'a> {
        if let Some(rest) = buffer.get(self.pos..)
            && let Some(step) = self.short(rest)
        {
            return step;
        }
        // The exact path writes to a separate variable. A step of the short path then never has to
        // be in memory, and the compiler can merge the caller's `match` with the code that creates
        // it.
        let mut step = ParseStep::Complete;
        self.exact(buffer, &mut step);
        step
    }

    /// Bytes at the front of the buffer that the parser no longer needs.
    #[inline]
    pub const fn consumed(&self) -> usize {
        self.pos
    }

    /// Bytes of `buffer` that are not consumed.
    #[inline]
    pub const fn remaining(&self, buffer: &[u8]) -> usize {
        buffer.len().saturating_sub(self.pos)
    }

    /// Records that the caller removed the consumed bytes from the buffer. Returns their number.
    #[inline]
    pub const fn release(&mut self) -> usize {
        let consumed = self.pos;
        self.base = self.base.saturating_add(consumed as u64);
        self.pos = 0;
        consumed
    }

    /// Stream offset of the next byte to be consumed, counted from the creation or the last reset.
    #[inline]
    pub const fn offset(&self) -> u64 {
        self.base.saturating_add(self.pos as u64)
    }

    /// Whether the parser is between two packets, so that the input so far is whole packets.
    #[inline]
    pub fn is_clean(&self) -> bool {
        match self.mode {
            Mode::Content { .. } => self.state == State::Done,
            _ => {
                self.state == State::Routing
                    && self.left == self.limits.routing_header
                    && self.modifiers == self.limits.routing_modifiers
            }
        }
    }

    /// The length of the current content, if it was announced. In content mode, the length given to
    /// the constructor.
    #[inline]
    pub const fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// The length of the entity value reported last, if it was announced. For a body in a sized
    /// content, the length of its data.
    #[inline]
    pub const fn value_length(&self) -> Option<u64> {
        match self.state {
            State::ValueLf | State::ValuePart | State::BodyLf | State::BodyPart => {
                Some(self.value_length)
            }
            State::End if self.sized && self.value_length != NO_LENGTH => Some(self.value_length),
            _ => None,
        }
    }

    /// The limits of this parser.
    #[inline]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Resets the state, including an error and offsets. Mode and limits do not change.
    pub fn reset(&mut self) {
        *self = Parser::with_limits(self.mode, self.limits);
    }

    /// Like [`reset`](Parser::reset), for another mode. For example, a relay can switch modes to
    /// parse a content.
    pub fn reset_to(&mut self, mode: Mode) {
        *self = Parser::with_limits(mode, self.limits);
    }

    /// The short path. `None` means that the exact path must decide.
    #[inline(always)]
    fn short<'a>(&mut self, rest: &'a [u8]) -> Option<ParseStep<'a>> {
        let mut rest = rest;
        if self.state > State::Entity {
            match self.state {
                State::End => return self.short_end(rest, 0),
                State::BodyLf if rest.first() == Some(&LF) => return self.short_end(rest, 1),
                State::ValueLf
                    if rest.first() == Some(&LF) && (self.sized || self.mark != Mark::Bar) =>
                {
                    self.pos += 1;
                    self.left = self.left.saturating_sub(1);
                    self.state = State::Entity;
                    rest = rest.get(1..)?;
                }
                _ => return None,
            }
        }
        loop {
            let first = *rest.first()?;
            if let Some(operator) = Operator::from_byte(first) {
                return self.short_modifier(rest, operator);
            }
            if self.state != State::Routing {
                return match first {
                    BAR if self.sized => None,
                    BAR => self.short_end(rest, 0),
                    _ => self.short_body(rest),
                };
            }
            if first == BAR {
                return self.short_end(rest, 0);
            }
            rest = rest.get(self.short_content(rest)?..)?;
        }
    }

    /// Reads the line that opens a content. Runs once a packet, so it is kept out of the hot loop.
    #[inline(never)]
    fn short_content(&mut self, rest: &[u8]) -> Option<usize> {
        if !matches!(self.mode, Mode::Full) {
            return None;
        }
        let (length, used) = if rest.first() == Some(&LF) {
            (None, 1)
        } else {
            let (length, used) = near_number(rest, LF, self.limits.sized_content)?;
            (Some(length), used)
        };
        self.pos += used;
        self.open_content(length);
        Some(used)
    }

    #[inline(always)]
    fn short_modifier<'a>(&mut self, rest: &'a [u8], operator: Operator) -> Option<ParseStep<'a>> {
        let name_end = keyword_len(rest, 1);
        let name = rest.get(1..name_end)?;
        let (tab, after) = rest.get(name_end..)?.split_first()?;
        if *tab == b' ' {
            return self.short_sized(operator, name, after);
        }
        let value = after.get(..near_lf(after)?)?;
        let end = name_end + 1 + value.len();
        let used = end as u64 + 1;
        let regular = *tab == TAB
            && !name.is_empty()
            && name.len() as u64 <= u64::from(self.limits.name)
            && value.len() as u64 <= self.limits.unsized_value
            && used <= self.left
            && self.modifiers != 0;
        if !regular {
            return None;
        }
        self.pos += end + 1;
        self.left -= used;
        self.modifiers -= 1;
        let variable = Variable {
            operator,
            name,
            value,
            sized: false,
        };
        if self.state == State::Routing {
            return Some(ParseStep::Routing(variable));
        }
        self.state = State::Entity;
        Some(ParseStep::Entity(variable))
    }

    /// Reads a sized value in a sized content. Other values have to be searched for the delimiter.
    #[inline(always)]
    fn short_sized<'a>(
        &mut self,
        operator: Operator,
        name: &'a [u8],
        after: &'a [u8],
    ) -> Option<ParseStep<'a>> {
        let (length, digits) = near_number(after, TAB, self.limits.sized_value)?;
        let value = after.get(digits..)?.get(..usize::try_from(length).ok()?)?;
        let used = 2 + name.len() + digits + value.len();
        let regular = self.sized
            && !name.is_empty()
            && name.len() as u64 <= u64::from(self.limits.name)
            && (used as u64) < self.left
            // One byte would remain after the line feed.
            && used as u64 + 2 != self.left
            && self.modifiers != 0;
        if !regular {
            return None;
        }
        self.pos += used;
        self.left -= used as u64;
        self.modifiers -= 1;
        self.state = State::ValueLf;
        self.value_length = length;
        Some(ParseStep::Entity(Variable {
            operator,
            name,
            value,
            sized: true,
        }))
    }

    #[inline(always)]
    fn short_body<'a>(&mut self, rest: &'a [u8]) -> Option<ParseStep<'a>> {
        let end = keyword_len(rest, 0);
        let method = rest.get(..end)?;
        let used = end as u64 + 1;
        if rest.get(end) != Some(&LF)
            || end == 0
            || end as u64 > u64::from(self.limits.name)
            || used > self.left
        {
            return None;
        }
        let after = rest.get(end + 1..)?;
        if self.sized {
            let length = (self.left - used).saturating_sub(1);
            let data = after.get(..usize::try_from(length).ok()?)?;
            self.state = if self.left == used {
                State::End
            } else {
                State::BodyLf
            };
            self.pos += end + 1 + data.len();
            self.left = 0;
            self.value_length = length;
            return Some(ParseStep::Body {
                method,
                data,
                sized: true,
            });
        }
        let bar = near_end(after)?;
        let data = after.get(..bar.saturating_sub(1))?;
        if used + bar as u64 > self.left {
            return None;
        }
        self.pos += end + 1 + bar;
        self.state = State::End;
        Some(ParseStep::Body {
            method,
            data,
            sized: false,
        })
    }

    #[inline(always)]
    fn short_end<'a>(&mut self, rest: &[u8], line_feeds: usize) -> Option<ParseStep<'a>> {
        if !rest.get(line_feeds..)?.starts_with(b"|\n") || matches!(self.mode, Mode::Content { .. })
        {
            return None;
        }
        self.pos += line_feeds + 2;
        self.open_packet();
        Some(ParseStep::Complete)
    }

    #[inline(always)]
    fn open_packet(&mut self) {
        self.state = State::Routing;
        self.sized = false;
        self.left = self.limits.routing_header;
        self.modifiers = self.limits.routing_modifiers;
        self.content_length = None;
    }

    #[inline(always)]
    fn open_content(&mut self, length: Option<u64>) {
        self.state = State::First;
        self.sized = length.is_some();
        self.content_length = length;
        self.left = length.unwrap_or(self.limits.unsized_content);
        self.modifiers = self.limits.entity_modifiers;
    }
}

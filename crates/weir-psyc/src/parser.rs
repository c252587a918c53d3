//! The incremental packet parser.
//!
//! Invariants: the parser never copies, allocates or looks after the buffer it is given; the
//! events joined over `…Start`/`…Cont`/`…End` and the place of an error are the same for every way
//! of cutting the input; work is linear in the input even when it arrives byte by byte; the end of
//! a packet is the same in full and in routing-only mode. It never resynchronises after an error.
//!
//! [`Parser::step`] holds the short path: a line that is complete, short and regular. Everything
//! else, including every error, is decided by the exact path in `parser/exact.rs`, which knows
//! where it stopped. Both use the same scanners, and a line that the short path takes is one that
//! the exact path would take the same way.

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

/// What a [`Parser`] reads and how deep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A stream of packets, everything reported.
    Full,
    /// A stream of packets; the content is passed through as raw bytes. For relays.
    RoutingOnly,
    /// One bare content of a known length, as routing-only mode delivers it.
    Content {
        /// Bytes of the content, final LF included.
        length: u64,
    },
}

/// Where the parser stands. The first three are the states of a line start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// At a line of the routing header.
    Routing,
    /// At the first line of a content, where a state operation may stand.
    First,
    /// At a further line of a content.
    Entity,
    /// In the middle of a line that did not end in the last buffer.
    Line,
    /// In front of the LF after a sized value.
    ValueLf,
    /// Inside a sized value.
    ValuePart,
    /// Inside sized data.
    BodyPart,
    /// In front of the LF after sized data.
    BodyLf,
    /// Inside an unsized content in routing-only mode.
    Raw,
    /// Inside a sized content in routing-only mode.
    RawPart,
    /// After a sized content in routing-only mode, its last byte not yet judged.
    RawLf,
    /// In front of the end mark.
    End,
    /// After the content of content mode.
    Done,
    /// Broken for good.
    Failed,
}

/// What is known about a line whose end has not arrived.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// State at the start of the line.
    state: State,
    stage: exact::Stage,
    /// Bytes of the line that need not be looked at again.
    scanned: usize,
    /// Where the name ends.
    name_end: usize,
    /// Length read so far, and its digits.
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
/// Give [`step`](Parser::step) the bytes that are not consumed yet, again and again, until it
/// answers [`NeedMore`](ParseStep::NeedMore); then drop the consumed bytes from the front of the
/// buffer, call [`release`](Parser::release), add input and go on. After an error every step
/// repeats it until [`reset`](Parser::reset).
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
    /// Whether the content's length was announced.
    sized: bool,
    /// Modifiers the current header may still have.
    modifiers: u32,
    /// Bytes the routing header or the content may still have, counted from the line start.
    left: u64,
    limits: Limits,
    mode: Mode,
    /// Stream offset of the first byte of the caller's buffer.
    base: u64,
    /// Announced content length of this packet.
    content_length: Option<u64>,
    /// Announced length of the value or data delivered last; the state tells whether it counts.
    value_length: u64,
    /// What is missing of a value, data or content that is delivered in parts.
    missing: u64,
    /// How much of a delimiter stands at the end of what was seen of an unsized content.
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

    /// A parser with limits of your own.
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
            value_length: 0,
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

    /// Reads on in `buffer`, which holds everything that is not released yet.
    ///
    /// The consumed bytes stay at the front until [`release`](Parser::release); bytes may be
    /// appended between calls, and the bytes from [`consumed`](Parser::consumed) on must not
    /// change. Complexity is linear in the bytes looked at for the first time, with one exception
    /// that is a constant: a short line is looked at once more when its end arrives. Sized bytes are
    /// skipped, not looked at.
    ///
    /// Always inlined: the event then melts into the caller's `match` and costs a third less. Call
    /// it from one place, in a loop.
    #[inline(always)]
    pub fn step<'a>(&mut self, buffer: &'a [u8]) -> ParseStep<'a> {
        if let Some(rest) = buffer.get(self.pos..)
            && let Some(step) = self.short(rest)
        {
            return step;
        }
        // Through a place of its own: a step that the short path returns then never has to be in
        // memory, and the caller's `match` melts into the place that made it.
        let mut step = ParseStep::Complete;
        self.exact(buffer, &mut step);
        step
    }

    /// Bytes at the front of the buffer that will not be needed again.
    #[inline]
    pub const fn consumed(&self) -> usize {
        self.pos
    }

    /// Bytes of `buffer` that are not consumed.
    #[inline]
    pub const fn remaining(&self, buffer: &[u8]) -> usize {
        buffer.len().saturating_sub(self.pos)
    }

    /// Says that the consumed bytes are gone from the front of the buffer; returns how many.
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

    /// Whether the parser stands between two packets: everything given so far is whole packets.
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

    /// The announced length of the current content, if it was announced. In content mode, the
    /// length the parser was made with.
    #[inline]
    pub const fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// The announced length of the entity value delivered last, if it was announced; for a body in
    /// a sized content the length of its data.
    #[inline]
    pub const fn value_length(&self) -> Option<u64> {
        match self.state {
            State::ValueLf | State::ValuePart | State::BodyLf | State::BodyPart => {
                Some(self.value_length)
            }
            State::End if self.sized => Some(self.value_length),
            _ => None,
        }
    }

    /// What this parser accepts at most.
    #[inline]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Forgets everything, errors and offsets included; mode and limits stay.
    pub fn reset(&mut self) {
        *self = Parser::with_limits(self.mode, self.limits);
    }

    /// Like [`reset`](Parser::reset), for another mode: a relay that decides to look into a
    /// content, for example.
    pub fn reset_to(&mut self, mode: Mode) {
        *self = Parser::with_limits(mode, self.limits);
    }

    /// The short path. `None` decides nothing.
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

    /// The line that opens a content; its bytes. Once a packet, so it stays out of the way.
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

    /// A sized value in a sized content; elsewhere it has to be searched for the delimiter.
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
            // One byte would be left after the line feed.
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

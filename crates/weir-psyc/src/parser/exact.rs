//! The exact path of the parser. It can resume within a line, and only this path reports errors.
//!
//! A line is read in stages. If the buffer ends inside a line, the parser stores the stage and the
//! number of scanned bytes, so that no byte of a long line is scanned twice. The position of an
//! error is the first byte after which no input completes the packet. If a byte breaks several
//! rules, the order of precedence is: the syntax of the byte, the limit of the item, the remaining
//! space of the header or content.

use super::{Line, Mode, NO_LENGTH, Parser, State};
use crate::class::{is_digit, is_keyword_byte, is_operator};
use crate::error::{ErrorCode, ParseError};
use crate::event::{ParseStep, Variable};
use crate::limits::LENGTH_DIGITS_MAX;
use crate::operator::Operator;
use crate::scan::{BAR, LF, Mark, TAB, end_mark, keyword_len};

const SP: u8 = b' ';

/// The stage of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Before the name of a modifier.
    Start,
    /// In a modifier's name.
    Name,
    /// In an unsized value.
    Value,
    /// In the length of a value.
    Digits,
    /// In a method.
    Method,
    /// In unsized data.
    Data,
    /// In the length of a content.
    Length,
}

/// An error at an index of the unconsumed bytes.
struct Fail(ErrorCode, usize);

type ExactResult<'a> = Result<ParseStep<'a>, Fail>;

impl Parser {
    /// Executes one step by the full rules.
    #[cold]
    #[inline(never)]
    pub(super) fn exact<'a>(&mut self, buffer: &'a [u8], out: &mut ParseStep<'a>) {
        let result = match (self.error, buffer.get(self.pos..)) {
            (Some(error), _) => Ok(ParseStep::Error(error)),
            (None, Some(_)) => self.advance(buffer),
            (None, None) => Err(Fail(ErrorCode::Internal, 0)),
        };
        *out = result.unwrap_or_else(|Fail(code, index)| {
            let offset = self.offset().saturating_add(index as u64);
            self.record_error(ParseError { code, offset })
        });
    }

    fn record_error<'a>(&mut self, error: ParseError) -> ParseStep<'a> {
        self.state = State::Failed;
        self.error = Some(error);
        ParseStep::Error(error)
    }

    /// Returns an error at the byte before the next one, which is already consumed.
    fn fail_after<'a>(&mut self, code: ErrorCode) -> ParseStep<'a> {
        self.record_error(ParseError {
            code,
            offset: self.offset().saturating_sub(1),
        })
    }

    fn advance<'a>(&mut self, buffer: &'a [u8]) -> ExactResult<'a> {
        // Each iteration returns, or leaves a state to which this packet never returns.
        loop {
            let rest = buffer.get(self.pos..).unwrap_or_default();
            let step = match self.state {
                State::Routing => self.routing_line(rest)?,
                State::First | State::Entity => self.content_line(rest)?,
                State::Line => match self.line.stage {
                    Stage::Start | Stage::Name | Stage::Value | Stage::Digits => {
                        Some(self.modifier(rest)?)
                    }
                    Stage::Method | Stage::Data => Some(self.method(rest)?),
                    Stage::Length => self.content_length_line(rest)?,
                },
                State::ValueLf => self.value_line_feed(rest)?,
                State::ValuePart => Some(self.value_part(rest)?),
                State::BodyPart => {
                    Some(self.part(rest, State::BodyLf, ParseStep::BodyCont, ParseStep::BodyEnd))
                }
                State::BodyLf => match rest.first() {
                    None => Some(ParseStep::NeedMore(Some(1))),
                    Some(&LF) => {
                        self.pos += 1;
                        self.state = State::End;
                        None
                    }
                    Some(_) => return Err(Fail(ErrorCode::End, 0)),
                },
                State::Raw => Some(self.raw(rest)?),
                State::RawPart => Some(self.raw_part(rest)),
                State::RawLf if self.mark != Mark::Line => Some(self.fail_after(ErrorCode::End)),
                State::RawLf => {
                    self.state = State::End;
                    None
                }
                State::End => Some(self.end(rest)?),
                State::Done if rest.is_empty() => Some(ParseStep::NeedMore(None)),
                State::Done => return Err(Fail(ErrorCode::End, 0)),
                State::Failed => return Err(Fail(ErrorCode::Internal, 0)),
            };
            if let Some(step) = step {
                return Ok(step);
            }
        }
    }

    /// Reads a line of the routing header, or the bytes after it. `None` continues with the next
    /// state.
    fn routing_line<'a>(&mut self, rest: &'a [u8]) -> Result<Option<ParseStep<'a>>, Fail> {
        let Some(&first) = rest.first() else {
            return Ok(Some(ParseStep::NeedMore(None)));
        };
        self.line = Line::new(State::Routing);
        match first {
            LF => {
                self.pos += 1;
                self.open_content(None);
                if self.mode == Mode::RoutingOnly {
                    self.state = State::Raw;
                    self.mark = Mark::Line;
                }
                Ok(None)
            }
            BAR => {
                self.state = State::End;
                Ok(None)
            }
            _ if is_operator(first) => self.modifier(rest).map(Some),
            _ if is_digit(first) => {
                self.line.stage = Stage::Length;
                self.content_length_line(rest)
            }
            _ => Err(Fail(ErrorCode::End, 0)),
        }
    }

    /// Reads a line of the content, or the bytes after the last one. `None` continues with the next
    /// state.
    fn content_line<'a>(&mut self, rest: &'a [u8]) -> Result<Option<ParseStep<'a>>, Fail> {
        if self.sized && self.left == 0 {
            self.value_length = NO_LENGTH;
            self.state = State::End;
            return Ok(None);
        }
        // A line has at least two bytes. The byte before left only one, so it is the error: the line
        // feed of an unsized value, or the line feed after an announced length of 1.
        if self.sized && self.left == 1 && self.mode == Mode::Full {
            return Ok(Some(self.fail_after(ErrorCode::Length)));
        }
        let Some(&first) = rest.first() else {
            return Ok(Some(ParseStep::NeedMore(None)));
        };
        self.line = Line::new(self.state);
        match first {
            _ if is_operator(first) => self.modifier(rest).map(Some),
            _ if is_keyword_byte(first) => {
                self.line.stage = Stage::Method;
                self.method(rest).map(Some)
            }
            _ if self.sized => Err(Fail(ErrorCode::Length, 0)),
            BAR => {
                self.state = State::End;
                Ok(None)
            }
            _ => Err(Fail(ErrorCode::End, 0)),
        }
    }

    /// Reads the LF after a sized value.
    fn value_line_feed<'a>(&mut self, rest: &'a [u8]) -> Result<Option<ParseStep<'a>>, Fail> {
        match rest.first() {
            None => Ok(Some(ParseStep::NeedMore(Some(1)))),
            Some(&LF) if !self.sized && self.mark == Mark::Bar => Err(Fail(ErrorCode::NoLen, 0)),
            Some(&LF) => {
                self.pos += 1;
                self.left = self.left.saturating_sub(1);
                self.state = State::Entity;
                Ok(None)
            }
            Some(_) => Err(Fail(ErrorCode::ModNl, 0)),
        }
    }

    /// Reads more of a sized content, in routing-only mode.
    fn raw_part<'a>(&mut self, rest: &'a [u8]) -> ParseStep<'a> {
        let part = rest.get(..self.missing_here()).unwrap_or(rest);
        self.mark = if part.last() == Some(&LF) {
            Mark::Line
        } else {
            Mark::None
        };
        self.part(
            rest,
            State::RawLf,
            ParseStep::ContentCont,
            ParseStep::ContentEnd,
        )
    }

    /// Stores the progress within the line and requests more input.
    fn wait<'a>(&mut self, stage: Stage, scanned: usize) -> ParseStep<'a> {
        self.state = State::Line;
        self.line.stage = stage;
        self.line.scanned = scanned;
        ParseStep::NeedMore(None)
    }

    fn left_here(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX)
    }

    fn missing_here(&self) -> usize {
        usize::try_from(self.missing).unwrap_or(usize::MAX)
    }

    /// The error code of a line that is longer than its header or content.
    fn overflow_code(&self) -> ErrorCode {
        match (self.line.state, self.sized, self.mode) {
            (State::Routing, _, _) => ErrorCode::Limit,
            (_, false, _) => ErrorCode::NoLen,
            (_, true, Mode::Content { .. }) => ErrorCode::End,
            (_, true, _) => ErrorCode::Length,
        }
    }

    /// Index of the first byte of the line that is an error because at least `after` bytes must
    /// follow it. The bytes after it count only if the length of the content was announced.
    fn last_allowed_index(&self, after: usize) -> usize {
        let after = match self.mode {
            _ if !self.sized => 0,
            Mode::Content { .. } => after.min(1),
            _ => after,
        };
        self.left_here().saturating_sub(after)
    }

    /// Whether a line of `used` bytes leaves one byte of an announced content, which no line can
    /// fill. In content mode, the error is at the end of the slice instead.
    fn leaves_one_byte(&self, used: u64) -> bool {
        self.sized && self.mode == Mode::Full && used.checked_add(1) == Some(self.left)
    }

    /// Checks that the byte at `index` and at least `after` further bytes fit.
    fn fits(&self, index: usize, after: usize) -> Result<(), Fail> {
        if index < self.last_allowed_index(after) {
            Ok(())
        } else {
            Err(Fail(self.overflow_code(), index))
        }
    }

    /// Continues with the keyword that starts at `start`. `Ok` has the end of the keyword, or
    /// `None` if the buffer ends inside it. At least `after` bytes must follow each of its bytes.
    fn keyword(&self, rest: &[u8], start: usize, after: usize) -> Result<Option<usize>, Fail> {
        let limit = start.saturating_add(usize::try_from(self.limits.name).unwrap_or(usize::MAX));
        let window = rest.get(..limit.saturating_add(1)).unwrap_or(rest);
        let end = keyword_len(window, self.line.scanned.max(start));
        let last_allowed = self.last_allowed_index(after).max(start);
        if limit < end && limit <= last_allowed {
            return Err(Fail(ErrorCode::Limit, limit));
        }
        if last_allowed < end {
            return Err(Fail(self.overflow_code(), last_allowed));
        }
        Ok((end < rest.len()).then_some(end))
    }

    /// Reads a modifier line of either header, or a state operation.
    fn modifier<'a>(&mut self, rest: &'a [u8]) -> ExactResult<'a> {
        if self.line.stage == Stage::Start {
            let first = rest.first().copied().unwrap_or_default();
            let state_op = self.line.state == State::First && matches!(first, b'=' | b'?');
            if state_op && self.leaves_one_byte(2) {
                // A modifier has at least four bytes, and a state operation would leave one byte.
                return Err(Fail(ErrorCode::Length, 0));
            } else if state_op {
                self.fits(0, 1)?;
            } else {
                self.check_next_modifier(0, 3)?;
            }
            let Some(&second) = rest.get(1) else {
                return Ok(self.wait(Stage::Start, 0));
            };
            if state_op && second == LF {
                self.fits(1, 0)?;
                return Ok(self.state_operation(first));
            }
            if !is_keyword_byte(second) {
                return Err(Fail(ErrorCode::ModName, 1));
            }
            if state_op && self.modifiers == 0 {
                return Err(Fail(ErrorCode::Limit, 1));
            }
            self.line.stage = Stage::Name;
            self.line.scanned = 1;
        }
        if self.line.stage == Stage::Name {
            let Some(end) = self.keyword(rest, 1, 2)? else {
                return Ok(self.wait(Stage::Name, rest.len()));
            };
            let sized = match rest.get(end) {
                Some(&TAB) => false,
                Some(&SP) if self.line.state != State::Routing => true,
                _ => return Err(Fail(ErrorCode::ModTab, end)),
            };
            self.fits(end, if sized { 3 } else { 1 })?;
            self.line.stage = if sized { Stage::Digits } else { Stage::Value };
            self.line.name_end = end;
            self.line.scanned = end + 1;
        }
        if self.line.stage == Stage::Value {
            self.unsized_value(rest)
        } else {
            self.value_length_digits(rest)
        }
    }

    /// Checks that one more modifier is allowed and that the byte at `index` fits.
    fn check_next_modifier(&self, index: usize, after: usize) -> Result<(), Fail> {
        if self.modifiers == 0 {
            return Err(Fail(ErrorCode::Limit, index));
        }
        self.fits(index, after)
    }

    fn state_operation<'a>(&mut self, operator: u8) -> ParseStep<'a> {
        self.pos += 2;
        self.left = self.left.saturating_sub(2);
        self.state = State::Entity;
        if operator == b'=' {
            ParseStep::StateReset
        } else {
            ParseStep::StateResync
        }
    }

    /// The operator and the name of the line; the caller has checked that both are in `rest`.
    fn named<'a>(&self, rest: &'a [u8]) -> Result<(Operator, &'a [u8]), Fail> {
        let operator = rest.first().copied().and_then(Operator::from_byte);
        match (operator, rest.get(1..self.line.name_end)) {
            (Some(operator), Some(name)) => Ok((operator, name)),
            _ => Err(Fail(ErrorCode::Internal, 0)),
        }
    }

    fn unsized_value<'a>(&mut self, rest: &'a [u8]) -> ExactResult<'a> {
        let start = self.line.name_end + 1;
        let limit = usize::try_from(self.limits.unsized_value).unwrap_or(usize::MAX);
        let limit = start.saturating_add(limit);
        let left = self.left_here();
        // The LF must be at `limit` or before it, and at `left - 1` or before it.
        let window_end = limit.saturating_add(1).min(left);
        let scanned = self.line.scanned;
        let window = rest
            .get(..window_end)
            .unwrap_or(rest)
            .get(scanned..)
            .unwrap_or_default();
        let Some(found) = memchr::memchr(LF, window) else {
            if rest.len() < window_end || (rest.len() == window_end && !self.sized && limit >= left)
            {
                return Ok(self.wait(Stage::Value, scanned.max(rest.len())));
            }
            return Err(if limit < left {
                Fail(ErrorCode::ModNoLen, limit)
            } else if self.sized {
                Fail(self.overflow_code(), left.saturating_sub(1))
            } else if limit == left && rest.get(left) != Some(&LF) {
                Fail(ErrorCode::ModNoLen, left)
            } else {
                Fail(self.overflow_code(), left)
            });
        };
        let end = scanned + found;
        let (operator, name) = self.named(rest)?;
        let value = rest.get(start..end).ok_or(Fail(ErrorCode::Internal, 0))?;
        let variable = Variable {
            operator,
            name,
            value,
            sized: false,
        };
        self.pos += end + 1;
        self.left = self.left.saturating_sub(end as u64 + 1);
        self.modifiers = self.modifiers.saturating_sub(1);
        if self.line.state == State::Routing {
            self.state = State::Routing;
            return Ok(ParseStep::Routing(variable));
        }
        self.state = State::Entity;
        Ok(ParseStep::Entity(variable))
    }

    /// Appends the digit at `index` to the number.
    fn digit(&mut self, byte: u8, max: u64, code: ErrorCode, index: usize) -> Result<u64, Fail> {
        let line = &mut self.line;
        line.digits = line.digits.saturating_add(1);
        let number = line.number.checked_mul(10);
        let number = number.and_then(|tens| tens.checked_add(u64::from(byte.wrapping_sub(b'0'))));
        match number {
            Some(number) if line.digits <= LENGTH_DIGITS_MAX && number <= max => {
                line.number = number;
                Ok(number)
            }
            _ => Err(Fail(code, index)),
        }
    }

    fn value_length_digits<'a>(&mut self, rest: &'a [u8]) -> ExactResult<'a> {
        let mut index = self.line.scanned;
        loop {
            let Some(&byte) = rest.get(index) else {
                return Ok(self.wait(Stage::Digits, index));
            };
            if !is_digit(byte) {
                if self.line.digits == 0 {
                    return Err(Fail(ErrorCode::ModLen, index));
                }
                if byte != TAB {
                    return Err(Fail(ErrorCode::ModTab, index));
                }
                return self.sized_value(rest, index + 1);
            }
            let number = self.digit(byte, self.limits.sized_value, ErrorCode::ModLen, index)?;
            // TAB, the value and LF must follow.
            let used = (index as u64).saturating_add(3).saturating_add(number);
            if used > self.left {
                let too_long = self.sized && number != 0;
                let code = if too_long {
                    ErrorCode::ModLen
                } else {
                    self.overflow_code()
                };
                return Err(Fail(code, index));
            }
            // A further digit adds one byte to the line and multiplies the number by ten. Only a
            // number of zero leaves space for that.
            let further = number == 0 && self.line.digits < LENGTH_DIGITS_MAX;
            if self.leaves_one_byte(used) && !further {
                return Err(Fail(ErrorCode::Length, index));
            }
            index += 1;
        }
    }

    /// Reads a sized value whose first byte is at `start`.
    fn sized_value<'a>(&mut self, rest: &'a [u8], start: usize) -> ExactResult<'a> {
        let total = self.line.number;
        if self.leaves_one_byte((start as u64).saturating_add(total).saturating_add(1)) {
            return Err(Fail(ErrorCode::Length, start.saturating_sub(1)));
        }
        let (operator, name) = self.named(rest)?;
        let available = rest.get(start..).unwrap_or_default();
        let whole = usize::try_from(total)
            .ok()
            .and_then(|total| available.get(..total));
        let part = whole.unwrap_or(available);
        self.mark = Mark::None;
        if !self.sized {
            match end_mark(part, Mark::None) {
                Ok(found) => return Err(Fail(ErrorCode::NoLen, start + found)),
                Err(mark) => self.mark = mark,
            }
        }
        self.pos += start + part.len();
        self.left = self
            .left
            .saturating_sub((start as u64).saturating_add(total));
        self.modifiers = self.modifiers.saturating_sub(1);
        self.value_length = total;
        if whole.is_some() {
            self.state = State::ValueLf;
            return Ok(ParseStep::Entity(Variable {
                operator,
                name,
                value: part,
                sized: true,
            }));
        }
        self.missing = total - part.len() as u64;
        self.state = State::ValuePart;
        Ok(ParseStep::EntityStart {
            operator,
            name,
            total,
            part,
        })
    }

    fn value_part<'a>(&mut self, rest: &'a [u8]) -> ExactResult<'a> {
        if !self.sized {
            let part = rest.get(..self.missing_here()).unwrap_or(rest);
            match end_mark(part, self.mark) {
                Ok(found) => return Err(Fail(ErrorCode::NoLen, found)),
                Err(mark) => self.mark = mark,
            }
        }
        Ok(self.part(
            rest,
            State::ValueLf,
            ParseStep::EntityCont,
            ParseStep::EntityEnd,
        ))
    }

    /// Returns the next part of an item that arrives in parts.
    fn part<'a>(
        &mut self,
        rest: &'a [u8],
        after: State,
        cont: fn(&'a [u8]) -> ParseStep<'a>,
        end: fn(&'a [u8]) -> ParseStep<'a>,
    ) -> ParseStep<'a> {
        let part = rest.get(..self.missing_here()).unwrap_or(rest);
        if part.is_empty() {
            return ParseStep::NeedMore(Some(self.missing));
        }
        self.pos += part.len();
        self.missing -= part.len() as u64;
        if self.missing == 0 {
            self.state = after;
            return end(part);
        }
        cont(part)
    }

    /// Reads method and data.
    fn method<'a>(&mut self, rest: &'a [u8]) -> ExactResult<'a> {
        if self.line.stage == Stage::Method {
            let Some(end) = self.keyword(rest, 0, 1)? else {
                return Ok(self.wait(Stage::Method, rest.len()));
            };
            if rest.get(end) != Some(&LF) {
                return Err(Fail(ErrorCode::Method, end));
            }
            self.fits(end, 0)?;
            self.line.stage = Stage::Data;
            self.line.name_end = end;
            self.line.scanned = end + 1;
            self.mark = Mark::Line;
        }
        let end = self.line.name_end;
        let method = rest.get(..end).ok_or(Fail(ErrorCode::Internal, 0))?;
        if self.sized {
            return Ok(self.sized_data(rest, method));
        }
        let Some(bar) = self.unsized_end(rest)? else {
            let scanned = self.line.scanned;
            return Ok(self.wait(Stage::Data, scanned));
        };
        let data = rest.get(end + 1..bar).ok_or(Fail(ErrorCode::Internal, 0))?;
        let data = data.strip_suffix(b"\n").unwrap_or(data);
        self.pos += bar;
        self.state = State::End;
        Ok(ParseStep::Body {
            method,
            data,
            sized: false,
        })
    }

    fn sized_data<'a>(&mut self, rest: &'a [u8], method: &'a [u8]) -> ParseStep<'a> {
        let used = method.len() + 1;
        let after = self.left.saturating_sub(used as u64);
        let total = after.saturating_sub(1);
        let available = rest.get(used..).unwrap_or_default();
        let whole = usize::try_from(total)
            .ok()
            .and_then(|total| available.get(..total));
        let part = whole.unwrap_or(available);
        self.pos += used + part.len();
        self.left = 0;
        self.value_length = total;
        if let Some(data) = whole {
            self.state = if after == 0 {
                State::End
            } else {
                State::BodyLf
            };
            return ParseStep::Body {
                method,
                data,
                sized: true,
            };
        }
        self.missing = total - part.len() as u64;
        self.state = State::BodyPart;
        ParseStep::BodyStart {
            method,
            total,
            part,
        }
    }

    /// Continues the search for the end mark of an unsized content. Returns the index of the `|` of
    /// the end mark.
    fn unsized_end(&mut self, rest: &[u8]) -> Result<Option<usize>, Fail> {
        let left = self.left_here();
        let scanned = self.line.scanned;
        let window = rest.get(..left).unwrap_or(rest);
        match end_mark(window.get(scanned..).unwrap_or_default(), self.mark) {
            Ok(found) => return Ok(Some(scanned + found - 1)),
            Err(mark) => self.mark = mark,
        }
        self.line.scanned = scanned.max(window.len());
        // The content is full: only the end mark is allowed.
        match (self.mark, rest.get(left), rest.get(left.saturating_add(1))) {
            (_, None, _) | (Mark::Line, Some(&BAR), None) => Ok(None),
            (Mark::Bar, Some(&LF), _) => Ok(Some(left - 1)),
            (Mark::Line, Some(&BAR), Some(&LF)) => Ok(Some(left)),
            (Mark::Line, Some(&BAR), Some(_)) => Err(Fail(ErrorCode::NoLen, left + 1)),
            _ => Err(Fail(ErrorCode::NoLen, left)),
        }
    }

    /// Reads the raw bytes of an unsized content, in routing-only mode.
    fn raw<'a>(&mut self, rest: &'a [u8]) -> ExactResult<'a> {
        let Some(bar) = self.unsized_end(rest)? else {
            return Ok(ParseStep::NeedMore(None));
        };
        let data = rest.get(..bar).ok_or(Fail(ErrorCode::Internal, 0))?;
        self.pos += bar;
        self.state = State::End;
        Ok(ParseStep::Content { data, sized: false })
    }

    /// Reads the length line. `None` if the line is complete and the content follows.
    fn content_length_line<'a>(&mut self, rest: &'a [u8]) -> Result<Option<ParseStep<'a>>, Fail> {
        let mut index = self.line.scanned;
        loop {
            match rest.get(index) {
                None => return Ok(Some(self.wait(Stage::Length, index))),
                Some(&LF) => break,
                Some(&byte) if is_digit(byte) => {
                    self.digit(byte, self.limits.sized_content, ErrorCode::Length, index)?;
                }
                Some(_) => return Err(Fail(ErrorCode::Length, index)),
            }
            index += 1;
        }
        let total = self.line.number;
        self.pos += index + 1;
        self.open_content(Some(total));
        if self.mode != Mode::RoutingOnly {
            return Ok(None);
        }
        let available = rest.get(index + 1..).unwrap_or_default();
        let whole = usize::try_from(total)
            .ok()
            .and_then(|total| available.get(..total));
        let part = whole.unwrap_or(available);
        self.pos += part.len();
        self.mark = if part.last() == Some(&LF) {
            Mark::Line
        } else {
            Mark::None
        };
        if let Some(data) = whole {
            self.state = if total == 0 { State::End } else { State::RawLf };
            return Ok(Some(ParseStep::Content { data, sized: true }));
        }
        self.missing = total - part.len() as u64;
        self.state = State::RawPart;
        Ok(Some(ParseStep::ContentStart { total, part }))
    }

    fn end<'a>(&mut self, rest: &'a [u8]) -> ExactResult<'a> {
        if let Mode::Content { .. } = self.mode {
            self.state = State::Done;
            return Ok(ParseStep::Complete);
        }
        match (rest.first(), rest.get(1)) {
            (None, _) => Ok(ParseStep::NeedMore(Some(2))),
            (Some(&BAR), None) => Ok(ParseStep::NeedMore(Some(1))),
            (Some(&BAR), Some(&LF)) => {
                self.pos += 2;
                self.open_packet();
                Ok(ParseStep::Complete)
            }
            (Some(&BAR), Some(_)) => Err(Fail(ErrorCode::End, 1)),
            (Some(_), _) => Err(Fail(ErrorCode::End, 0)),
        }
    }
}

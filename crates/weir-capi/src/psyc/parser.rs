//! The incremental parser.

use std::mem::MaybeUninit;

use weir::ErrorCode;
use weir_psyc::{Limits, Mode, ParseStep, Parser, Variable};

use super::raw::{PsycEvent, PsycParser, PsycParserInfo, PsycParserOptions};
use super::{malformed, slice};
use crate::error::{EMPTY, Fault, Kind};
use crate::handle::{Caller, zeroed};
use crate::parser_state::ParserState;
use crate::raw::Slice;

/// Kinds of events, as in the header.
mod kind {
    pub(super) const ROUTING: u16 = 1;
    pub(super) const STATE_RESET: u16 = 2;
    pub(super) const STATE_RESYNC: u16 = 3;
    pub(super) const ENTITY: u16 = 4;
    pub(super) const ENTITY_START: u16 = 5;
    pub(super) const ENTITY_CONT: u16 = 6;
    pub(super) const ENTITY_END: u16 = 7;
    pub(super) const BODY: u16 = 8;
    pub(super) const BODY_START: u16 = 9;
    pub(super) const BODY_CONT: u16 = 10;
    pub(super) const BODY_END: u16 = 11;
    pub(super) const CONTENT: u16 = 12;
    pub(super) const CONTENT_START: u16 = 13;
    pub(super) const CONTENT_CONT: u16 = 14;
    pub(super) const CONTENT_END: u16 = 15;
    pub(super) const COMPLETE: u16 = 16;
}

const CLEAN: u32 = 1;
const CONTENT_SIZED: u32 = 2;
const VALUE_SIZED: u32 = 4;

/// The limits that the caller sets; 0 is the default.
fn limits(given: &PsycParserOptions) -> Limits {
    let of = |value: u64, default: u64| if value == 0 { default } else { value };
    let of_u32 = |value: u32, default: u32| if value == 0 { default } else { value };
    let default = Limits::DEFAULT;
    Limits {
        unsized_content: of(given.unsized_content, default.unsized_content),
        unsized_value: of(given.unsized_value, default.unsized_value),
        routing_header: of(given.routing_header, default.routing_header),
        routing_modifiers: of_u32(given.routing_modifiers, default.routing_modifiers),
        entity_modifiers: of_u32(given.entity_modifiers, default.entity_modifiers),
        sized_content: of(given.sized_content, default.sized_content),
        sized_value: of(given.sized_value, default.sized_value),
        name: of_u32(given.name, default.name),
    }
}

pub(super) fn init(
    c: &Caller,
    parser: *mut PsycParser,
    options: *const PsycParserOptions,
) -> Result<Kind, Fault> {
    let given = c.options(options)?;
    let mode = match (given.mode, given.content_length) {
        (0 | 1, 0) => Mode::Full,
        (2, 0) => Mode::RoutingOnly,
        (3, length) => Mode::Content { length },
        _ => {
            return Err(Fault::new(
                ErrorCode::BadOption,
                "a mode is 0 or 1 full, 2 routing only, 3 a bare content, which alone has a length",
            ));
        }
    };
    if given.reserved != 0 {
        return Err(Fault::new(ErrorCode::BadOption, "a reserved field is set"));
    }
    let state = ParserState {
        parser: Parser::with_limits(mode, limits(&given)),
        wanted: 0,
    };
    c.seal(parser, state)?;
    Ok(Kind::Ok)
}

#[inline]
pub(super) fn read(
    c: &Caller,
    parser: *mut PsycParser,
    bytes: Slice,
    events: *mut PsycEvent,
    room: usize,
    count: *mut usize,
    used: *mut usize,
) -> Result<Kind, Fault> {
    c.check_output(count, 1)?;
    c.check_output(used, 1)?;
    let (inputs, out) = c.output(events, room)?;
    inputs.check(parser.cast_const(), 1)?;
    let input = inputs.bytes(bytes)?;
    // The call also writes the parser, so the input must not overlap it.
    let (parser_memory, _) = c.output(parser, 1)?;
    parser_memory.bytes(bytes)?;
    if room == 0 {
        return Err(NO_ROOM);
    }
    let state = c.sealed::<ParserState>(parser)?;
    let (kind, filled) = fill(state, input, out.into_slots())?;
    c.write(used, state.parser.release())?;
    c.write(count, filled)?;
    Ok(kind)
}

const NO_ROOM: Fault = Fault::new(ErrorCode::BadLength, "there is no room for an event");

/// Writes events into `slots`. Returns why it ended, and how many events it wrote.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "it is nearly all of its only caller, and this call is measured"
)]
fn fill(
    state: &mut ParserState,
    input: &[u8],
    slots: &mut [MaybeUninit<PsycEvent>],
) -> Result<(Kind, usize), Fault> {
    let mut filled = 0;
    for slot in slots {
        // Each arm writes its own event, so that the result of the parser is stored without a copy.
        match state.parser.step(input) {
            ParseStep::Routing(variable) => slot.write(whole(kind::ROUTING, variable)),
            ParseStep::Entity(variable) => slot.write(whole(kind::ENTITY, variable)),
            ParseStep::Body {
                method,
                data,
                sized,
            } => slot.write(event(kind::BODY, sized, method, data)),
            ParseStep::Complete => {
                slot.write(bare(kind::COMPLETE));
                return Ok((Kind::Ready, filled + 1));
            }
            ParseStep::NeedMore(wanted) => {
                state.wanted = wanted.unwrap_or(0);
                return Ok((Kind::Need, filled));
            }
            ParseStep::Error(error) => {
                if filled != 0 {
                    // The next call finds the error again, before any event.
                    return Ok((Kind::Ok, filled));
                }
                let detail = error.code.number().unsigned_abs();
                return Err(malformed(
                    error.code.sentence(),
                    u32::from(detail),
                    error.offset,
                ));
            }
            rest => slot.write(rarer(&rest)),
        };
        filled += 1;
    }
    Ok((Kind::Ok, filled))
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "this call is measured")]
const fn event(kind: u16, sized: bool, name: &[u8], value: &[u8]) -> PsycEvent {
    PsycEvent {
        kind,
        operation: 0,
        sized: sized as u8,
        reserved: 0,
        name: slice(name),
        value: slice(value),
        total: 0,
    }
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "this call is measured")]
const fn whole(kind: u16, variable: Variable<'_>) -> PsycEvent {
    PsycEvent {
        operation: variable.operator.byte(),
        ..event(kind, variable.sized, variable.name, variable.value)
    }
}

const fn bare(kind: u16) -> PsycEvent {
    PsycEvent {
        kind,
        operation: 0,
        sized: 0,
        reserved: 0,
        name: EMPTY,
        value: EMPTY,
        total: 0,
    }
}

const fn part(kind: u16, part: &[u8]) -> PsycEvent {
    PsycEvent {
        sized: 1,
        value: slice(part),
        ..bare(kind)
    }
}

/// Events that most packets do not have.
#[cold]
fn rarer(step: &ParseStep<'_>) -> PsycEvent {
    match *step {
        ParseStep::Routing(variable) => whole(kind::ROUTING, variable),
        ParseStep::Entity(variable) => whole(kind::ENTITY, variable),
        ParseStep::StateReset => bare(kind::STATE_RESET),
        ParseStep::StateResync => bare(kind::STATE_RESYNC),
        ParseStep::EntityStart {
            operator,
            name,
            total,
            part,
        } => PsycEvent {
            operation: operator.byte(),
            total,
            ..event(kind::ENTITY_START, true, name, part)
        },
        ParseStep::EntityCont(bytes) => part(kind::ENTITY_CONT, bytes),
        ParseStep::EntityEnd(bytes) => part(kind::ENTITY_END, bytes),
        ParseStep::Body {
            method,
            data,
            sized,
        } => event(kind::BODY, sized, method, data),
        ParseStep::BodyStart {
            method,
            total,
            part,
        } => PsycEvent {
            total,
            ..event(kind::BODY_START, true, method, part)
        },
        ParseStep::BodyCont(bytes) => part(kind::BODY_CONT, bytes),
        ParseStep::BodyEnd(bytes) => part(kind::BODY_END, bytes),
        ParseStep::Content { data, sized } => PsycEvent {
            sized: u8::from(sized),
            ..part(kind::CONTENT, data)
        },
        ParseStep::ContentStart { total, part: bytes } => PsycEvent {
            total,
            ..part(kind::CONTENT_START, bytes)
        },
        ParseStep::ContentCont(bytes) => part(kind::CONTENT_CONT, bytes),
        ParseStep::ContentEnd(bytes) => part(kind::CONTENT_END, bytes),
        ParseStep::Complete | ParseStep::NeedMore(_) | ParseStep::Error(_) => bare(kind::COMPLETE),
    }
}

pub(super) fn describe(
    c: &Caller,
    parser: *const PsycParser,
    out: *mut PsycParserInfo,
) -> Result<Kind, Fault> {
    c.info_size(out)?;
    let state = c.sealed::<ParserState>(parser.cast_mut())?;
    let parser = &state.parser;
    let mut info = zeroed::<PsycParserInfo>();
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    info.flags = flag(parser.is_clean(), CLEAN)
        | flag(parser.content_length().is_some(), CONTENT_SIZED)
        | flag(parser.value_length().is_some(), VALUE_SIZED);
    info.offset = parser.offset();
    info.content_length = parser.content_length().unwrap_or(0);
    info.value_length = parser.value_length().unwrap_or(0);
    info.wanted = state.wanted;
    c.write_info(out, &info)?;
    Ok(Kind::Ok)
}

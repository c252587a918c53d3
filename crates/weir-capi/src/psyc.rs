//! PSYC packets: bytes to parts and back.

use weir::ErrorCode;
use weir_psyc::{
    Content, Length, Modifier, Operator, Packet, PacketView, Parts, RenderError, Renderer,
    StateOperation, Variable,
};

use crate::error::{Fail, Kind};
use crate::handle::{Caller, memory};
use crate::page::{Page, Texts};
use crate::raw;

/// Flags of the items of a packet, as in the header.
const ROUTING: u32 = 16;
const ENTITY: u32 = 32;
const VALUE: u32 = 64;
const METHOD: u32 = 128;
const DATA: u32 = 256;

pub(crate) fn parse(
    c: &Caller,
    bytes: raw::Slice,
    used: *mut usize,
    out: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    c.room(used, 1)?;
    c.room(out, 1)?;
    let found = PacketView::parse(c.bytes(bytes)?).map_err(|error| {
        let mut fail = Fail::new(ErrorCode::Protocol, error.to_string());
        fail.offset = error.offset;
        fail
    })?;
    let Some((packet, size)) = found else {
        return Ok(Kind::Need);
    };
    let mut texts = Texts::default();
    texts.state = packet.state().map_or(0, |state| u32::from(state.byte()));
    let mut push = |variable: Variable<'_>, flag: u32| {
        let operator = u32::from(variable.operator.byte());
        texts.push(variable.name, flag, operator);
        texts.push(variable.value, VALUE, operator);
    };
    packet
        .routing()
        .for_each(|variable| push(variable, ROUTING));
    packet.entity().for_each(|variable| push(variable, ENTITY));
    for (part, flag) in [(packet.method(), METHOD), (packet.data(), DATA)] {
        if !part.is_empty() {
            texts.push(part, flag, u32::MAX);
        }
    }
    texts.page().give(c, out)?;
    c.write(used, size)?;
    Ok(Kind::Ok)
}

fn modifiers(
    c: &Caller,
    modifiers: *const raw::PsycModifier,
    count: usize,
) -> Result<Vec<Modifier<'_>>, Fail> {
    let modifiers = c.array(modifiers, count)?.iter();
    modifiers
        .map(|modifier| {
            let operator = u8::try_from(modifier.operation).ok();
            let operator = operator.and_then(Operator::from_byte);
            let wrong = || Fail::option("the operation of a modifier", modifier.operation);
            Ok(Modifier::new(
                operator.ok_or_else(wrong)?,
                c.short(modifier.name)?,
                c.bytes(modifier.value)?,
            ))
        })
        .collect()
}

pub(crate) fn render(
    c: &Caller,
    packet: *const raw::PsycPacket,
    out: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    if packet.is_null() {
        return Err(Fail::of(ErrorCode::NullPointer));
    }
    let given = c.options(packet)?;
    let routing = modifiers(c, given.routing, given.routing_count)?;
    let entity = modifiers(c, given.entity, given.entity_count)?;
    let state = match u8::try_from(given.state) {
        Ok(0) => None,
        Ok(b'=') => Some(StateOperation::Reset),
        Ok(b'?') => Some(StateOperation::Resync),
        _ => return Err(Fail::option("the state operation", given.state)),
    };
    let packet = Packet {
        routing: &routing,
        content: Content::Parts(Parts {
            state,
            entity: &entity,
            method: c.short(given.method)?,
            data: c.bytes(given.data)?,
        }),
        length: Length::Auto,
    };
    let wrong = |error: RenderError| Fail::new(ErrorCode::BadRequest, error.to_string());
    let size = Renderer::new().size(&packet).map_err(wrong)?;
    let mut bytes = memory(usize::try_from(size).unwrap_or(usize::MAX))?;
    Renderer::new().append(&packet, &mut bytes).map_err(wrong)?;
    Page::texts([bytes]).give(c, out)?;
    Ok(Kind::Ok)
}

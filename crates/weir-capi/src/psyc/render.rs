//! Renders packets and values.

use weir::ErrorCode;
use weir_psyc::{
    Item, Length, Modifier, Operator, PacketId, PacketSource, RenderError, Renderer,
    StateOperation, Step,
};

use super::raw::{
    PsycEntry, PsycItem, PsycModifier, PsycPacket, PsycPacketId, PsycSizes, PsycStep,
};
use super::{ELEMENTS_MAX, length, operator};
use crate::error::{Fault, Kind};
use crate::handle::{Caller, NonOverlapping, Output, zeroed};
use crate::raw::Slice;

/// Flags of a packet, as in the header.
const RAW: u32 = 1;
const THRESHOLD: u32 = 2;
/// Flags of sizes, as in the header.
const HAS_CONTENT: u32 = 1;
const WITH_LENGTH: u32 = 2;
/// Kinds of steps, as in the header.
const KEY: u32 = 6;
const POS: u32 = 8;
const FIELD: u32 = 9;

impl From<RenderError> for Fault {
    fn from(error: RenderError) -> Self {
        Self {
            code: ErrorCode::BadRequest,
            detail: u32::from(error.number()),
            offset: u64::MAX,
            text: error.sentence(),
        }
    }
}

/// A packet of the caller. Its modifiers are read in place.
struct PacketInput<'c> {
    inputs: NonOverlapping<'c>,
    routing: &'c [PsycModifier],
    entity: &'c [PsycModifier],
    raw: Option<&'c [u8]>,
    state: Option<StateOperation>,
    method: &'c [u8],
    data: &'c [u8],
    length: Length,
}

fn one_modifier<'c>(
    inputs: &NonOverlapping<'c>,
    given: &PsycModifier,
) -> Result<Modifier<'c>, Fault> {
    Ok(Modifier {
        operator: operator(given.operation)?,
        name: inputs.bytes(given.name)?,
        value: inputs.bytes(given.value)?,
        length: length(given.length)?,
    })
}

impl<'c> PacketInput<'c> {
    fn new(inputs: NonOverlapping<'c>, packet: &PsycPacket) -> Result<Self, Fault> {
        let state = match packet.state {
            0 => None,
            state if state == u32::from(b'=') => Some(StateOperation::Reset),
            state if state == u32::from(b'?') => Some(StateOperation::Resync),
            _ => {
                return Err(Fault::new(
                    ErrorCode::BadOption,
                    "a state operation is 0 for none, = or ?",
                ));
            }
        };
        if packet.flags & !(RAW | THRESHOLD) != 0 {
            return Err(Fault::new(ErrorCode::BadOption, "an unknown flag is set"));
        }
        let header = |ptr, count| {
            let modifiers = inputs.values::<PsycModifier>(ptr, count, ELEMENTS_MAX)?;
            for (at, modifier) in modifiers.iter().enumerate() {
                one_modifier(&inputs, modifier).map_err(|fault| fault.at_index(at))?;
            }
            Ok::<_, Fault>(modifiers)
        };
        let routing = header(packet.routing, packet.routing_count)?;
        let entity = header(packet.entity, packet.entity_count)?;
        let (method, data) = (inputs.bytes(packet.method)?, inputs.bytes(packet.data)?);
        let content = inputs.bytes(packet.content)?;
        let raw = packet.flags & RAW != 0;
        let parts = state.is_some() || !entity.is_empty() || !method.is_empty() || !data.is_empty();
        if (raw && parts) || (!raw && !content.is_empty()) {
            return Err(Fault::new(
                ErrorCode::BadOption,
                "a packet has either a raw content and its flag, or a state, modifiers, a method and data",
            ));
        }
        Ok(Self {
            routing,
            entity,
            raw: raw.then_some(content),
            state,
            method,
            data,
            length: length(packet.length)?,
            inputs,
        })
    }

    /// The modifiers, which `new` has validated.
    fn validated(&self, modifiers: &'c [PsycModifier]) -> impl Iterator<Item = Modifier<'_>> {
        let nothing = Modifier::new(Operator::Set, b"", b"");
        modifiers
            .iter()
            .map(move |given| one_modifier(&self.inputs, given).unwrap_or(nothing))
    }
}

impl PacketSource for PacketInput<'_> {
    fn routing(&self) -> impl Iterator<Item = Modifier<'_>> {
        self.validated(self.routing)
    }

    fn raw(&self) -> Option<&[u8]> {
        self.raw
    }

    fn state(&self) -> Option<StateOperation> {
        self.state
    }

    fn entity(&self) -> impl Iterator<Item = Modifier<'_>> {
        self.validated(self.entity)
    }

    fn method(&self) -> &[u8] {
        self.method
    }

    fn data(&self) -> &[u8] {
        self.data
    }

    fn length(&self) -> Length {
        self.length
    }
}

const fn renderer(packet: &PsycPacket) -> Renderer {
    if packet.flags & THRESHOLD == 0 {
        Renderer::new()
    } else {
        Renderer::with_threshold(packet.threshold)
    }
}

fn options(c: &Caller, packet: *const PsycPacket) -> Result<PsycPacket, Fault> {
    if packet.is_null() {
        return Err(ErrorCode::NullPointer.into());
    }
    Ok(c.options(packet)?)
}

/// Writes `total` bytes, if there is room for them.
fn finish(
    c: &Caller,
    out: Output<'_, u8>,
    size: *mut usize,
    total: u64,
    write: impl FnOnce(&mut [u8]) -> Result<usize, RenderError>,
) -> Result<Kind, Fault> {
    let total = usize::try_from(total).map_err(|_| ErrorCode::BadLength)?;
    if total > out.capacity() {
        c.write(size, total)?;
        return Ok(Kind::Need);
    }
    let written = write(out.into_bytes())?;
    c.write(size, written)?;
    Ok(Kind::Ok)
}

pub(super) fn measure(
    c: &Caller,
    packet: *const PsycPacket,
    out: *mut PsycSizes,
) -> Result<Kind, Fault> {
    let given = options(c, packet)?;
    c.info_size(out)?;
    let (inputs, _) = c.output(std::ptr::null_mut::<u8>(), 0)?;
    let found = renderer(&given).sizes(&PacketInput::new(inputs, &given)?)?;
    let mut sizes = zeroed::<PsycSizes>();
    if let Some(content) = found.content {
        sizes.flags = HAS_CONTENT | if found.sized { WITH_LENGTH } else { 0 };
        sizes.content = content;
    }
    sizes.routing = found.routing;
    sizes.total = found.total;
    c.write_info(out, &sizes)?;
    Ok(Kind::Ok)
}

pub(super) fn packet(
    c: &Caller,
    packet: *const PsycPacket,
    out: *mut u8,
    room: usize,
    size: *mut usize,
) -> Result<Kind, Fault> {
    c.check_output(size, 1)?;
    let given = options(c, packet)?;
    let (inputs, out) = c.output(out, room)?;
    let renderer = renderer(&given);
    let packet = PacketInput::new(inputs, &given)?;
    let capacity = out.capacity();
    // The size is computed only once: a render into a buffer that is too small returns it.
    match renderer.render(&packet, out.into_bytes()) {
        Ok(written) => {
            c.write(size, written)?;
            Ok(Kind::Ok)
        }
        Err(RenderError::BufferTooSmall(needed)) => {
            let needed = usize::try_from(needed).map_err(|_| ErrorCode::BadLength)?;
            debug_assert!(needed > capacity, "the buffer is too small");
            c.write(size, needed)?;
            Ok(Kind::Need)
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) fn modifier(
    c: &Caller,
    modifier: *const PsycModifier,
    threshold: u64,
    out: *mut u8,
    room: usize,
    size: *mut usize,
) -> Result<Kind, Fault> {
    c.check_output(size, 1)?;
    let given = c.optional(modifier)?.ok_or(ErrorCode::NullPointer)?;
    let (inputs, out) = c.output(out, room)?;
    let given = one_modifier(&inputs, &given)?;
    let renderer = Renderer::with_threshold(threshold);
    finish(c, out, size, renderer.modifier_size(&given)?, |out| {
        renderer.render_modifier(&given, out)
    })
}

fn one_item<'c>(inputs: &NonOverlapping<'c>, given: &PsycItem) -> Result<Item<'c>, Fault> {
    let ty = inputs.bytes(given.r#type)?;
    if given.reserved != 0 {
        return Err(Fault::new(ErrorCode::BadOption, "a reserved field is set"));
    }
    Ok(Item {
        ty: (!ty.is_empty()).then_some(ty),
        value: inputs.bytes(given.value)?,
        length: length(given.length)?,
    })
}

/// The rest of `out`, starting at byte `at`.
fn after(out: &mut [u8], at: usize) -> &mut [u8] {
    out.get_mut(at..).unwrap_or_default()
}

/// The type before a list or dict, if it has one.
fn type_of<'c>(inputs: &NonOverlapping<'c>, ty: Slice) -> Result<Option<&'c [u8]>, Fault> {
    let ty = inputs.bytes(ty)?;
    Ok((!ty.is_empty()).then_some(ty))
}

#[allow(clippy::too_many_arguments, reason = "the header has these parameters")]
pub(super) fn list(
    c: &Caller,
    ty: Slice,
    items: *const PsycItem,
    count: usize,
    threshold: u64,
    out: *mut u8,
    room: usize,
    size: *mut usize,
) -> Result<Kind, Fault> {
    c.check_output(size, 1)?;
    let renderer = Renderer::with_threshold(threshold);
    let (inputs, out) = c.output(out, room)?;
    let ty = type_of(&inputs, ty)?;
    let items = inputs.values(items, count, ELEMENTS_MAX)?;
    let mut total = renderer.list_size(ty, &[])?;
    for (at, item) in items.iter().enumerate() {
        let item = one_item(&inputs, item).map_err(|fault| fault.at_index(at))?;
        total += renderer.element_size(&item)?;
    }
    finish(c, out, size, total, |out| {
        let mut at = renderer.list(ty, &[], out)?;
        for item in items.iter().flat_map(|item| one_item(&inputs, item)) {
            at += renderer.element(&item, after(out, at))?;
        }
        Ok(at)
    })
}

struct Entry<'c> {
    key: &'c [u8],
    length: Length,
    value: Item<'c>,
}

fn one_entry<'c>(inputs: &NonOverlapping<'c>, given: &PsycEntry) -> Result<Entry<'c>, Fault> {
    if given.reserved != 0 {
        return Err(Fault::new(ErrorCode::BadOption, "a reserved field is set"));
    }
    Ok(Entry {
        key: inputs.bytes(given.key)?,
        length: length(given.key_length)?,
        value: one_item(inputs, &given.value)?,
    })
}

#[allow(clippy::too_many_arguments, reason = "the header has these parameters")]
pub(super) fn dict(
    c: &Caller,
    ty: Slice,
    entries: *const PsycEntry,
    count: usize,
    threshold: u64,
    out: *mut u8,
    room: usize,
    size: *mut usize,
) -> Result<Kind, Fault> {
    c.check_output(size, 1)?;
    let renderer = Renderer::with_threshold(threshold);
    let (inputs, out) = c.output(out, room)?;
    let ty = type_of(&inputs, ty)?;
    let entries = inputs.values(entries, count, ELEMENTS_MAX)?;
    let mut total = renderer.dict_size(ty, &[])?;
    for (at, entry) in entries.iter().enumerate() {
        let entry = one_entry(&inputs, entry).map_err(|fault| fault.at_index(at))?;
        total += renderer.key_size(entry.key, entry.length)?;
        total += renderer.dict_value_size(&entry.value)?;
    }
    finish(c, out, size, total, |out| {
        let mut at = renderer.dict(ty, &[], out)?;
        for entry in entries.iter().flat_map(|entry| one_entry(&inputs, entry)) {
            at += renderer.key(entry.key, entry.length, after(out, at))?;
            at += renderer.dict_value(&entry.value, after(out, at))?;
        }
        Ok(at)
    })
}

pub(super) fn key(
    c: &Caller,
    key: Slice,
    with: u32,
    threshold: u64,
    out: *mut u8,
    room: usize,
    size: *mut usize,
) -> Result<Kind, Fault> {
    c.check_output(size, 1)?;
    let renderer = Renderer::with_threshold(threshold);
    let with = length(with)?;
    let (inputs, out) = c.output(out, room)?;
    let key = inputs.bytes(key)?;
    finish(c, out, size, renderer.key_size(key, with)?, |out| {
        renderer.key(key, with, out)
    })
}

pub(super) fn value(
    c: &Caller,
    value: *const PsycItem,
    threshold: u64,
    out: *mut u8,
    room: usize,
    size: *mut usize,
) -> Result<Kind, Fault> {
    c.check_output(size, 1)?;
    let renderer = Renderer::with_threshold(threshold);
    let value = c.optional(value)?.ok_or(ErrorCode::NullPointer)?;
    let (inputs, out) = c.output(out, room)?;
    let value = one_item(&inputs, &value)?;
    finish(c, out, size, renderer.dict_value_size(&value)?, |out| {
        renderer.dict_value(&value, out)
    })
}

fn one_step<'c>(inputs: &NonOverlapping<'c>, given: &PsycStep) -> Result<Step<'c>, Fault> {
    let name = inputs.bytes(given.name)?;
    match given.kind {
        POS => Ok(Step::Pos(given.number)),
        FIELD => Ok(Step::Field(name)),
        KEY => Ok(Step::Key(name, length(given.length)?)),
        _ => Err(Fault::new(
            ErrorCode::BadOption,
            "a step is a position, a field or a key",
        )),
    }
}

/// The size of the rendered steps. Fails for an invalid step.
fn steps_size(
    inputs: &NonOverlapping<'_>,
    steps: &[PsycStep],
    renderer: Renderer,
) -> Result<u64, Fault> {
    let mut total = 0;
    for (at, step) in steps.iter().enumerate() {
        let step = one_step(inputs, step).map_err(|fault| fault.at_index(at))?;
        total += renderer.step_size(&step)?;
    }
    Ok(total)
}

/// Renders the steps, which `steps_size` has validated, to the start of `out`.
fn render_steps(
    inputs: &NonOverlapping<'_>,
    steps: &[PsycStep],
    renderer: Renderer,
    out: &mut [u8],
) -> Result<usize, RenderError> {
    let mut at = 0;
    for step in steps.iter().flat_map(|step| one_step(inputs, step)) {
        at += renderer.step(&step, after(out, at))?;
    }
    Ok(at)
}

pub(super) fn index(
    c: &Caller,
    steps: *const PsycStep,
    count: usize,
    threshold: u64,
    out: *mut u8,
    room: usize,
    size: *mut usize,
) -> Result<Kind, Fault> {
    c.check_output(size, 1)?;
    let renderer = Renderer::with_threshold(threshold);
    let (inputs, out) = c.output(out, room)?;
    let steps = inputs.values(steps, count, ELEMENTS_MAX)?;
    let total = steps_size(&inputs, steps, renderer)?;
    finish(c, out, size, total, |out| {
        render_steps(&inputs, steps, renderer, out)
    })
}

#[allow(clippy::too_many_arguments, reason = "the header has these parameters")]
pub(super) fn update(
    c: &Caller,
    steps: *const PsycStep,
    count: usize,
    operation: u32,
    item: *const PsycItem,
    threshold: u64,
    out: *mut u8,
    room: usize,
    size: *mut usize,
) -> Result<Kind, Fault> {
    c.check_output(size, 1)?;
    let renderer = Renderer::with_threshold(threshold);
    let operator = operator(operation)?;
    let item = c.optional(item)?.ok_or(ErrorCode::NullPointer)?;
    let (inputs, out) = c.output(out, room)?;
    let item = one_item(&inputs, &item)?;
    let steps = inputs.values(steps, count, ELEMENTS_MAX)?;
    let total = renderer.update_size(&[], operator, &item)? + steps_size(&inputs, steps, renderer)?;
    finish(c, out, size, total, |out| {
        let mut at = render_steps(&inputs, steps, renderer, out)?;
        at += renderer.update(&[], operator, &item, after(out, at))?;
        Ok(at)
    })
}

pub(super) fn packet_id(
    c: &Caller,
    id: *const PsycPacketId,
    out: *mut u8,
    room: usize,
    size: *mut usize,
) -> Result<Kind, Fault> {
    c.check_output(size, 1)?;
    let given = c.optional(id)?.ok_or(ErrorCode::NullPointer)?;
    let (inputs, out) = c.output(out, room)?;
    let id = PacketId {
        context: inputs.bytes(given.context)?,
        source: inputs.bytes(given.source)?,
        target: inputs.bytes(given.target)?,
        counter: inputs.bytes(given.counter)?,
        fragment: inputs.bytes(given.fragment)?,
    };
    finish(c, out, size, Renderer::packet_id_size(&id)?, |out| {
        Renderer::packet_id(&id, out)
    })
}

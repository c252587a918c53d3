//! Parses lists, dicts, indexes, updates, structs, tables and packet ids.

use weir::ErrorCode;
use weir_psyc::{
    ContainerError, Dict, DictEvent, Element, Fields, Index, IndexStep, ListStep, ListStream,
    PacketId, PacketIdError, Place, StructError, TableError, TableEvent, TableWalk, Update,
    UpdateEvent,
};

use super::raw::{PsycCursor, PsycPacketId, PsycPart};
use super::{container, malformed, optional, slice};
use crate::error::{EMPTY, Fault, Kind};
use crate::handle::{Caller, NonOverlapping, Output};
use crate::raw::Slice;

const LIST: u32 = 1;
const DICT: u32 = 2;
const INDEX: u32 = 3;
const UPDATE: u32 = 4;
const STRUCT: u32 = 6;
const TABLE: u32 = 7;

/// Kinds of parts, as in the header.
mod kind {
    pub(super) const TYPE: u32 = 1;
    pub(super) const ELEM: u32 = 2;
    pub(super) const ELEM_START: u32 = 3;
    pub(super) const ELEM_CONT: u32 = 4;
    pub(super) const ELEM_END: u32 = 5;
    pub(super) const KEY: u32 = 6;
    pub(super) const VALUE: u32 = 7;
    pub(super) const POS: u32 = 8;
    pub(super) const FIELD: u32 = 9;
    pub(super) const OP: u32 = 10;
}

/// Error numbers of a packet id, in addition to those of a list.
const NOT_FIVE: u32 = 14;
const TYPED: u32 = 15;

impl From<ContainerError> for Fault {
    fn from(error: ContainerError) -> Self {
        container(error)
    }
}

/// The numbers are those of the header.
impl From<StructError> for Fault {
    fn from(error: StructError) -> Self {
        match error {
            StructError::Value(error) => container(error),
            StructError::TooMany => {
                malformed("a struct has more elements than fields", 17, u64::MAX)
            }
            StructError::Declaration(error) => malformed(
                "the declaration of a struct is not a list",
                18,
                error.offset,
            ),
            _ => malformed(
                "a field of a struct has no type, or has a value",
                16,
                u64::MAX,
            ),
        }
    }
}

/// The numbers are those of the header.
impl From<TableError> for Fault {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Dict(error) | TableError::Row(error) => container(error),
            TableError::NotAStruct => malformed("a row of a table is not a struct", 19, u64::MAX),
            TableError::Width => {
                malformed("a width list does not start with its width", 20, u64::MAX)
            }
            _ => malformed("the cells do not fill the last row", 21, u64::MAX),
        }
    }
}

const NOTHING: PsycPart = PsycPart {
    kind: 0,
    operation: 0,
    r#type: EMPTY,
    value: EMPTY,
    number: 0,
    sized: 0,
    reserved: 0,
};

fn of(kind: u32, value: &[u8], sized: bool) -> PsycPart {
    PsycPart {
        kind,
        value: slice(value),
        sized: u32::from(sized),
        ..NOTHING
    }
}

fn typed(kind: u32, element: Element<'_>) -> PsycPart {
    PsycPart {
        r#type: optional(element.ty),
        ..of(kind, element.value, element.sized)
    }
}

fn type_of(ty: &[u8]) -> PsycPart {
    PsycPart {
        kind: kind::TYPE,
        r#type: slice(ty),
        ..NOTHING
    }
}

fn step(step: IndexStep<'_>) -> PsycPart {
    match step {
        IndexStep::Pos(number) => PsycPart {
            kind: kind::POS,
            number,
            ..NOTHING
        },
        IndexStep::Field(name) => of(kind::FIELD, name, false),
        IndexStep::Key(key) => of(kind::KEY, key.key, key.sized),
    }
}

/// The result of one step of a walk.
enum WalkStep {
    Part(PsycPart),
    Need,
    Done,
}

impl WalkStep {
    fn next<T, E>(event: Option<Result<T, E>>, part: impl Fn(T) -> PsycPart) -> Result<Self, E> {
        Ok(match event.transpose()? {
            Some(event) => Self::Part(part(event)),
            None => Self::Done,
        })
    }
}

/// The next part after `place`, and the place after that part.
fn next(what: u32, complete: bool, bytes: &[u8], place: Place) -> Result<(WalkStep, Place), Fault> {
    match what {
        DICT => {
            let mut dict = Dict::resume(bytes, place);
            let found = WalkStep::next(dict.next(), |event| match event {
                DictEvent::Type(ty) => type_of(ty),
                DictEvent::Key(key) => of(kind::KEY, key.key, key.sized),
                DictEvent::Value(element) => typed(kind::VALUE, element),
            })?;
            Ok((found, dict.place()))
        }
        INDEX => {
            let mut index = Index::resume(bytes, place);
            let found = WalkStep::next(index.next(), step)?;
            Ok((found, index.place()))
        }
        UPDATE => {
            let mut update = Update::resume(bytes, place);
            let found = WalkStep::next(update.next(), |event| match event {
                UpdateEvent::Step(found) => step(found),
                UpdateEvent::Op { operator, ty } => PsycPart {
                    kind: kind::OP,
                    operation: u32::from(operator.byte()),
                    r#type: optional(ty),
                    ..NOTHING
                },
                UpdateEvent::Value { value, sized } => of(kind::VALUE, value, sized),
            })?;
            Ok((found, update.place()))
        }
        TABLE => {
            let mut table = TableWalk::resume(bytes, place);
            let found = WalkStep::next(table.next(), |event| match event {
                TableEvent::Row { key, ty } => PsycPart {
                    r#type: optional(ty),
                    ..of(kind::KEY, key.key, key.sized)
                },
                TableEvent::Column(element) => typed(kind::ELEM, element),
            })?;
            Ok((found, table.place()))
        }
        _ => {
            let mut stream = ListStream::resume(place);
            let found = match stream.step(bytes, complete) {
                ListStep::Type(ty) => WalkStep::Part(type_of(ty)),
                ListStep::Elem(element) => WalkStep::Part(typed(kind::ELEM, element)),
                ListStep::ElemStart { ty, total, part } => WalkStep::Part(PsycPart {
                    r#type: optional(ty),
                    number: total,
                    ..of(kind::ELEM_START, part, true)
                }),
                ListStep::ElemCont(part) => WalkStep::Part(of(kind::ELEM_CONT, part, true)),
                ListStep::ElemEnd(part) => WalkStep::Part(of(kind::ELEM_END, part, true)),
                ListStep::End => WalkStep::Done,
                ListStep::NeedMore => WalkStep::Need,
                ListStep::Error(error) => return Err(error.into()),
            };
            Ok((found, stream.place().unwrap_or(place)))
        }
    }
}

/// The next part of a struct after `place`, and the place after that part. In a place, `at` and
/// `state` are for the value. `missing` and `scanned[0]` are for the declaration. `scanned[1]` is 1
/// between a field and its value.
fn next_field(
    declaration: &[u8],
    bytes: &[u8],
    place: Place,
) -> Result<(WalkStep, Place), StructError> {
    let [state, between, _] = place.scanned;
    let part = |at, state| Place {
        at,
        state,
        ..Place::default()
    };
    let places = [part(place.missing, state), part(place.at, place.state)];
    let mut fields = Fields::resume(declaration, bytes, places);
    let Some(field) = fields.next().transpose()? else {
        return Ok((WalkStep::Done, place));
    };
    let [names, values] = fields.places();
    let after = Place {
        missing: names.at,
        scanned: [names.state, 0, 0],
        ..values
    };
    let name = of(kind::FIELD, field.name, false);
    let (found, after) = match field.element {
        Some(element) if between != 0 => (typed(kind::VALUE, element), after),
        Some(_) => {
            let scanned = [state, 1, 0];
            (name, Place { scanned, ..place })
        }
        None => (name, after),
    };
    Ok((WalkStep::Part(found), after))
}

pub(super) fn walk_struct(
    c: &Caller,
    cursor: *mut PsycCursor,
    declaration: Slice,
    bytes: Slice,
    parts: *mut PsycPart,
    room: usize,
    count: *mut usize,
) -> Result<Kind, Fault> {
    let (inputs, out) = outputs(c, cursor, parts, room, count)?;
    check_cursor(c, cursor, &[declaration, bytes])?;
    let declaration = inputs.bytes(declaration)?;
    let input = inputs.bytes(bytes)?;
    let mut given = cursor_of(c, &inputs, cursor, &out)?;
    if (given.what, given.partial) != (STRUCT, 0) {
        return Err(Fault::new(
            ErrorCode::BadOption,
            "the cursor of a struct is for 6, and never partial",
        ));
    }
    let (kind, filled, place) = fill(place_of(&given), out, |place| {
        Ok(next_field(declaration, input, place)?)
    })?;
    set_place(&mut given, place);
    c.write(cursor, given)?;
    c.write(count, filled)?;
    Ok(kind)
}

/// Checks the output of a walk.
fn outputs(
    c: &Caller,
    cursor: *mut PsycCursor,
    parts: *mut PsycPart,
    room: usize,
    count: *mut usize,
) -> Result<(NonOverlapping<'_>, Output<'_, PsycPart>), Fault> {
    c.check_output(count, 1)?;
    c.check_output(cursor, 1)?;
    Ok(c.output(parts, room)?)
}

/// Checks that the cursor, which the call also writes, does not overlap the bytes that it reads.
fn check_cursor(c: &Caller, cursor: *mut PsycCursor, read: &[Slice]) -> Result<(), Fault> {
    let (memory, _) = c.output(cursor, 1)?;
    for bytes in read {
        memory.bytes(*bytes)?;
    }
    Ok(())
}

/// Reads the cursor of the caller. Fails if there is no room for a part.
fn cursor_of(
    c: &Caller,
    inputs: &NonOverlapping<'_>,
    cursor: *mut PsycCursor,
    out: &Output<'_, PsycPart>,
) -> Result<PsycCursor, Fault> {
    inputs.check(cursor.cast_const(), 1)?;
    let given = c.optional(cursor.cast_const())?;
    if out.capacity() == 0 {
        return Err(Fault::new(
            ErrorCode::BadLength,
            "there is no room for a part",
        ));
    }
    Ok(given.ok_or(ErrorCode::NullPointer)?)
}

const fn place_of(cursor: &PsycCursor) -> Place {
    let [at, state, missing, scanned @ ..] = cursor.state;
    Place {
        at,
        state,
        missing,
        scanned,
    }
}

const fn set_place(cursor: &mut PsycCursor, place: Place) {
    let [one, two, three] = place.scanned;
    cursor.state = [place.at, place.state, place.missing, one, two, three];
}

/// Fills `out`, starting at `place`. Returns how it ended, the number of parts, and the place after
/// them.
fn fill(
    mut place: Place,
    out: Output<'_, PsycPart>,
    next: impl Fn(Place) -> Result<(WalkStep, Place), Fault>,
) -> Result<(Kind, usize, Place), Fault> {
    let mut filled = 0;
    for slot in out.into_slots() {
        let (found, after) = match next(place) {
            Ok(found) => found,
            // The next call finds the error again, before any part.
            Err(_) if filled != 0 => break,
            Err(error) => return Err(error),
        };
        place = after;
        match found {
            WalkStep::Part(part) => slot.write(part),
            WalkStep::Done => return Ok((Kind::Done, filled, place)),
            WalkStep::Need => return Ok((Kind::Need, filled, place)),
        };
        filled += 1;
    }
    Ok((Kind::Ok, filled, place))
}

pub(super) fn walk(
    c: &Caller,
    cursor: *mut PsycCursor,
    bytes: Slice,
    parts: *mut PsycPart,
    room: usize,
    count: *mut usize,
    used: *mut usize,
) -> Result<Kind, Fault> {
    c.check_output(used, 1)?;
    let (inputs, out) = outputs(c, cursor, parts, room, count)?;
    check_cursor(c, cursor, &[bytes])?;
    let input = inputs.bytes(bytes)?;
    let mut given = cursor_of(c, &inputs, cursor, &out)?;
    let what = given.what;
    if !matches!(what, LIST..=UPDATE | TABLE) || given.partial > u32::from(what == LIST) {
        return Err(Fault::new(
            ErrorCode::BadOption,
            "a cursor is for 1 a list, 2 a dict, 3 an index, 4 an update or 7 a table; only a list may be partial",
        ));
    }
    let start = place_of(&given);
    // For a list, the call gets the bytes after the position of the walk; for other values, all
    // bytes.
    let walked = |place: Place| match what {
        LIST => usize::try_from(place.at.wrapping_sub(start.at)).unwrap_or(usize::MAX),
        _ => 0,
    };
    let (kind, filled, place) = fill(start, out, |place| {
        let rest = input.get(walked(place)..).unwrap_or_default();
        next(what, given.partial == 0, rest, place)
    })?;
    set_place(&mut given, place);
    c.write(cursor, given)?;
    c.write(used, walked(place).min(input.len()))?;
    c.write(count, filled)?;
    Ok(kind)
}

pub(super) fn packet_id(c: &Caller, bytes: Slice, out: *mut PsycPacketId) -> Result<Kind, Fault> {
    c.check_output(out, 1)?;
    let id = PacketId::parse(c.bytes(bytes)?).map_err(|error| match error {
        PacketIdError::List(error) => container(error),
        PacketIdError::Typed => malformed("a packet id has no types", TYPED, u64::MAX),
        _ => malformed("a packet id has exactly five elements", NOT_FIVE, u64::MAX),
    })?;
    let found = PsycPacketId {
        context: slice(id.context),
        source: slice(id.source),
        target: slice(id.target),
        counter: slice(id.counter),
        fragment: slice(id.fragment),
    };
    c.write(out, found)?;
    Ok(Kind::Ok)
}

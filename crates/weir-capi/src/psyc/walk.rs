//! Lists, dicts, indexes, updates and packet ids.

use weir::ErrorCode;
use weir_psyc::{
    ContainerError, Dict, DictEvent, Element, Index, IndexStep, ListStep, ListStream, PacketId,
    PacketIdError, Place, Update, UpdateEvent,
};

use super::raw::{PsycCursor, PsycPacketId, PsycPart};
use super::{container, malformed, optional, slice};
use crate::error::{EMPTY, Fault, Kind};
use crate::handle::Caller;
use crate::raw::Slice;

const LIST: u32 = 1;
const DICT: u32 = 2;
const INDEX: u32 = 3;
const UPDATE: u32 = 4;

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

/// Numbers of errors of a packet id, after those of a list.
const NOT_FIVE: u32 = 14;
const TYPED: u32 = 15;

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

/// What one step of a walk finds.
enum WalkStep {
    Part(PsycPart),
    Need,
    Done,
}

impl WalkStep {
    fn next<T>(
        event: Option<Result<T, ContainerError>>,
        part: impl Fn(T) -> PsycPart,
    ) -> Result<Self, ContainerError> {
        Ok(match event.transpose()? {
            Some(event) => Self::Part(part(event)),
            None => Self::Done,
        })
    }
}

/// The next part after `place`, and the place after it.
fn next(
    what: u32,
    complete: bool,
    bytes: &[u8],
    place: Place,
) -> Result<(WalkStep, Place), ContainerError> {
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
                ListStep::Error(error) => return Err(error),
            };
            Ok((found, stream.place().unwrap_or(place)))
        }
    }
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
    c.room(count, 1)?;
    c.room(used, 1)?;
    c.room(cursor, 1)?;
    let (apart, out) = c.output(parts, room)?;
    let input = apart.bytes(bytes)?;
    apart.check(cursor.cast_const(), 1)?;
    let given = c.optional(cursor.cast_const())?;
    let mut given = given.ok_or(ErrorCode::NullPointer)?;
    let what = given.what;
    if !(LIST..=UPDATE).contains(&what) || given.partial > u32::from(what == LIST) {
        return Err(Fault::new(
            ErrorCode::BadOption,
            "a cursor is for 1 a list, 2 a dict, 3 an index or 4 an update; only a list may be partial",
        ));
    }
    if room == 0 {
        return Err(Fault::new(
            ErrorCode::BadLength,
            "there is no room for a part",
        ));
    }
    let [at, state, missing, scanned @ ..] = given.state;
    let start = Place {
        at,
        state,
        missing,
        scanned,
    };
    let mut place = start;
    let mut filled = 0;
    let mut kind = Kind::Ok;
    for slot in out.into_slots() {
        // The bytes of a list are given from where the walk stands, those of the others from the start.
        let walked = usize::try_from(place.at.wrapping_sub(at)).unwrap_or(usize::MAX);
        let rest = match what {
            LIST => input.get(walked..).unwrap_or_default(),
            _ => input,
        };
        match next(what, given.partial == 0, rest, place) {
            Ok((WalkStep::Part(part), after)) => {
                slot.write(part);
                filled += 1;
                place = after;
            }
            Ok((WalkStep::Done, after)) => {
                place = after;
                kind = Kind::Done;
                break;
            }
            Ok((WalkStep::Need, after)) => {
                place = after;
                kind = Kind::Need;
                break;
            }
            // The next call finds it again, with nothing in front of it.
            Err(_) if filled != 0 => break,
            Err(error) => return Err(container(error)),
        }
    }
    let walked = match what {
        LIST => usize::try_from(place.at.wrapping_sub(at)).unwrap_or(input.len()),
        _ => 0,
    };
    let [one, two, three] = place.scanned;
    given.state = [place.at, place.state, place.missing, one, two, three];
    c.write(cursor, given)?;
    c.write(used, walked.min(input.len()))?;
    c.write(count, filled)?;
    Ok(kind)
}

pub(super) fn packet_id(c: &Caller, bytes: Slice, out: *mut PsycPacketId) -> Result<Kind, Fault> {
    c.room(out, 1)?;
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

//! Text templates.

use weir::ErrorCode;
use weir_psyc::{Progress, Rendered, Template, TemplatePlace};

use super::raw::{PsycBinding, PsycCursor, PsycTemplate};
use super::{ELEMENTS_MAX, slice};
use crate::error::{Fault, Kind};
use crate::handle::{Caller, NonOverlapping};
use crate::raw::Slice;

/// `WEIR_PSYC_TEXT`.
const TEXT: u32 = 5;

pub(super) fn standard(c: &Caller, word: Slice, out: *mut Slice) -> Result<Kind, Fault> {
    c.check_output(out, 1)?;
    let Some(template) = weir_psyc::standard_template(c.bytes(word)?) else {
        return Ok(Kind::Absent);
    };
    c.write(out, slice(template.text()))?;
    Ok(Kind::Ok)
}

/// The template of the caller. It must overlap neither the output nor the cursor.
fn template<'c>(
    inputs: &NonOverlapping<'c>,
    cursor: &NonOverlapping<'c>,
    given: &PsycTemplate,
) -> Result<Template<'c>, Fault> {
    if given.reserved != 0 {
        return Err(Fault::new(ErrorCode::BadOption, "a reserved field is set"));
    }
    for part in [given.text, given.open, given.close] {
        cursor.bytes(part)?;
    }
    let bracket = |slice: Slice, default: &'static [u8]| {
        let bytes: &'c [u8] = inputs.bytes(slice)?;
        Ok::<_, Fault>(if bytes.is_empty() { default } else { bytes })
    };
    let (open, close) = (bracket(given.open, b"[")?, bracket(given.close, b"]")?);
    let template = Template::new(inputs.bytes(given.text)?).with_brackets(open, close);
    template.ok_or(Fault::new(ErrorCode::BadOption, "a bracket is empty"))
}

/// The bindings of the caller. They must overlap neither the output nor the cursor.
fn checked_bindings<'c>(
    inputs: &NonOverlapping<'c>,
    cursor: &NonOverlapping<'c>,
    ptr: *const PsycBinding,
    count: usize,
) -> Result<&'c [PsycBinding], Fault> {
    let bindings = inputs.values(ptr, count, ELEMENTS_MAX)?;
    cursor.check(ptr, count)?;
    for (at, binding) in bindings.iter().enumerate() {
        for part in [binding.name, binding.value] {
            let read = inputs.bytes(part).and_then(|_| cursor.bytes(part));
            read.map_err(|fault| fault.at_index(at))?;
        }
    }
    Ok(bindings)
}

#[allow(clippy::too_many_arguments, reason = "the header has these parameters")]
pub(super) fn render(
    c: &Caller,
    text: *const PsycTemplate,
    cursor: *mut PsycCursor,
    bindings: *const PsycBinding,
    count: usize,
    out: *mut u8,
    room: usize,
    written: *mut usize,
) -> Result<Kind, Fault> {
    c.check_output(written, 1)?;
    c.check_output(cursor, 1)?;
    if text.is_null() {
        return Err(ErrorCode::NullPointer.into());
    }
    let given = c.options(text)?;
    let (inputs, out) = c.output(out, room)?;
    let (cursor_memory, _) = c.output(cursor, 1)?;
    let template = template(&inputs, &cursor_memory, &given)?;
    let bindings = checked_bindings(&inputs, &cursor_memory, bindings, count)?;
    inputs.check(cursor.cast_const(), 1)?;
    let position = c.optional(cursor.cast_const())?;
    let mut position = position.ok_or(ErrorCode::NullPointer)?;
    if (position.what, position.partial) != (TEXT, 0) {
        return Err(Fault::new(
            ErrorCode::BadOption,
            "the cursor of a text is for 5, and never partial",
        ));
    }
    let lookup = |name: &[u8]| {
        let found = bindings.iter().rev().find(|binding| {
            let bytes = inputs.bytes(binding.name);
            bytes.is_ok_and(|bytes| bytes == name)
        })?;
        inputs.bytes(found.value).ok()
    };
    let [from, to, is_name, done, substituted, _] = position.state;
    let mut place = TemplatePlace {
        piece: [from, to],
        is_name: is_name != 0,
        written: done,
        substituted: substituted != 0,
    };
    let progress = template.render_on(&mut place, lookup, out.into_bytes());
    let (kind, bytes) = match progress {
        Progress::Incomplete(bytes) => (Kind::Need, bytes),
        Progress::Done(bytes, Rendered::Substituted) => (Kind::Done, bytes),
        Progress::Done(bytes, Rendered::NoSubstitution) => (Kind::Absent, bytes),
    };
    let [from, to] = place.piece;
    let (is_name, substituted) = (u64::from(place.is_name), u64::from(place.substituted));
    position.state = [from, to, is_name, place.written, substituted, 0];
    c.write(cursor, position)?;
    c.write(written, bytes)?;
    Ok(kind)
}

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

fn template<'c>(inputs: &NonOverlapping<'c>, given: &PsycTemplate) -> Result<Template<'c>, Fault> {
    let bracket = |slice: Slice, default: &'static [u8]| {
        let bytes: &'c [u8] = inputs.bytes(slice)?;
        Ok::<_, Fault>(if bytes.is_empty() { default } else { bytes })
    };
    let (open, close) = (bracket(given.open, b"[")?, bracket(given.close, b"]")?);
    let template = Template::new(inputs.bytes(given.text)?).with_brackets(open, close);
    template.ok_or(Fault::new(ErrorCode::BadOption, "a bracket is empty"))
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
    let template = template(&inputs, &given)?;
    let bindings = inputs.values(bindings, count, ELEMENTS_MAX)?;
    for (at, binding) in bindings.iter().enumerate() {
        for part in [binding.name, binding.value] {
            inputs.bytes(part).map_err(|fault| fault.at_index(at))?;
        }
    }
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

//! Describes names and bytes, and parses numbers.

use weir_psyc::circuit::{CircuitProtocol, classify};
use weir_psyc::{Method, NumberError, RoutingVariable, VarType, class, keyword};

use super::raw::{PsycCompact, PsycName};
use super::{ELEMENTS_MAX, malformed, slice};
use crate::error::{Fault, Kind};
use crate::handle::{Caller, zeroed};
use crate::raw::Slice;

/// Flags of a name, as in the header.
const IS_KEYWORD: u32 = 1;
const IS_LIST: u32 = 2;

const NOT_A_KEYWORD: Fault = malformed(
    "not a keyword: subwords of letters and digits, each after an underscore",
    0,
    u64::MAX,
);

fn number(c: &Caller, result: Result<i64, NumberError>, out: *mut i64) -> Result<Kind, Fault> {
    let wrong = malformed("not a decimal number of 64 bits", 0, u64::MAX);
    c.write(out, result.map_err(|_| wrong)?)?;
    Ok(Kind::Ok)
}

pub(super) fn integer(c: &Caller, bytes: Slice, out: *mut i64) -> Result<Kind, Fault> {
    c.check_output(out, 1)?;
    number(c, weir_psyc::parse_integer(c.bytes(bytes)?), out)
}

pub(super) fn date(c: &Caller, bytes: Slice, out: *mut i64) -> Result<Kind, Fault> {
    c.check_output(out, 1)?;
    number(c, weir_psyc::parse_date(c.bytes(bytes)?), out)
}

pub(super) fn date_from_unix(c: &Caller, seconds: i64, out: *mut i64) -> Result<Kind, Fault> {
    c.check_output(out, 1)?;
    number(c, weir_psyc::date_from_unix(seconds), out)
}

pub(super) fn list_index(c: &Caller, bytes: Slice, out: *mut u64) -> Result<Kind, Fault> {
    c.check_output(out, 1)?;
    let wrong = malformed("not a # with a number of 64 bits", 0, u64::MAX);
    let index = weir_psyc::parse_list_index(c.bytes(bytes)?).map_err(|_| wrong)?;
    c.write(out, index)?;
    Ok(Kind::Ok)
}

const fn ok_or_absent(is_true: bool) -> Kind {
    if is_true { Kind::Ok } else { Kind::Absent }
}

pub(super) fn inherits(c: &Caller, base: Slice, word: Slice) -> Result<Kind, Fault> {
    let answer = keyword::inherits(c.bytes(base)?, c.bytes(word)?);
    answer.map(ok_or_absent).map_err(|_| NOT_A_KEYWORD)
}

pub(super) fn matches(c: &Caller, shorter: Slice, longer: Slice) -> Result<Kind, Fault> {
    let answer = keyword::matches(c.bytes(shorter)?, c.bytes(longer)?);
    answer.map(ok_or_absent).map_err(|_| NOT_A_KEYWORD)
}

pub(super) fn lookup(
    c: &Caller,
    keys: *const Slice,
    count: usize,
    word: Slice,
    index: *mut usize,
) -> Result<Kind, Fault> {
    c.check_output(index, 1)?;
    let (inputs, _) = c.output(index, 0)?;
    let word = c.bytes(word)?;
    if !keyword::is_keyword(word) {
        return Err(NOT_A_KEYWORD);
    }
    let mut longest: Option<(usize, usize)> = None;
    for (at, key) in inputs.values(keys, count, ELEMENTS_MAX)?.iter().enumerate() {
        let key = c
            .bytes(*key)
            .map_err(|fail| Fault::from(fail).at_index(at))?;
        let inherits = keyword::inherits(key, word).map_err(|_| NOT_A_KEYWORD.at_index(at))?;
        if inherits && longest.is_none_or(|(_, bytes)| bytes < key.len()) {
            longest = Some((at, key.len()));
        }
    }
    let Some((at, _)) = longest else {
        return Ok(Kind::Absent);
    };
    c.write(index, at)?;
    Ok(Kind::Ok)
}

pub(super) fn expand(
    c: &Caller,
    table: *const PsycCompact,
    count: usize,
    word: Slice,
    out: *mut Slice,
) -> Result<Kind, Fault> {
    let sides = |entry: &PsycCompact| (entry.compact, entry.name);
    translate(c, table, count, word, out, sides)
}

pub(super) fn contract(
    c: &Caller,
    table: *const PsycCompact,
    count: usize,
    word: Slice,
    out: *mut Slice,
) -> Result<Kind, Fault> {
    let sides = |entry: &PsycCompact| (entry.name, entry.compact);
    translate(c, table, count, word, out, sides)
}

/// Finds the first entry that translates `word`. Writes its translation, or `word` if there is none.
/// `sides` returns the two names of an entry: the one to compare, and its translation.
fn translate(
    c: &Caller,
    table: *const PsycCompact,
    count: usize,
    word: Slice,
    out: *mut Slice,
    sides: impl Fn(&PsycCompact) -> (Slice, Slice),
) -> Result<Kind, Fault> {
    c.check_output(out, 1)?;
    let (inputs, _) = c.output(out, 0)?;
    let mut found = c.bytes(word)?;
    for (at, entry) in inputs
        .values(table, count, ELEMENTS_MAX)?
        .iter()
        .enumerate()
    {
        let (from, to) = sides(entry);
        let bytes = |name| inputs.bytes(name).map_err(|fault| fault.at_index(at));
        let (from, to) = (bytes(from)?, bytes(to)?);
        if from == found {
            found = to;
            break;
        }
    }
    c.write(out, slice(found))?;
    Ok(Kind::Ok)
}

pub(super) fn describe(c: &Caller, name: Slice, out: *mut PsycName) -> Result<Kind, Fault> {
    c.info_size(out)?;
    let name = c.bytes(name)?;
    let mut found = zeroed::<PsycName>();
    if keyword::is_keyword(name) {
        found.flags |= IS_KEYWORD;
    }
    if weir_psyc::is_list(name) {
        found.flags |= IS_LIST;
    }
    found.routing =
        RoutingVariable::from_name(name).map_or(0, |variable| u32::from(variable.number()));
    found.r#type = VarType::from_name(name).map_or(0, |ty| u32::from(ty.number()));
    if let Some(method) = Method::from_name(name) {
        found.method = u32::from(method.number);
        found.family = u32::from(method.family.number());
        found.method_flags = u32::from(method.flags().bits());
        found.known = slice(method.name.as_bytes());
    }
    c.write_info(out, &found)?;
    Ok(Kind::Ok)
}

/// Flags of a byte, as in the header.
pub(super) fn byte(byte: u8) -> u32 {
    let classes: [fn(u8) -> bool; 6] = [
        class::is_operator,
        class::is_digit,
        class::is_alpha,
        class::is_keyword_byte,
        class::is_host_byte,
        class::is_name_byte,
    ];
    let bits = classes.iter().enumerate();
    bits.fold(0, |flags, (at, is)| flags | (u32::from(is(byte)) << at))
}

pub(super) fn talk(c: &Caller, bytes: Slice, out: *mut u32) -> Result<Kind, Fault> {
    c.check_output(out, 1)?;
    let protocol = match classify(c.page(bytes)?) {
        CircuitProtocol::NeedMore => return Ok(Kind::Need),
        CircuitProtocol::Psyc => 1,
        CircuitProtocol::LegacyPsyc => 2,
        CircuitProtocol::Http => 3,
        CircuitProtocol::Tls => 4,
        CircuitProtocol::Unknown => 5,
    };
    c.write(out, protocol)?;
    Ok(Kind::Ok)
}

//! Equality of JSON values, and a fingerprint that equal values share.
//!
//! Numbers are equal by value, strings by their characters, arrays element by element. The order of
//! members does not matter. If a name is repeated, only its first member counts.
//!
//! Invariants: recursion is bounded by the limit of nesting. A comparison takes n log n steps in the
//! size of the values, for each level of nesting, and reports the steps before it takes them. A
//! fingerprint takes n log n steps in all. A value that is not JSON equals no value, not even
//! itself.

use crate::children::{Children, tag_of};
use crate::error::{ScanError, ScanErrorKind};
use crate::items::{Span, Tag};
use crate::kernel::Kernel;
use crate::kernel::scalar::Fault;
use crate::number::{Number, compare_numbers};
use crate::path_set::PathSet;
use crate::plan::{Limits, PAGE_BYTES_LIMIT};
use crate::scan::{at_item, too_large};
use crate::strict;
use crate::text::Text;
use crate::token::{blanks, unexpected};
use crate::walk::Walk;
use std::cmp::Ordering;
use std::ops::ControlFlow;

/// Is called with a number of steps before the comparison takes them. If it breaks, the comparison
/// ends, and its result is `false`.
pub(crate) type Spend<'s> = dyn FnMut(usize) -> ControlFlow<()> + 's;

/// Steps for each comparison of two names during a sort.
const STEPS_PER_NAME: usize = 8;

/// Whether two JSON values are equal. Surrounding white space is ignored.
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    let is_json = |value: &[u8]| check(value).is_ok();
    is_json(a) && is_json(b) && equal_within(a, b, &mut |_| ControlFlow::Continue(()))
}

/// As [`equal`], for values that a scan has found. Spends a step for each byte, once for each nesting
/// level around it, and more steps for sorting the members of objects.
pub(crate) fn equal_within(a: &[u8], b: &[u8], spend: &mut Spend<'_>) -> bool {
    let long = |value: &[u8]| value.len() as u64 > PAGE_BYTES_LIMIT;
    if long(a) || long(b) {
        return false;
    }
    same(trim(a), trim(b), Limits::default().depth_max, spend)
}

fn trim(value: &[u8]) -> &[u8] {
    let value = value.get(blanks(value, 0)..).unwrap_or(&[]);
    let blank = |b: &u8| matches!(b, b' ' | b'\n' | b'\r' | b'\t');
    let end = value.iter().rposition(|b| !blank(b));
    value.get(..end.map_or(0, |end| end + 1)).unwrap_or(&[])
}

fn same(a: &[u8], b: &[u8], depth: u32, spend: &mut Spend<'_>) -> bool {
    if spend(a.len() + b.len()).is_break() {
        return false;
    }
    let tag = tag_of(a.first());
    if tag != tag_of(b.first()) {
        return false;
    }
    match tag {
        Tag::Undefined => false,
        Tag::Null | Tag::False | Tag::True => a == b,
        Tag::Number => compare_numbers(a, b) == Ordering::Equal,
        Tag::String => Text::new(a) == Text::new(b),
        Tag::Array => depth > 0 && same_elements(a, b, depth - 1, spend),
        Tag::Object => depth > 0 && same_members(a, b, depth - 1, spend),
    }
}

fn same_elements(a: &[u8], b: &[u8], depth: u32, spend: &mut Spend<'_>) -> bool {
    let no_paths = PathSet::none();
    let (mut walk, mut other) = (walk_over(a, &no_paths), walk_over(b, &no_paths));
    let mut first = Children::new(&mut walk, 0);
    let mut second = Children::new(&mut other, 0);
    loop {
        match (first.next(), second.next()) {
            (None, None) => return true,
            (Some(Ok(x)), Some(Ok(y)))
                if same(x.value.span.of(a), y.value.span.of(b), depth, spend) => {}
            _ => return false,
        }
    }
}

fn same_members(a: &[u8], b: &[u8], depth: u32, spend: &mut Spend<'_>) -> bool {
    let (Some(first), Some(second)) = (members(a, spend), members(b, spend)) else {
        return false;
    };
    first.len() == second.len()
        && first
            .iter()
            .zip(&second)
            .all(|((name, value), (other, its))| {
                name == other && same(value.of(a), its.of(b), depth, spend)
            })
}

/// The decoded name and the value of each member, sorted by name; only the first member of each
/// name. `None` if the object is not JSON, or `spend` breaks. The names are copies: borrowed bytes
/// may change, and a sort may panic if the order of its elements changes.
fn members(object: &[u8], spend: &mut Spend<'_>) -> Option<Vec<(Vec<u8>, Span)>> {
    let no_paths = PathSet::none();
    let mut walk = walk_over(object, &no_paths);
    let mut members = Vec::new();
    for child in Children::new(&mut walk, 0) {
        let child = child.ok()?;
        let mut name = Vec::new();
        Text::new(child.name.unwrap_or_default().of(object)).decode_into(&mut name);
        members.push((name, child.value.span));
    }
    let rounds = (usize::BITS - members.len().leading_zeros()) as usize;
    if spend(members.len() * rounds * STEPS_PER_NAME).is_break() {
        return None;
    }
    // The sort is stable, so the first of several equal names stays first.
    members.sort_by(|x, y| x.0.cmp(&y.0));
    members.dedup_by(|x, y| x.0 == y.0);
    Some(members)
}

fn walk_over<'a>(bytes: &'a [u8], no_paths: &'a PathSet) -> Walk<'a> {
    Walk {
        bytes,
        readable: bytes,
        paths: no_paths,
        kernel: Kernel::chosen(),
        strict: false,
        wanted: None,
        depth_max: Limits::default().depth_max,
        high: false,
    }
}

/// A hash of the value, computed with `hash`. Equal values have equal fingerprints; different
/// values collide as rarely as results of `hash` do.
///
/// # Errors
/// The value is not one JSON value, or exceeds the default limit of nesting.
pub fn fingerprint(value: &[u8], hash: fn(&[u8]) -> u128) -> Result<u128, ScanError> {
    let start = check(value)?;
    match digest(value, start, hash, Limits::default().depth_max) {
        Ok((print, _)) => Ok(print),
        Err(fault) => Err(at_item(fault, 0)),
    }
}

/// Checks that the bytes are one JSON value, with or without surrounding white space. Returns the
/// start of the value.
fn check(value: &[u8]) -> Result<usize, ScanError> {
    if value.len() as u64 > PAGE_BYTES_LIMIT {
        return Err(too_large(0, 0));
    }
    let start = blanks(value, 0);
    let depth = Limits::default().depth_max;
    let checked = strict::value(Kernel::chosen(), value, start, depth);
    let end = checked.map_err(|fault| at_item(fault, 0))?.end;
    let rest = blanks(value, end);
    if rest < value.len() {
        let fault = (ScanErrorKind::TrailingData, rest);
        return Err(at_item(fault, 0));
    }
    Ok(start)
}

/// The fingerprint of the value that begins at `at`, and the end of the value. `depth` levels may be
/// open in it.
fn digest(
    bytes: &[u8],
    at: usize,
    hash: fn(&[u8]) -> u128,
    depth: u32,
) -> Result<(u128, usize), Fault> {
    let tag = tag_of(bytes.get(at));
    // The type byte comes first, so that values of different types do not collide.
    let mut out = vec![tag as u8];
    let end = match tag {
        Tag::Array | Tag::Object if depth == 0 => return Err((ScanErrorKind::TooDeep, at)),
        Tag::Array => digest_elements(bytes, at, hash, depth - 1, &mut out)?,
        Tag::Object => digest_members(bytes, at, hash, depth - 1, &mut out)?,
        _ => {
            let literal = scalar(bytes, at)?;
            match tag {
                Tag::Number => canonical(literal.of(bytes), &mut out),
                Tag::String => Text::new(literal.of(bytes)).decode_into(&mut out),
                _ => {}
            }
            literal.end()
        }
    };
    Ok((hash(&out), end))
}

/// Appends the fingerprints of the elements. Returns the end of the array.
fn digest_elements(
    bytes: &[u8],
    at: usize,
    hash: fn(&[u8]) -> u128,
    depth: u32,
    out: &mut Vec<u8>,
) -> Result<usize, Fault> {
    let mut next = first_child(bytes, at);
    while let Ok(at) = next {
        let (print, end) = digest(bytes, at, hash, depth)?;
        out.extend(print.to_le_bytes());
        next = next_child(bytes, end)?;
    }
    next.or_else(Ok)
}

/// Appends the fingerprints of names and values, sorted by name. Returns the end of the object.
fn digest_members(
    bytes: &[u8],
    at: usize,
    hash: fn(&[u8]) -> u128,
    depth: u32,
    out: &mut Vec<u8>,
) -> Result<usize, Fault> {
    let mut members = Vec::new();
    let mut next = first_child(bytes, at);
    while let Ok(at) = next {
        let literal = scalar(bytes, at)?;
        let mut name = Vec::new();
        Text::new(literal.of(bytes)).decode_into(&mut name);
        let colon = blanks(bytes, literal.end());
        let (print, end) = digest(bytes, blanks(bytes, colon + 1), hash, depth)?;
        members.push((name, print));
        next = next_child(bytes, end)?;
    }
    // The sort is stable, so the first of several equal names stays first.
    members.sort_by(|x, y| x.0.cmp(&y.0));
    members.dedup_by(|x, y| x.0 == y.0);
    for (name, print) in members {
        out.extend(hash(&name).to_le_bytes());
        out.extend(print.to_le_bytes());
    }
    next.or_else(Ok)
}

/// The scalar that begins at `at`.
fn scalar(bytes: &[u8], at: usize) -> Result<Span, Fault> {
    let checked = strict::value(Kernel::chosen(), bytes, at, 0)?;
    Ok(Span::new(at, checked.end))
}

/// `Ok`: the position of the first child of the container at `at`; `Err`: the end of the container.
fn first_child(bytes: &[u8], at: usize) -> Result<usize, usize> {
    let at = blanks(bytes, at + 1);
    match bytes.get(at) {
        Some(b'}' | b']') => Err(at + 1),
        _ => Ok(at),
    }
}

/// As [`first_child`], for the child after the one that ends at `end`.
fn next_child(bytes: &[u8], end: usize) -> Result<Result<usize, usize>, Fault> {
    let at = blanks(bytes, end);
    match bytes.get(at) {
        Some(b',') => Ok(Ok(blanks(bytes, at + 1))),
        Some(b'}' | b']') => Ok(Err(at + 1)),
        _ => Err(unexpected(bytes, at)),
    }
}

/// Writes the unique form of a number: sign, digits without zeros at either end, decimal magnitude.
fn canonical(literal: &[u8], out: &mut Vec<u8>) {
    let Some(number) = Number::parse(literal) else {
        return;
    };
    if number.is_zero() {
        return;
    }
    out.push(if number.is_negative() { b'-' } else { b'+' });
    out.extend(number.digits());
    while out.last() == Some(&0) {
        out.pop();
    }
    out.push(b'e');
    number.write_magnitude(out);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{STEPS_PER_NAME, equal, equal_within, fingerprint};
    use std::ops::ControlFlow;

    /// FNV-1a, sufficient to distinguish test values.
    fn hash(bytes: &[u8]) -> u128 {
        bytes
            .iter()
            .fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |h, b| {
                (h ^ u128::from(*b)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
            })
    }

    /// Values in one row are equal; values in different rows differ.
    const ROWS: &[&[&str]] = &[
        &["null", " null\n"],
        &["false"],
        &["true"],
        &["0", "-0", "0e9"],
        &["10", "1e1", "10.0", " 100e-1"],
        &["-10"],
        &[
            "1e1000000000000000000000000000000",
            "10e999999999999999999999999999999",
        ],
        &["1e1000000000000000000000000000001"],
        &[
            "1e-1000000000000000000000000000001",
            "0.1e-1000000000000000000000000000000",
        ],
        &[
            "1e-999999999999999999999999999999",
            "0.1e-999999999999999999999999999998",
        ],
        &[r#""10""#, r#""\u0031\u0030""#],
        &[r#""""#],
        &["[]", "[ ]"],
        &["[[]]"],
        &["{}", "{ }"],
        &["[1,2]", "[ 1.0 , 2 ]"],
        &["[2,1]"],
        &["[1,[2]]"],
        &[
            r#"{"a":1,"b":[2]}"#,
            r#"{"b":[2.0],"a":1}"#,
            r#"{"\u0061":1,"b":[2],"a":7}"#,
        ],
        &[r#"{"a":7,"b":[2]}"#],
        &[r#"{"a":1}"#],
    ];

    #[test]
    fn equality_is_that_of_values() {
        for (i, row) in ROWS.iter().enumerate() {
            // Miri compares each row with itself and one in seven of the others.
            let step = if cfg!(miri) { 7 } else { 1 };
            for (j, other) in ROWS.iter().enumerate().skip(i % step).step_by(step) {
                for (a, b) in row.iter().flat_map(|a| other.iter().map(move |b| (a, b))) {
                    let (a, b) = (a.as_bytes(), b.as_bytes());
                    assert_eq!(equal(a, b), i == j, "{i} {j}");
                    let prints = [a, b].map(|v| fingerprint(v, hash).unwrap());
                    assert_eq!(prints[0] == prints[1], i == j, "{i} {j}");
                }
            }
        }
    }

    /// A digest returns the end of its value, where its caller continues.
    #[test]
    fn a_digest_ends_where_its_value_ends() {
        let inner = r#"[ {"b" : [1, {}, [ ] ], "\u0061":"x", "a": null } , true ]"#;
        let equal = r#"[{"a":"x","b":[1e0,{},[]]},true]"#;
        let read = |text: &str| super::digest(text.as_bytes(), 0, hash, 4);
        let (print, end) = read(&format!("{inner} ,[")).unwrap();
        assert_eq!(end, inner.len());
        assert_eq!(read(equal).unwrap(), (print, equal.len()));
        assert_eq!(fingerprint(equal.as_bytes(), hash).unwrap(), print);
        assert!(read("[[[[]]]]").is_ok() && read("[[[[[]]]]]").is_err());
        // Borrowed bytes may change after the check.
        for broken in [
            "", "[", "[1", "[1 2]", "{\"a\"", "{\"a\":", "{\"a\":1", "{1",
        ] {
            assert!(read(broken).is_err(), "{broken}");
        }
    }

    /// Members are sorted, so a comparison of many costs more than their bytes.
    #[test]
    fn the_sort_of_members_costs_steps() {
        let members: Vec<String> = (0..64).map(|n| format!("\"{n}\":0")).collect();
        let object = format!("{{{}}}", members.join(","));
        let mut steps = 0;
        let found = equal_within(object.as_bytes(), object.as_bytes(), &mut |more| {
            steps += more;
            ControlFlow::Continue(())
        });
        assert!(found && steps >= 2 * (object.len() + 64 * 6 * STEPS_PER_NAME));
        // A comparison ends before it exceeds the limit.
        let mut calls = 0;
        let found = equal_within(object.as_bytes(), object.as_bytes(), &mut |_| {
            calls += 1;
            ControlFlow::Break(())
        });
        assert!(!found && calls == 1);
    }

    #[test]
    fn a_value_that_is_not_json_equals_no_value() {
        for broken in ["", "[1", "[1,]", "{\"a\"}", "tru", "1 2"] {
            assert!(fingerprint(broken.as_bytes(), hash).is_err(), "{broken}");
        }
        for broken in ["", "[1,]", "tru", "[1] 2", "1x", "\"a"] {
            assert!(!equal(broken.as_bytes(), broken.as_bytes()), "{broken}");
        }
        let deep = "[".repeat(2000) + &"]".repeat(2000);
        assert!(!equal(deep.as_bytes(), deep.as_bytes()));
    }
}

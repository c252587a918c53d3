//! `json-shape`: values are JSON with a given shape. The arguments have one rule per line: words
//! with one blank between them, the path last:
//!
//! ```text
//! string 1..64 $.id
//! integer 0..150 $.age
//! ? string =open|closed $.state
//! ```
//!
//! `?` at the start: the value is optional. Next is the type (`string`, `number`, `integer`,
//! `boolean`, `null`, `array`, `object`, `any`). Then there may be a range (`1..`, `..9`,
//! `0.5..2e3`), which includes both ends: of the value of numbers, or of the length of strings in
//! characters. Or there may be `=` and the permitted strings. At most 32 rules in 4,000 bytes.
//! Without rules, a value must only be JSON.
#![no_std]
#![forbid(unsafe_code)]

use core::cmp::Ordering;

use weir_guest::json::{self, Fault, Found, Kind};
use weir_guest::{Input, Op, Outcome, emit_input, reject};

weir_guest::program!(apply, init = init);

/// Maximum number of rules.
const RULES: usize = 32;
/// Maximum size of the arguments in bytes.
const ARGS: usize = 4000;
/// Maximum size of a number, and of a string with a list of words, in bytes.
const LITERAL: usize = 256;

/// One rule.
struct Rule<'a> {
    optional: bool,
    kind: &'a [u8],
    limit: Limit<'a>,
    path: &'a [u8],
}

enum Limit<'a> {
    None,
    Range(&'a [u8], &'a [u8]),
    Words(&'a [u8]),
}

/// The first word, and the rest after the blank.
fn word(line: &[u8]) -> (&[u8], &[u8]) {
    match line.iter().position(|&byte| byte == b' ') {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, &[]),
    }
}

fn rule(line: &[u8]) -> Option<Rule<'_>> {
    let (first, rest) = word(line);
    let optional = first == b"?";
    let (kind, rest) = if optional { word(rest) } else { (first, rest) };
    let known: [&[u8]; 8] = [
        b"string", b"number", b"integer", b"boolean", b"null", b"array", b"object", b"any",
    ];
    if !known.contains(&kind) {
        return None;
    }
    let (second, behind) = word(rest);
    let (limit, path) = if rest.first() == Some(&b'$') {
        (Limit::None, rest)
    } else if let Some(words) = second.strip_prefix(b"=") {
        (Limit::Words(words), behind)
    } else {
        let at = second.windows(2).position(|pair| pair == b"..")?;
        let (low, high) = (&second[..at], &second[at + 2..]);
        let fine = |bound: &[u8]| bound.is_empty() || Decimal::read(bound).is_some();
        if !fine(low) || !fine(high) {
            return None;
        }
        (Limit::Range(low, high), behind)
    };
    let texts = kind == b"string";
    let numbers = kind == b"number" || kind == b"integer";
    let fits = match limit {
        Limit::None => true,
        Limit::Range(..) => texts || numbers,
        Limit::Words(_) => texts,
    };
    (fits && !path.is_empty()).then_some(Rule {
        optional,
        kind,
        limit,
        path,
    })
}

/// A decimal number: its digits as written, and the position of the first digit that is not
/// zero.
struct Decimal<'a> {
    negative: bool,
    digits: &'a [u8],
    /// Power of ten of the first digit that is not zero; `None` for zero.
    power: Option<i64>,
}

impl<'a> Decimal<'a> {
    fn read(text: &'a [u8]) -> Option<Self> {
        let negative = text.first() == Some(&b'-');
        let text = if negative { &text[1..] } else { text };
        let end = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let digits = &text[..end.unwrap_or(text.len())];
        let mut exponent: i64 = 0;
        if let Some(end) = end {
            let rest = &text[end + 1..];
            let minus = rest.first() == Some(&b'-');
            let rest = rest
                .strip_prefix(b"-")
                .or(rest.strip_prefix(b"+"))
                .unwrap_or(rest);
            if rest.is_empty() {
                return None;
            }
            for byte in rest {
                let digit = byte.wrapping_sub(b'0');
                if digit > 9 {
                    return None;
                }
                exponent = (exponent * 10 + i64::from(digit)).min(1 << 40);
            }
            if minus {
                exponent = -exponent;
            }
        }
        let point = digits
            .iter()
            .position(|&byte| byte == b'.')
            .unwrap_or(digits.len());
        let plain = |&byte: &u8| byte.is_ascii_digit() || byte == b'.';
        if digits.is_empty() || !digits.iter().all(plain) {
            return None;
        }
        let first = digits.iter().position(|byte| matches!(byte, b'1'..=b'9'));
        let power = first.map(|first| {
            let place = if first < point {
                (point - first) as i64 - 1
            } else {
                -((first - point) as i64)
            };
            place + exponent
        });
        Some(Self {
            negative,
            digits: first.map_or(&[], |first| &digits[first..]),
            power,
        })
    }

    fn places(&self) -> impl Iterator<Item = u8> {
        let digits = self.digits.iter().copied().filter(|&byte| byte != b'.');
        digits.chain(core::iter::repeat(b'0')).take(LITERAL)
    }

    fn compare(&self, other: &Self) -> Ordering {
        let sign = |n: &Self| match (n.power, n.negative) {
            (None, _) => 0,
            (_, true) => -1,
            _ => 1,
        };
        let order = sign(self).cmp(&sign(other));
        if order != Ordering::Equal || self.power.is_none() {
            return order;
        }
        let size = self.power.cmp(&other.power);
        let size = size.then_with(|| self.places().cmp(other.places()));
        if self.negative { size.reverse() } else { size }
    }
}

/// Whether a number is in a range whose ends are both optional.
fn between(number: &Decimal<'_>, low: &[u8], high: &[u8]) -> bool {
    let is = |bound: &[u8], wrong: Ordering| {
        Decimal::read(bound).is_none_or(|bound| number.compare(&bound) != wrong)
    };
    is(low, Ordering::Less) && is(high, Ordering::Greater)
}

/// Number of characters of a string literal, without its quotes.
fn characters(input: &Input, found: &Found) -> usize {
    let (mut count, mut escape) = (0, 0_usize);
    let mut buffer = [0; LITERAL];
    let (mut at, end) = (found.at + 1, found.at + found.len - 1);
    while at < end {
        let room = (end - at).min(buffer.len());
        let part = input.value_from(at, &mut buffer[..room]);
        if part.is_empty() {
            break;
        }
        for &byte in part {
            match escape {
                // After a backslash: the kind of escape.
                5 => escape = if byte == b'u' { 4 } else { 0 },
                0 if byte == b'\\' => {
                    escape = 5;
                    count += 1;
                }
                0 => count += usize::from(byte & 0xc0 != 0x80),
                _ => escape -= 1,
            }
        }
        at += part.len();
    }
    count
}

/// Converts a number into text.
fn digits(mut number: usize, into: &mut [u8; 20]) -> &[u8] {
    let mut at = into.len();
    loop {
        at -= 1;
        into[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &into[at..];
        }
    }
}

/// Rejects with a sentence and a number after it.
fn no(code: u16, what: &str, number: usize) -> Outcome {
    let (mut text, mut room) = ([0; 80], [0; 20]);
    let number = digits(number, &mut room);
    let len = what.len();
    text[..len].copy_from_slice(what.as_bytes());
    text[len..len + number.len()].copy_from_slice(number);
    match core::str::from_utf8(&text[..len + number.len()]) {
        Ok(text) => reject(code, text),
        Err(_) => reject(code, what),
    }
}

fn lines(args: &[u8]) -> impl Iterator<Item = &[u8]> {
    args.split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
}

/// Validates the arguments before the first write.
fn init(input: &Input) -> Outcome {
    let mut args = [0; ARGS];
    if input.args_len() > ARGS {
        return no(9, "the arguments have more bytes than ", ARGS);
    }
    let args = input.args(&mut args);
    for (at, line) in lines(args).enumerate() {
        if at >= RULES {
            return no(9, "there are more rules than ", RULES);
        }
        if rule(line).is_none() {
            return no(9, "not understood: rule ", at + 1);
        }
    }
    // There is no value yet, but the host parses the paths first.
    match json::find::<RULES>(paths(args, &mut [0; ARGS])) {
        Err(Fault::Paths) => reject(9, "a path is not understood"),
        _ => Ok(()),
    }
}

fn apply(input: &Input) -> Outcome {
    if input.op() == Op::Put {
        judge(input)?;
    }
    emit_input();
    Ok(())
}

/// The paths of all rules, one on each line. Without rules, the path of the value
/// itself.
fn paths<'a>(args: &[u8], into: &'a mut [u8; ARGS]) -> &'a [u8] {
    let mut len = 0;
    for line in lines(args) {
        let Some(rule) = rule(line) else { continue };
        if len > 0 {
            into[len] = b'\n';
            len += 1;
        }
        into[len..len + rule.path.len()].copy_from_slice(rule.path);
        len += rule.path.len();
    }
    if len == 0 { b"$" } else { &into[..len] }
}

fn judge(input: &Input) -> Outcome {
    let (mut args, mut room) = ([0; ARGS], [0; ARGS]);
    let args = input.args(&mut args);
    let found = match json::find::<RULES>(paths(args, &mut room)) {
        Ok(found) => found,
        Err(Fault::NotJson(at)) => return no(1, "not JSON, from byte ", at as usize),
        Err(Fault::Paths) => return reject(9, "a path is not understood"),
    };
    for (at, (line, found)) in lines(args).zip(&found).enumerate() {
        let Some(rule) = rule(line) else { continue };
        check(input, &rule, found, at + 1)?;
    }
    Ok(())
}

fn check(input: &Input, rule: &Rule<'_>, found: &Found, number: usize) -> Outcome {
    let mut literal = [0; LITERAL];
    let room = found.len.min(LITERAL);
    let literal = input.value_from(found.at, &mut literal[..room]);
    let fits = match (rule.kind, found.kind) {
        (_, Kind::Undefined) if rule.optional => return Ok(()),
        (_, Kind::Undefined) => return no(2, "missing: rule ", number),
        (b"any", _)
        | (b"string", Kind::String)
        | (b"number", Kind::Number)
        | (b"boolean", Kind::Boolean)
        | (b"null", Kind::Null)
        | (b"array", Kind::Array)
        | (b"object", Kind::Object) => true,
        (b"integer", Kind::Number) => literal
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b'-'),
        _ => false,
    };
    if !fits {
        return no(3, "of another kind: rule ", number);
    }
    match rule.limit {
        Limit::None => Ok(()),
        Limit::Words(words) => {
            // A longer string than fits equals none of the words.
            let inside = literal.get(1..found.len - 1);
            let mut words = words.split(|&byte| byte == b'|');
            if words.any(|word| inside == Some(word)) {
                return Ok(());
            }
            no(5, "not in the list: rule ", number)
        }
        Limit::Range(low, high) => {
            let mut room = [0; 20];
            let text = match found.kind {
                Kind::String => digits(characters(input, found), &mut room),
                _ if found.len > LITERAL => return no(4, "too long: rule ", number),
                _ => literal,
            };
            let value = Decimal::read(text);
            if value.is_some_and(|value| between(&value, low, high)) {
                return Ok(());
            }
            no(4, "out of range: rule ", number)
        }
    }
}

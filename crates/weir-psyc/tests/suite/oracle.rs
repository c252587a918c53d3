//! A second packet parser, written only to be obviously correct: it reads one byte at a time,
//! copies everything, and parses only whole inputs. The real parser must agree with it.

use crate::feed::{Joined, Outcome};
use weir_psyc::{Limits, Mode};

enum Stop {
    More,
    Bad(i8, usize),
}

type Read<T> = Result<T, Stop>;

const LENGTH: i8 = -2;
const MOD_NAME: i8 = -3;
const MOD_TAB: i8 = -4;
const MOD_LEN: i8 = -5;
const MOD_NL: i8 = -6;
const METHOD: i8 = -7;
const END: i8 = -8;
const NO_LEN: i8 = -9;
const MOD_NO_LEN: i8 = -10;
const LIMIT: i8 = -11;

/// The item that contains the current byte, and how many more bytes the item may have.
#[derive(Clone, Copy, PartialEq)]
enum Remaining {
    Routing(u64),
    Unsized(u64),
    Sized(u64),
    Content(u64),
}

struct Oracle<'a> {
    bytes: &'a [u8],
    at: usize,
    limits: Limits,
    remaining: Remaining,
    modifiers: u32,
    events: Vec<Joined>,
}

fn keyword(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

pub fn parse(mode: Mode, limits: Limits, bytes: &[u8]) -> Outcome {
    let mut oracle = Oracle {
        bytes,
        at: 0,
        limits,
        remaining: Remaining::Routing(0),
        modifiers: 0,
        events: Vec::new(),
    };
    let mut clean = false;
    let error = loop {
        let result = match mode {
            Mode::Content { length } => oracle.plain_content(length),
            _ if oracle.at == bytes.len() => {
                clean = true;
                break None;
            }
            _ => oracle.packet(mode == Mode::RoutingOnly),
        };
        match result {
            Ok(()) if matches!(mode, Mode::Content { .. }) => {
                clean = true;
                break None;
            }
            Ok(()) => {}
            Err(Stop::More) => break None,
            Err(Stop::Bad(code, place)) => break Some((code, place as u64)),
        }
    };
    Outcome {
        events: oracle.events,
        error,
        clean,
    }
}

impl Oracle<'_> {
    fn peek(&self) -> Read<u8> {
        self.bytes.get(self.at).copied().ok_or(Stop::More)
    }

    fn bad<T>(&self, code: i8) -> Read<T> {
        Err(Stop::Bad(code, self.at))
    }

    /// Reads one byte and reduces the remaining bytes by one; at least `after` more bytes must fit.
    fn take(&mut self, after: u64) -> Read<u8> {
        let byte = self.peek()?;
        let (code, left, needed) = match &mut self.remaining {
            Remaining::Routing(left) => (LIMIT, left, 1),
            Remaining::Unsized(left) => (NO_LEN, left, 1),
            Remaining::Sized(left) => (LENGTH, left, 1 + after),
            Remaining::Content(left) => (END, left, 1 + after.min(1)),
        };
        if *left < needed {
            return self.bad(code);
        }
        *left -= 1;
        self.at += 1;
        Ok(byte)
    }

    fn one_modifier(&mut self) -> Read<()> {
        if self.modifiers == 0 {
            return self.bad(LIMIT);
        }
        self.modifiers -= 1;
        Ok(())
    }

    fn packet(&mut self, routing_only: bool) -> Read<()> {
        self.remaining = Remaining::Routing(self.limits.routing_header);
        self.modifiers = self.limits.routing_modifiers;
        loop {
            match self.peek()? {
                b':' | b'=' | b'+' | b'-' | b'@' | b'?' | b'!' => self.modifier(false, false)?,
                b'0'..=b'9' => {
                    let length = self.content_length()?;
                    if routing_only {
                        self.raw_sized(length)?;
                    } else {
                        self.remaining = Remaining::Sized(length);
                        self.content()?;
                    }
                    break;
                }
                b'\n' => {
                    self.at += 1;
                    self.remaining = Remaining::Unsized(self.limits.unsized_content);
                    if routing_only {
                        let data = self.until_end_mark()?;
                        self.events.push(Joined::Content(data, false));
                    } else {
                        self.content()?;
                    }
                    break;
                }
                _ => break,
            }
        }
        for expected in [b'|', b'\n'] {
            if self.peek()? != expected {
                return self.bad(END);
            }
            self.at += 1;
        }
        self.events.push(Joined::Complete);
        Ok(())
    }

    fn plain_content(&mut self, length: u64) -> Read<()> {
        self.remaining = Remaining::Content(length);
        self.content()?;
        self.events.push(Joined::Complete);
        if self.at < self.bytes.len() {
            self.bad(END)
        } else {
            Ok(())
        }
    }

    fn content_length(&mut self) -> Read<u64> {
        let mut digits = 0;
        let mut number = 0u128;
        loop {
            let byte = self.peek()?;
            if byte == b'\n' {
                self.at += 1;
                return Ok(number as u64);
            }
            digits += 1;
            number = number * 10 + u128::from(byte.wrapping_sub(b'0'));
            if !byte.is_ascii_digit()
                || digits > 20
                || number > u128::from(self.limits.sized_content)
            {
                return self.bad(LENGTH);
            }
            self.at += 1;
        }
    }

    fn content(&mut self) -> Read<()> {
        self.modifiers = self.limits.entity_modifiers;
        let mut first = true;
        loop {
            match self.remaining {
                Remaining::Sized(0) | Remaining::Content(0) => return Ok(()),
                // A line has at least two bytes, so the bytes before it left one too many or one
                // too few.
                Remaining::Sized(1) => return Err(Stop::Bad(LENGTH, self.at - 1)),
                _ => {}
            }
            let bounded = matches!(self.remaining, Remaining::Sized(_) | Remaining::Content(_));
            match self.peek()? {
                b':' | b'=' | b'+' | b'-' | b'@' | b'?' | b'!' => self.modifier(true, first)?,
                byte if keyword(byte) => return self.method(),
                _ if bounded => return self.bad(LENGTH),
                // The caller checks the bytes before the end.
                _ => return Ok(()),
            }
            first = false;
        }
    }

    fn modifier(&mut self, entity: bool, first: bool) -> Read<()> {
        let operator = self.peek()?;
        let state = first && (operator == b'=' || operator == b'?');
        if state && self.remaining == Remaining::Sized(3) {
            return self.bad(LENGTH);
        }
        if !state {
            self.one_modifier()?;
        }
        self.take(if state { 1 } else { 3 })?;
        if state && self.peek()? == b'\n' {
            self.take(0)?;
            self.events.push(if operator == b'=' {
                Joined::Reset
            } else {
                Joined::Resync
            });
            return Ok(());
        }
        if !keyword(self.peek()?) {
            return self.bad(MOD_NAME);
        }
        if state {
            self.one_modifier()?;
        }
        let mut name = Vec::new();
        while keyword(self.peek()?) {
            if name.len() as u64 == u64::from(self.limits.name) {
                return self.bad(LIMIT);
            }
            name.push(self.take(2)?);
        }
        match self.peek()? {
            b'\t' => {
                self.take(1)?;
                let mut value = Vec::new();
                while self.peek()? != b'\n' {
                    if value.len() as u64 == self.limits.unsized_value {
                        return self.bad(MOD_NO_LEN);
                    }
                    value.push(self.take(1)?);
                }
                self.take(0)?;
                self.events.push(if entity {
                    Joined::Entity(operator, name, value, false)
                } else {
                    Joined::Routing(operator, name, value)
                });
                Ok(())
            }
            b' ' if entity => {
                self.take(3)?;
                self.sized_value(operator, name)
            }
            _ => self.bad(MOD_TAB),
        }
    }

    fn sized_value(&mut self, operator: u8, name: Vec<u8>) -> Read<()> {
        if !self.peek()?.is_ascii_digit() {
            return self.bad(MOD_LEN);
        }
        let mut digits = 0;
        let mut number = 0u128;
        while self.peek()?.is_ascii_digit() {
            digits += 1;
            number = number * 10 + u128::from(self.peek()? - b'0');
            if digits > 20 || number > u128::from(self.limits.sized_value) {
                return self.bad(MOD_LEN);
            }
            let (left, code) = match self.remaining {
                Remaining::Routing(left) => (left, LIMIT),
                Remaining::Unsized(left) => (left, NO_LEN),
                Remaining::Sized(left) => (left, if number == 0 { LENGTH } else { MOD_LEN }),
                Remaining::Content(left) => (left, if number == 0 { END } else { MOD_LEN }),
            };
            // This digit, TAB, value, LF.
            if number + 3 > u128::from(left) {
                return self.bad(code);
            }
            let one_more =
                matches!(self.remaining, Remaining::Sized(_)) && number + 4 == u128::from(left);
            if one_more && (number != 0 || digits == 20) {
                return self.bad(LENGTH);
            }
            self.take(2)?;
        }
        if self.peek()? != b'\t' {
            return self.bad(MOD_TAB);
        }
        // This TAB, value, LF, and one byte that no line can fill.
        if matches!(self.remaining, Remaining::Sized(left) if u128::from(left) == number + 3) {
            return self.bad(LENGTH);
        }
        self.take(1)?;
        let open = matches!(self.remaining, Remaining::Unsized(_));
        let mut value: Vec<u8> = Vec::new();
        while (value.len() as u128) < number {
            let byte = self.peek()?;
            if open && byte == b'\n' && value.ends_with(b"\n|") {
                return self.bad(NO_LEN);
            }
            value.push(self.take(1)?);
        }
        let delimiter = open && value.ends_with(b"\n|");
        self.events
            .push(Joined::Entity(operator, name, value, true));
        if self.peek()? != b'\n' {
            return self.bad(MOD_NL);
        }
        if delimiter {
            return self.bad(NO_LEN);
        }
        self.take(0)?;
        Ok(())
    }

    fn method(&mut self) -> Read<()> {
        let mut method = Vec::new();
        while keyword(self.peek()?) {
            if method.len() as u64 == u64::from(self.limits.name) {
                return self.bad(LIMIT);
            }
            method.push(self.take(1)?);
        }
        if self.peek()? != b'\n' {
            return self.bad(METHOD);
        }
        self.take(0)?;
        if let Remaining::Unsized(_) = self.remaining {
            let mut data = self.until_end_mark()?;
            data.pop();
            self.events.push(Joined::Body(method, data, false));
            return Ok(());
        }
        let (Remaining::Sized(left) | Remaining::Content(left)) = self.remaining else {
            unreachable!()
        };
        let mut data = Vec::new();
        while data.len() as u64 + 1 < left {
            data.push(self.peek()?);
            self.at += 1;
        }
        self.events.push(Joined::Body(method, data, true));
        if left > 0 {
            if self.peek()? != b'\n' {
                return self.bad(END);
            }
            self.at += 1;
        }
        Ok(())
    }

    /// All bytes before the first end mark that starts a line. Does not consume the mark.
    fn until_end_mark(&mut self) -> Read<Vec<u8>> {
        let start = self.at;
        let Remaining::Unsized(mut left) = self.remaining else {
            unreachable!()
        };
        loop {
            let byte = self.peek()?;
            let line_start = self.at == start || self.bytes[self.at - 1] == b'\n';
            if byte == b'|' && line_start {
                match self.bytes.get(self.at + 1) {
                    Some(b'\n') => return Ok(self.bytes[start..self.at].to_vec()),
                    Some(_) if left == 0 => return Err(Stop::Bad(NO_LEN, self.at + 1)),
                    Some(_) => {}
                    None => return Err(Stop::More),
                }
            }
            if left == 0 {
                return self.bad(NO_LEN);
            }
            left -= 1;
            self.at += 1;
        }
    }

    fn raw_sized(&mut self, length: u64) -> Read<()> {
        let mut data = Vec::new();
        while (data.len() as u64) < length {
            data.push(self.peek()?);
            self.at += 1;
        }
        let last = data.last().copied();
        self.events.push(Joined::Content(data, true));
        if last.is_some_and(|last| last != b'\n') {
            return Err(Stop::Bad(END, self.at - 1));
        }
        Ok(())
    }
}

//! The loop around every parser: loads a packet, checks it, and times passes.
//!
//! A [`Parser`] computes two values of a packet. The *content* is a hash that does not depend on
//! the parser, computed once before the timing. The *touch* is a sum over every slice that a pass
//! returns, computed in every pass, so that the compiler cannot remove the pass.
//!
//! Content is the wrapping sum, over the parts of the packet in any order, of
//! FNV-1a over a kind byte and the part's bytes, decoded ([`part`],
//! [`pair`]). Kinds by syntax: XML `e` element name, `a` attribute
//! name 0x00 value, `t` text that is not only white space; JSON `k` key, `s`
//! string; PSYC `v` operator name 0x00 value, `m` method, `d` data.
//!
//! Invariant: the timed part does not copy the input. Parsers that overwrite
//! their input are exempt, and their documentation states it.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;

use super::{Contender, ContenderError, parameter};
use crate::alloc;
use crate::clock::Stopwatch;
use crate::protocol::{Answer, Fields, Timed};
use crate::rng::{fnv1a64, fnv1a64_more};

/// One parser of one syntax.
pub trait Parser {
    /// Versions of the libraries that do the work.
    fn versions(&self) -> Fields {
        Fields::new()
    }
    /// Parses `packet` once and sums up every returned slice with [`touch`]. Fails if the parser
    /// refuses the packet.
    fn pass(&mut self, packet: &[u8]) -> Result<u64, ContenderError>;
    /// Hash of the content of `packet`.
    fn content(&mut self, packet: &[u8]) -> Result<u64, ContenderError>;
}

/// The value that `slice` adds to the touch: its length, first and last byte.
#[inline]
pub fn touch(slice: &[u8]) -> u64 {
    match (slice.first(), slice.last()) {
        (Some(first), Some(last)) => slice.len() as u64 + u64::from(*first) + u64::from(*last),
        _ => 0,
    }
}

/// Hash of one part of a packet.
pub fn part(kind: u8, bytes: &[u8]) -> u64 {
    fnv1a64_more(fnv1a64(&[kind]), bytes)
}

/// Hash of a name and its value.
pub fn pair(kind: u8, name: &[u8], value: &[u8]) -> u64 {
    fnv1a64_more(fnv1a64_more(part(kind, name), &[0]), value)
}

/// A contender that parses packets from files.
#[derive(Debug)]
pub struct Wire<P> {
    parser: P,
    packets: BTreeMap<usize, Vec<u8>>,
}

impl<P: Parser> Wire<P> {
    /// A contender without packets.
    pub fn new(parser: P) -> Wire<P> {
        Wire {
            parser,
            packets: BTreeMap::new(),
        }
    }
}

impl<P: Parser> Contender for Wire<P> {
    fn versions(&self) -> Fields {
        self.parser.versions()
    }

    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let path: String = parameter(fields, "file")?;
        let packet = fs::read(&path).map_err(|source| ContenderError::Io { path, source })?;
        self.packets.insert(input, packet);
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let packet = self
            .packets
            .get(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        let content = self.parser.content(packet)?;
        self.parser.pass(packet)?;
        let (pass, allocations, allocated_bytes) = alloc::count(|| self.parser.pass(packet));
        Ok(Answer {
            content,
            touch: pass?,
            allocations,
            allocated_bytes,
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let packet = self
            .packets
            .get(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        // The process was just scheduled, so its first passes run with cold caches.
        for _ in 0..iterations / 16 {
            black_box(self.parser.pass(black_box(packet))?);
        }
        let mut sum = 0u64;
        let watch = Stopwatch::start();
        for _ in 0..iterations {
            sum = sum.wrapping_add(self.parser.pass(black_box(packet))?);
        }
        let (wall_ns, cpu_ns) = watch.stop();
        Ok(Timed {
            wall_ns,
            cpu_ns,
            touch: sum,
            extra: BTreeMap::new(),
        })
    }
}

/// The harness alone: touches the packet as one slice, without parsing.
#[derive(Debug)]
pub struct Empty;

impl Parser for Empty {
    #[inline]
    fn pass(&mut self, packet: &[u8]) -> Result<u64, ContenderError> {
        Ok(touch(packet))
    }

    fn content(&mut self, packet: &[u8]) -> Result<u64, ContenderError> {
        Ok(part(b'*', packet))
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Checks that two passes of `parser` touch equal data, and returns the content of `packet`.
    pub(crate) fn content<P: Parser>(mut parser: P, packet: &[u8]) -> u64 {
        assert_eq!(parser.pass(packet).unwrap(), parser.pass(packet).unwrap());
        parser.content(packet).unwrap()
    }

    #[test]
    fn the_touch_of_a_run_is_a_multiple_of_the_touch_of_the_check() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"some bytes").unwrap();
        let mut wire = Wire::new(Empty);
        let path = file.path().to_str().unwrap().to_owned();
        wire.load(4, &Fields::from([("file".to_owned(), path)]))
            .unwrap();
        let answer = wire.check(4).unwrap();
        let timed = wire.run(4, 37).unwrap();
        assert_eq!(timed.touch, answer.touch.wrapping_mul(37));
        assert!(matches!(wire.run(5, 1), Err(ContenderError::NotLoaded(5))));
    }
}

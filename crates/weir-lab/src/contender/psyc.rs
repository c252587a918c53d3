//! PSYC contenders.
//!
//! [`Ours`] is the codec of this project over whole packets in memory, with a new parser for each
//! packet. [`OursStream`] uses one parser for all packets, as a connection does.
//!
//! [`Lines`] reads a packet only by searching for LF and TAB. It reads one whole packet at a time,
//! and assumes that the packet is well-formed. It is the oracle for the answers of the codec, and a
//! lower bound for the cost of a scan of lines.

use weir_psyc::{Mode, ParseStep};

use super::ContenderError;
use super::wire::{Parser, pair, part, touch};
use crate::protocol::Fields;

/// `weir-psyc`, a fresh parser for each packet.
#[derive(Debug)]
pub struct Ours;

/// `weir-psyc`, one parser for all packets.
#[derive(Debug)]
pub struct OursStream(weir_psyc::Parser);

impl OursStream {
    /// A new parser.
    pub fn new() -> OursStream {
        OursStream(weir_psyc::Parser::new(Mode::Full))
    }
}

impl Default for OursStream {
    fn default() -> OursStream {
        OursStream::new()
    }
}

/// The version that every form of `weir-psyc` reports.
pub(super) fn our_versions() -> Fields {
    Fields::from([("weir-psyc".to_owned(), env!("CARGO_PKG_VERSION").to_owned())])
}

/// Parses one packet, and sums up the touched data.
#[inline]
fn steps(parser: &mut weir_psyc::Parser, packet: &[u8]) -> Result<u64, ContenderError> {
    let mut sum = 0u64;
    loop {
        match parser.step(packet) {
            ParseStep::Routing(variable) | ParseStep::Entity(variable) => {
                sum = sum
                    .wrapping_add(u64::from(variable.operator.byte()))
                    .wrapping_add(touch(variable.name))
                    .wrapping_add(touch(variable.value));
            }
            ParseStep::Body { method, data, .. } => {
                sum = sum.wrapping_add(touch(method)).wrapping_add(touch(data));
            }
            ParseStep::Complete => return Ok(sum),
            other => return Err(unexpected(&other)),
        }
    }
}

#[cold]
pub(super) fn unexpected(step: &ParseStep<'_>) -> ContenderError {
    ContenderError::Refused(match step {
        ParseStep::Error(error) => error.to_string(),
        _ => "the parser returned an unexpected step".to_owned(),
    })
}

/// Hash of the content of one packet.
fn our_content(packet: &[u8]) -> Result<u64, ContenderError> {
    let mut parser = weir_psyc::Parser::new(Mode::Full);
    let mut sum = 0u64;
    loop {
        match parser.step(packet) {
            ParseStep::Routing(v) | ParseStep::Entity(v) => {
                sum = sum.wrapping_add(variable_content(v.operator.byte(), v.name, v.value));
            }
            ParseStep::Body { method, data, .. } => {
                sum = sum.wrapping_add(part(b'm', method));
                if !data.is_empty() {
                    sum = sum.wrapping_add(part(b'd', data));
                }
            }
            ParseStep::Complete => return Ok(sum),
            other => return Err(unexpected(&other)),
        }
    }
}

impl Parser for Ours {
    fn versions(&self) -> Fields {
        our_versions()
    }

    #[inline]
    fn pass(&mut self, packet: &[u8]) -> Result<u64, ContenderError> {
        steps(&mut weir_psyc::Parser::new(Mode::Full), packet)
    }

    fn content(&mut self, packet: &[u8]) -> Result<u64, ContenderError> {
        our_content(packet)
    }
}

impl Parser for OursStream {
    fn versions(&self) -> Fields {
        our_versions()
    }

    #[inline]
    fn pass(&mut self, packet: &[u8]) -> Result<u64, ContenderError> {
        let sum = steps(&mut self.0, packet)?;
        self.0.release();
        Ok(sum)
    }

    fn content(&mut self, packet: &[u8]) -> Result<u64, ContenderError> {
        our_content(packet)
    }
}

/// The naive scan.
#[derive(Debug)]
pub struct Lines;

impl Parser for Lines {
    fn pass(&mut self, packet: &[u8]) -> Result<u64, ContenderError> {
        let mut sum = 0u64;
        scan(packet, &mut |found| {
            sum = sum.wrapping_add(match found {
                PacketPart::Variable { name, value, .. } => touch(name).wrapping_add(touch(value)),
                PacketPart::Method(bytes) | PacketPart::Data(bytes) => touch(bytes),
            });
        })?;
        Ok(sum)
    }

    fn content(&mut self, packet: &[u8]) -> Result<u64, ContenderError> {
        let mut sum = 0u64;
        scan(packet, &mut |found| {
            sum = sum.wrapping_add(match found {
                PacketPart::Variable {
                    operator,
                    name,
                    value,
                } => variable_content(operator, name, value),
                PacketPart::Method(bytes) => part(b'm', bytes),
                PacketPart::Data(bytes) => part(b'd', bytes),
            });
        })?;
        Ok(sum)
    }
}

/// Hash of a modifier in the PSYC group.
pub fn variable_content(operator: u8, name: &[u8], value: &[u8]) -> u64 {
    pair(b'v', &[&[operator], name].concat(), value)
}

/// A part that the naive scan finds.
pub(super) enum PacketPart<'a> {
    /// A modifier.
    Variable {
        /// Its operator.
        operator: u8,
        /// Its name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// The method.
    Method(&'a [u8]),
    /// The data.
    Data(&'a [u8]),
}

fn refused(what: &str) -> ContenderError {
    ContenderError::Refused(what.to_owned())
}

/// Splits the first line off `rest`.
fn line<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], ContenderError> {
    let end = memchr(b'\n', rest).ok_or_else(|| refused("a line without end"))?;
    let (line, after) = rest.split_at(end);
    *rest = after.get(1..).unwrap_or_default();
    Ok(line)
}

fn memchr(byte: u8, bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|candidate| *candidate == byte)
}

fn number(digits: &[u8]) -> Result<usize, ContenderError> {
    std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| refused("a length that is not a number"))
}

/// Reads one packet and reports its parts in order.
pub(super) fn scan<'a>(
    packet: &'a [u8],
    found: &mut impl FnMut(PacketPart<'a>),
) -> Result<(), ContenderError> {
    let mut rest = packet;
    let mut content = loop {
        match rest.first() {
            Some(b'|') => return Ok(()),
            Some(b'0'..=b'9' | b'\n') => {
                let length = line(&mut rest)?;
                if length.is_empty() {
                    let end = end_of_unsized(rest)?;
                    break rest.get(..end).unwrap_or_default();
                }
                let length = number(length)?;
                break rest
                    .get(..length)
                    .ok_or_else(|| refused("a content cut short"))?;
            }
            _ => modifier(&mut rest, found)?,
        }
    };
    while let Some(first) = content.first() {
        if first.is_ascii_alphanumeric() || *first == b'_' {
            found(PacketPart::Method(line(&mut content)?));
            let data = content.strip_suffix(b"\n").unwrap_or(content);
            if !data.is_empty() {
                found(PacketPart::Data(data));
            }
            return Ok(());
        }
        modifier(&mut content, found)?;
    }
    Ok(())
}

/// Length of an unsized content: up to the line that is only `|`.
fn end_of_unsized(content: &[u8]) -> Result<usize, ContenderError> {
    if content.starts_with(b"|\n") {
        return Ok(0);
    }
    content
        .windows(3)
        .position(|window| window == b"\n|\n")
        .map(|at| at + 1)
        .ok_or_else(|| refused("a packet without end"))
}

fn modifier<'a>(
    rest: &mut &'a [u8],
    found: &mut impl FnMut(PacketPart<'a>),
) -> Result<(), ContenderError> {
    let (operator, after) = rest.split_first().ok_or_else(|| refused("no operator"))?;
    let end = memchr(b'\t', after).ok_or_else(|| refused("a name without TAB"))?;
    let (name, after) = after.split_at(end);
    *rest = after.get(1..).unwrap_or_default();
    let (name, value) = match memchr(b' ', name) {
        None => (name, line(rest)?),
        Some(space) => {
            let (name, length) = name.split_at(space);
            let length = number(length.get(1..).unwrap_or_default())?;
            let value = rest
                .get(..length)
                .ok_or_else(|| refused("a value cut short"))?;
            *rest = rest.get(length + 1..).unwrap_or_default();
            (name, value)
        }
    };
    found(PacketPart::Variable {
        operator: *operator,
        name,
        value,
    });
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::wire::tests::content;
    use super::*;

    #[test]
    fn the_codec_and_the_naive_scan_agree() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/psyc/packets");
        let mut packets = 0;
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "psyc") {
                let packet = std::fs::read(&path).unwrap();
                let naive = content(Lines, &packet);
                assert_eq!(content(Ours, &packet), naive, "{}", path.display());
                assert_eq!(
                    content(OursStream::new(), &packet),
                    naive,
                    "{}",
                    path.display()
                );
                packets += 1;
            }
        }
        assert!(packets >= 12, "{packets} packets");
    }

    #[test]
    fn the_naive_scan_finds_every_part() {
        let packet = b":_source\tpsyc://a/\n23\n:_subject 5\ta\n|\nb\n_m\nd\n|\n";
        let expected = variable_content(b':', b"_source", b"psyc://a/")
            .wrapping_add(variable_content(b':', b"_subject", b"a\n|\nb"))
            .wrapping_add(part(b'm', b"_m"))
            .wrapping_add(part(b'd', b"d"));
        assert_eq!(content(Lines, packet), expected);
    }
}

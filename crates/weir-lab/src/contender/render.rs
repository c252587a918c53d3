//! Parses a packet and renders it again from the parsed parts, like a router that inspects
//! packets.
//!
//! The content of the written packet must equal the content of the parsed packet. Our
//! codec writes the length of each item if the parsed item had a length, so the bytes are equal.

use quick_xml::events::Event;
use quick_xml::{Reader, Writer};
use weir_psyc::{Content, Length, Mode, Modifier, Packet, ParseStep, Parts, Renderer};

use super::ContenderError;
use super::json::Owned;
use super::psyc::{Ours, unexpected};
use super::wire::{Parser, touch};
use super::xml::QuickXml;
use crate::protocol::Fields;

/// Maximum number of modifiers in each header of a packet that [`Ours`] writes.
const MODIFIERS_MAX: usize = 8;

/// A parser that can render the packet that it parsed.
pub trait Writing: Parser {
    /// Parses `packet` and appends it to `out`.
    fn write(&mut self, packet: &[u8], out: &mut Vec<u8>) -> Result<(), ContenderError>;
}

/// A contender that writes every packet it parses into one buffer.
#[derive(Debug)]
pub struct Rendering<P> {
    parser: P,
    out: Vec<u8>,
}

impl<P: Writing> Rendering<P> {
    /// A contender with an empty buffer.
    pub fn new(parser: P) -> Self {
        let out = Vec::new();
        Self { parser, out }
    }
}

impl<P: Writing> Parser for Rendering<P> {
    fn versions(&self) -> Fields {
        self.parser.versions()
    }

    #[inline]
    fn pass(&mut self, packet: &[u8]) -> Result<u64, ContenderError> {
        self.out.clear();
        self.parser.write(packet, &mut self.out)?;
        Ok(touch(&self.out))
    }

    fn content(&mut self, packet: &[u8]) -> Result<u64, ContenderError> {
        self.pass(packet)?;
        self.parser.content(&self.out)
    }
}

/// A list of modifiers on the stack.
struct Modifiers<'a> {
    items: [Modifier<'a>; MODIFIERS_MAX],
    count: usize,
}

impl<'a> Modifiers<'a> {
    fn new() -> Self {
        Self {
            items: [Modifier::set(b"_", b""); MODIFIERS_MAX],
            count: 0,
        }
    }

    fn push(&mut self, modifier: Modifier<'a>) -> Result<(), ContenderError> {
        let Some(item) = self.items.get_mut(self.count) else {
            let what = format!("more than {MODIFIERS_MAX} modifiers");
            return Err(ContenderError::Refused(what));
        };
        *item = modifier;
        self.count += 1;
        Ok(())
    }

    fn as_slice(&self) -> &[Modifier<'a>] {
        self.items.get(..self.count).unwrap_or(&self.items)
    }
}

impl Writing for Ours {
    #[inline]
    fn write(&mut self, packet: &[u8], out: &mut Vec<u8>) -> Result<(), ContenderError> {
        let mut parser = weir_psyc::Parser::new(Mode::Full);
        let (mut routing, mut entity) = (Modifiers::new(), Modifiers::new());
        let (mut body, mut length) = (Parts::default(), Length::Auto);
        loop {
            match parser.step(packet) {
                ParseStep::Routing(found) => {
                    routing.push(Modifier::new(found.operator, found.name, found.value))?;
                }
                ParseStep::Entity(found) => entity.push(Modifier {
                    operator: found.operator,
                    name: found.name,
                    value: found.value,
                    length: Length::as_parsed(found.sized),
                })?,
                ParseStep::Body {
                    method,
                    data,
                    sized,
                } => {
                    (body.method, body.data) = (method, data);
                    length = Length::as_parsed(sized);
                }
                ParseStep::Complete => break,
                other => return Err(unexpected(&other)),
            }
        }
        body.entity = entity.as_slice();
        let packet = Packet {
            routing: routing.as_slice(),
            content: Content::Parts(body),
            length,
        };
        let written = Renderer::new().append(&packet, out);
        written.map_err(|error| ContenderError::Refused(error.to_string()))
    }
}

impl Writing for Owned {
    fn write(&mut self, packet: &[u8], out: &mut Vec<u8>) -> Result<(), ContenderError> {
        let tree: Result<serde_json::Value, _> = serde_json::from_slice(packet);
        let written = tree.and_then(|tree| serde_json::to_writer(out, &tree));
        written.map_err(|error| ContenderError::Refused(error.to_string()))
    }
}

impl Writing for QuickXml {
    fn write(&mut self, packet: &[u8], out: &mut Vec<u8>) -> Result<(), ContenderError> {
        let refused = |error: &dyn std::error::Error| ContenderError::Refused(error.to_string());
        let mut reader = Reader::from_reader(packet);
        let mut writer = Writer::new(out);
        loop {
            let event = reader.read_event().map_err(|error| refused(&error))?;
            if matches!(event, Event::Eof) {
                return Ok(());
            }
            let written = writer.write_event(event);
            written.map_err(|error| refused(&error))?;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::wire::tests::content;
    use super::*;

    #[test]
    fn a_rendered_packet_has_the_content_of_the_parsed_packet() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/psyc/packets");
        let mut files = 0;
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let packet = fs::read(&path).unwrap();
            files += 1;
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("psyc") => {
                    let mut ours = Rendering::new(Ours);
                    ours.pass(&packet).unwrap();
                    assert!(ours.out == packet, "{} differs", path.display());
                }
                Some("xml") => {
                    let written = content(Rendering::new(QuickXml), &packet);
                    assert_eq!(written, content(QuickXml, &packet), "{}", path.display());
                }
                Some("json") => {
                    let written = content(Rendering::new(Owned), &packet);
                    assert_eq!(written, content(Owned, &packet), "{}", path.display());
                }
                _ => files -= 1,
            }
        }
        assert!(files >= 25, "{files} packets");
    }
}

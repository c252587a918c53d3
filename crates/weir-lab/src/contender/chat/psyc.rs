//! PSYC clients: with the codec of this project, in long and in compact names, and with a naive scan
//! for lines.
//!
//! A client compares names for equality, because no name in a session inherits from another.

use weir_psyc::{Mode, Modifier, Packet, ParseStep, Parser, Renderer};

use super::{Dialect, Event, Kind, Reply, unexpected};
use crate::contender::ContenderError;
use crate::contender::psyc::{self, PacketPart, our_versions, scan};
use crate::inputs::chat_session::{COMPACT, LONG, ROOM_UNIFORM, Vocabulary};
use crate::protocol::Fields;

/// `weir-psyc`, one parser for all packets of the connection.
#[derive(Debug)]
pub struct Psyc<const IS_COMPACT: bool>(Parser);

impl<const IS_COMPACT: bool> Default for Psyc<IS_COMPACT> {
    fn default() -> Self {
        Psyc(Parser::new(Mode::Full))
    }
}

const fn words(is_compact: bool) -> &'static Vocabulary {
    if is_compact { &COMPACT } else { &LONG }
}

/// The parts of a packet that the client uses; absent parts are empty.
#[derive(Clone, Copy, Debug, Default)]
struct Parts<'a> {
    context: &'a [u8],
    source: &'a [u8],
    tag: &'a [u8],
    nick: &'a [u8],
    availability: &'a [u8],
    method: &'a [u8],
    data: &'a [u8],
}

impl<'a> Parts<'a> {
    #[inline]
    fn routing(&mut self, words: &Vocabulary, name: &[u8], value: &'a [u8]) {
        if name == words.context {
            self.context = value;
        } else if name == words.source {
            self.source = value;
        } else if name == words.tag {
            self.tag = value;
        }
    }

    #[inline]
    fn entity(&mut self, words: &Vocabulary, name: &[u8], value: &'a [u8]) {
        if name == words.nick {
            self.nick = value;
        } else if name == words.availability {
            self.availability = value;
        }
    }

    /// The event of this packet; `None` if no session has such a packet.
    #[inline]
    fn event(&self, words: &Vocabulary) -> Option<Event<'a>> {
        let method = self.method;
        let (kind, who) = if method == words.public {
            (Kind::Public, self.nick)
        } else if method == words.presence {
            (Kind::Presence, self.context)
        } else if method == words.private {
            (Kind::Private, self.source)
        } else if method == words.enter {
            (Kind::Enter, self.nick)
        } else if method == words.leave {
            (Kind::Leave, self.nick)
        } else if method == words.ping {
            (Kind::Ping, self.source)
        } else {
            return None;
        };
        let needs_room = matches!(kind, Kind::Public | Kind::Enter | Kind::Leave);
        if needs_room && self.context != ROOM_UNIFORM.as_bytes() {
            return None;
        }
        let availability = match (kind, self.availability) {
            (Kind::Presence, [digit @ b'0'..=b'9']) => digit - b'0',
            (Kind::Presence, _) => return None,
            _ => 0,
        };
        Some(Event {
            kind,
            who,
            availability,
            id: self.tag,
            text: self.data,
        })
    }
}

impl<const IS_COMPACT: bool> Dialect for Psyc<IS_COMPACT> {
    fn versions(&self) -> Fields {
        our_versions()
    }

    #[inline]
    fn decode(
        &mut self,
        packet: &[u8],
        then: impl FnOnce(&Event<'_>),
    ) -> Result<(), ContenderError> {
        let words = words(IS_COMPACT);
        let mut parts = Parts::default();
        loop {
            match self.0.step(packet) {
                ParseStep::Routing(found) => parts.routing(words, found.name, found.value),
                ParseStep::Entity(found) => parts.entity(words, found.name, found.value),
                ParseStep::Body { method, data, .. } => {
                    (parts.method, parts.data) = (method, data);
                }
                ParseStep::Complete => break,
                other => return Err(psyc::unexpected(&other)),
            }
        }
        self.0.release();
        then(&parts.event(words).ok_or_else(unexpected)?);
        Ok(())
    }

    #[inline]
    fn write(reply: &Reply<'_>, out: &mut Vec<u8>) -> Result<(), ContenderError> {
        let words = words(IS_COMPACT);
        let (to, id, method, text) = parts_of(words, reply);
        let routing = [
            Modifier::set(words.target, to),
            Modifier::set(words.tag_relay, id),
        ];
        let routing: &[Modifier<'_>] = if id.is_empty() {
            &routing[..1]
        } else {
            &routing
        };
        let packet = Packet::new(routing, &[], method, text);
        let written = Renderer::new().append(&packet, out);
        written.map_err(|error| ContenderError::Refused(error.to_string()))
    }
}

/// Receiver, number of the answered packet, method and text of a reply.
#[inline]
fn parts_of<'a>(
    words: &Vocabulary,
    reply: &Reply<'a>,
) -> (&'a [u8], &'a [u8], &'static [u8], &'a [u8]) {
    match *reply {
        Reply::Received { to, id } => (to, id, words.received, b""),
        Reply::Pong { to, id } => (to, id, words.pong, b""),
        Reply::Say { text } => (ROOM_UNIFORM.as_bytes(), b"", words.public, text),
    }
}

/// The naive scan; it writes replies without checking them.
#[derive(Debug)]
pub struct Lines;

impl Dialect for Lines {
    #[inline]
    fn decode(
        &mut self,
        packet: &[u8],
        then: impl FnOnce(&Event<'_>),
    ) -> Result<(), ContenderError> {
        let mut parts = Parts::default();
        scan(packet, &mut |found| match found {
            PacketPart::Variable { name, value, .. } => {
                parts.routing(&LONG, name, value);
                parts.entity(&LONG, name, value);
            }
            PacketPart::Method(method) => parts.method = method,
            PacketPart::Data(data) => parts.data = data,
        })?;
        then(&parts.event(&LONG).ok_or_else(unexpected)?);
        Ok(())
    }

    #[inline]
    fn write(reply: &Reply<'_>, out: &mut Vec<u8>) -> Result<(), ContenderError> {
        let (to, id, method, text) = parts_of(&LONG, reply);
        let tag: [&[u8]; 4] = [b":", LONG.tag_relay, b"\t", id];
        let target: [&[u8]; 5] = [b":", LONG.target, b"\t", to, b"\n"];
        let pieces = target.into_iter();
        if id.is_empty() {
            // The text may contain the end mark, so the length of the content is written.
            let length = (method.len() + text.len() + 2).to_string();
            let content: [&[u8]; 5] = [length.as_bytes(), b"\n", method, b"\n", text];
            let pieces = pieces.chain(content);
            pieces.for_each(|piece| out.extend_from_slice(piece));
        } else {
            let content: [&[u8]; 2] = [b"\n\n", method];
            let pieces = pieces.chain(tag).chain(content);
            pieces.for_each(|piece| out.extend_from_slice(piece));
        }
        out.extend_from_slice(b"\n|\n");
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::contender::wire::Parser as _;

    #[test]
    fn both_writers_write_packets_of_equal_content() {
        let (to, id) = (b"psyc://lock.example/~heron".as_slice(), b"m17".as_slice());
        for reply in [
            Reply::Received { to, id },
            Reply::Pong { to, id },
            Reply::Say {
                text: b"heron: a\n|\nb",
            },
        ] {
            let (mut ours, mut naive) = (Vec::new(), Vec::new());
            Psyc::<false>::write(&reply, &mut ours).unwrap();
            Lines::write(&reply, &mut naive).unwrap();
            let content = |packet: &[u8]| psyc::Ours.content(packet).unwrap();
            assert_eq!(content(&ours), content(&naive), "{reply:?}");
        }
    }
}

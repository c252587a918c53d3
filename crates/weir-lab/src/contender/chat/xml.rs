//! The XMPP client with quick-xml. It expands entities in received texts and escapes its own texts.

use std::fmt::Display;

use quick_xml::Reader;
use quick_xml::escape::{resolve_predefined_entity, unescape};
use quick_xml::events::{BytesStart, Event as XmlEvent};

use super::jid::{Stanza, StanzaKind, write_escaped};
use super::{Dialect, Event, Reply, unexpected};
use crate::contender::ContenderError;
use crate::contender::xml::versions;
use crate::inputs::chat_session::ROOM_JID;
use crate::protocol::Fields;

/// quick-xml events, and the parts of the current stanza.
#[derive(Debug, Default)]
pub struct QuickXml {
    kind: Option<StanzaKind>,
    from: String,
    id: String,
    show: String,
    body: String,
    inside: Inside,
}

/// The element whose text is read.
#[derive(Clone, Copy, Debug, Default)]
enum Inside {
    Show,
    Body,
    #[default]
    Other,
}

fn refused(error: impl Display) -> ContenderError {
    ContenderError::Refused(error.to_string())
}

impl QuickXml {
    fn clear(&mut self) {
        self.kind = None;
        for text in [&mut self.from, &mut self.id, &mut self.show, &mut self.body] {
            text.clear();
        }
    }

    /// Reads the stanza in `packet`.
    fn read(&mut self, packet: &[u8]) -> Result<(), ContenderError> {
        let mut reader = Reader::from_reader(packet);
        let mut depth = 0;
        self.clear();
        loop {
            match reader.read_event().map_err(refused)? {
                XmlEvent::Eof => return Ok(()),
                XmlEvent::Start(tag) => {
                    self.open(&tag, depth)?;
                    depth += 1;
                }
                XmlEvent::Empty(tag) => {
                    self.open(&tag, depth)?;
                    self.inside = Inside::Other;
                }
                XmlEvent::End(_) => {
                    depth -= 1;
                    self.inside = Inside::Other;
                }
                XmlEvent::Text(text) => self.text(&text),
                XmlEvent::CData(text) => self.text(&text),
                XmlEvent::GeneralRef(reference) => {
                    let expanded = resolve_predefined_entity(&reference);
                    self.text(expanded.ok_or_else(unexpected)?);
                }
                _ => {}
            }
        }
    }

    /// Reads a start tag that is inside `depth` other elements.
    fn open(&mut self, tag: &BytesStart<'_>, depth: i32) -> Result<(), ContenderError> {
        match (depth, tag.name().into_inner()) {
            (0, name) => return self.stanza(name, tag),
            (1, "show") => self.inside = Inside::Show,
            (1, "body") => self.inside = Inside::Body,
            (1, "ping") => self.kind = Some(StanzaKind::Ping),
            _ => {}
        }
        Ok(())
    }

    /// Reads the tag of a stanza. The kind of an `iq` follows from its child.
    fn stanza(&mut self, name: &str, tag: &BytesStart<'_>) -> Result<(), ContenderError> {
        self.kind = match name {
            "presence" => Some(StanzaKind::Presence),
            "message" => Some(StanzaKind::Chat),
            _ => None,
        };
        for attribute in tag.attributes().with_checks(false) {
            let attribute = attribute.map_err(refused)?;
            let value = unescape(&attribute.value).map_err(refused)?;
            match attribute.key.into_inner() {
                "from" => self.from.push_str(&value),
                "id" => self.id.push_str(&value),
                "type" if value == "groupchat" => self.kind = Some(StanzaKind::Groupchat),
                "type" if value == "unavailable" => self.show.push_str(&value),
                _ => {}
            }
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        match self.inside {
            Inside::Show => self.show.push_str(text),
            Inside::Body => self.body.push_str(text),
            Inside::Other => {}
        }
    }
}

impl Dialect for QuickXml {
    fn versions(&self) -> Fields {
        versions()
    }

    fn decode(
        &mut self,
        packet: &[u8],
        then: impl FnOnce(&Event<'_>),
    ) -> Result<(), ContenderError> {
        self.read(packet)?;
        let stanza = Stanza {
            kind: self.kind.ok_or_else(unexpected)?,
            from: self.from.as_bytes(),
            show: self.show.as_bytes(),
            id: self.id.as_bytes(),
            body: self.body.as_bytes(),
        };
        then(&stanza.event().ok_or_else(unexpected)?);
        Ok(())
    }

    fn write(reply: &Reply<'_>, out: &mut Vec<u8>) -> Result<(), ContenderError> {
        let mut put = |pieces: [&[u8]; 5]| {
            for piece in pieces {
                out.extend_from_slice(piece);
            }
        };
        match *reply {
            Reply::Received { to, id } => put([
                b"<message to='",
                to,
                b"'><received xmlns='urn:xmpp:receipts' id='",
                id,
                b"'/></message>",
            ]),
            Reply::Pong { to, id } => put([b"<iq type='result' to='", to, b"' id='", id, b"'/>"]),
            Reply::Say { text } => {
                let room = ROOM_JID.as_bytes();
                put([
                    b"<message type='groupchat' to='",
                    room,
                    b"'><body>",
                    b"",
                    b"",
                ]);
                write_escaped(text, out, |byte| match byte {
                    b'&' => Some(b"&amp;"),
                    b'<' => Some(b"&lt;"),
                    _ => None,
                });
                out.extend_from_slice(b"</body></message>");
            }
        }
        Ok(())
    }
}

//! JSON clients with `serde_json`: through an owned tree, and through a struct for the message.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::jid::{Stanza, StanzaKind, write_escaped};
use super::{Dialect, Event, Reply, unexpected};
use crate::contender::ContenderError;
use crate::contender::json::{refused, versions};
use crate::inputs::chat_session::ROOM_JID;
use crate::protocol::Fields;

/// `serde_json::Value`.
#[derive(Debug)]
pub struct Tree;

/// A struct whose strings borrow from the packet unless they have escapes.
#[derive(Debug)]
pub struct Typed;

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    from: Cow<'a, str>,
    #[serde(borrow, default)]
    show: Cow<'a, str>,
    #[serde(borrow, default)]
    id: Cow<'a, str>,
    #[serde(borrow, default)]
    body: Cow<'a, str>,
}

fn kind(name: &str) -> Option<StanzaKind> {
    Some(match name {
        "presence" => StanzaKind::Presence,
        "groupchat" => StanzaKind::Groupchat,
        "chat" => StanzaKind::Chat,
        "ping" => StanzaKind::Ping,
        _ => return None,
    })
}

impl Dialect for Tree {
    fn versions(&self) -> Fields {
        versions()
    }

    fn decode(
        &mut self,
        packet: &[u8],
        then: impl FnOnce(&Event<'_>),
    ) -> Result<(), ContenderError> {
        let tree: Value = serde_json::from_slice(packet).map_err(|error| refused(&error))?;
        let text = |name: &str| tree.get(name).and_then(Value::as_str).unwrap_or_default();
        let stanza = Stanza {
            kind: kind(text("type")).ok_or_else(unexpected)?,
            from: text("from").as_bytes(),
            show: text("show").as_bytes(),
            id: text("id").as_bytes(),
            body: text("body").as_bytes(),
        };
        then(&stanza.event().ok_or_else(unexpected)?);
        Ok(())
    }

    fn write(reply: &Reply<'_>, out: &mut Vec<u8>) -> Result<(), ContenderError> {
        write(reply, out);
        Ok(())
    }
}

impl Dialect for Typed {
    fn versions(&self) -> Fields {
        versions()
    }

    fn decode(
        &mut self,
        packet: &[u8],
        then: impl FnOnce(&Event<'_>),
    ) -> Result<(), ContenderError> {
        let message: Message<'_> =
            serde_json::from_slice(packet).map_err(|error| refused(&error))?;
        let stanza = Stanza {
            kind: kind(&message.kind).ok_or_else(unexpected)?,
            from: message.from.as_bytes(),
            show: message.show.as_bytes(),
            id: message.id.as_bytes(),
            body: message.body.as_bytes(),
        };
        then(&stanza.event().ok_or_else(unexpected)?);
        Ok(())
    }

    fn write(reply: &Reply<'_>, out: &mut Vec<u8>) -> Result<(), ContenderError> {
        write(reply, out);
        Ok(())
    }
}

fn write(reply: &Reply<'_>, out: &mut Vec<u8>) {
    let mut put = |pieces: [&[u8]; 5]| {
        for piece in pieces {
            out.extend_from_slice(piece);
        }
    };
    let between = b"\",\"id\":\"";
    match *reply {
        Reply::Received { to, id } => {
            put([b"{\"type\":\"received\",\"to\":\"", to, between, id, b"\"}"]);
        }
        Reply::Pong { to, id } => put([b"{\"type\":\"pong\",\"to\":\"", to, between, id, b"\"}"]),
        Reply::Say { text } => {
            let room = ROOM_JID.as_bytes();
            let start = b"{\"type\":\"groupchat\",\"to\":\"";
            put([start, room, b"\",\"body\":\"", b"", b""]);
            // The texts of a session have no other character that JSON must escape.
            write_escaped(text, out, |byte| match byte {
                b'"' => Some(b"\\\""),
                b'\\' => Some(b"\\\\"),
                b'\n' => Some(b"\\n"),
                _ => None,
            });
            out.extend_from_slice(b"\"}");
        }
    }
}

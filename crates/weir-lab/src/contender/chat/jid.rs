//! The part that the clients of XMPP and JSON share: the event of a stanza, from its type and the
//! address of its sender.

use super::{Event, Kind};
use crate::inputs::chat_session::{ROOM_JID, SHOWS};

/// The kinds of stanzas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StanzaKind {
    Presence,
    Groupchat,
    Chat,
    Ping,
}

/// The parts of a stanza; absent parts are empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stanza<'a> {
    pub(super) kind: StanzaKind,
    pub(super) from: &'a [u8],
    /// Availability of the sender; `unavailable` if it left.
    pub(super) show: &'a [u8],
    pub(super) id: &'a [u8],
    pub(super) body: &'a [u8],
}

impl<'a> Stanza<'a> {
    /// The event of this stanza; `None` if no session has such a stanza.
    #[inline]
    pub(super) fn event(&self) -> Option<Event<'a>> {
        let from = self.from;
        let slash = memchr::memchr(b'/', from).unwrap_or(from.len());
        let (bare, resource) = from.split_at(slash);
        let in_room = bare == ROOM_JID.as_bytes();
        let member = resource.get(1..).unwrap_or_default();
        let has_left = self.show == b"unavailable";
        let (kind, who) = match (self.kind, in_room) {
            (StanzaKind::Presence, true) if has_left => (Kind::Leave, member),
            (StanzaKind::Presence, true) => (Kind::Enter, member),
            (StanzaKind::Presence, false) => (Kind::Presence, bare),
            (StanzaKind::Groupchat, true) => (Kind::Public, member),
            (StanzaKind::Groupchat, false) => return None,
            (StanzaKind::Chat, _) => (Kind::Private, bare),
            (StanzaKind::Ping, _) => (Kind::Ping, bare),
        };
        let availability = match kind {
            Kind::Presence => {
                let mut shows = SHOWS.iter();
                shows.find(|(show, _)| show.as_bytes() == self.show)?.1
            }
            _ => 0,
        };
        Some(Event {
            kind,
            who,
            availability,
            id: self.id,
            text: self.body,
        })
    }
}

/// Appends `text` to `out`, and replaces each byte for which `escape` returns an escape sequence.
#[inline]
pub(super) fn write_escaped(
    text: &[u8],
    out: &mut Vec<u8>,
    escape: impl Fn(u8) -> Option<&'static [u8]>,
) {
    let mut plain = 0;
    for (index, byte) in text.iter().enumerate() {
        if let Some(escaped) = escape(*byte) {
            out.extend_from_slice(text.get(plain..index).unwrap_or_default());
            out.extend_from_slice(escaped);
            plain = index + 1;
        }
    }
    out.extend_from_slice(text.get(plain..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::super::xml::QuickXml;
    use super::super::{Dialect, Reply, json::Typed};

    #[test]
    fn texts_are_escaped_where_they_are_written() {
        let say = Reply::Say {
            text: b"a < \"b\" &\nc",
        };
        let mut out = Vec::new();
        assert!(QuickXml::write(&say, &mut out).is_ok());
        let body = "<body>a &lt; \"b\" &amp;\nc</body></message>";
        assert!(String::from_utf8_lossy(&out).ends_with(body));
        out.clear();
        assert!(Typed::write(&say, &mut out).is_ok());
        let body = r#""body":"a < \"b\" &\nc"}"#;
        assert!(String::from_utf8_lossy(&out).ends_with(body));
    }
}

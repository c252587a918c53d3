//! The reply that the client must write to each packet of a session, in four syntaxes.
//!
//! Invariant: no function of this module uses the codec, because the codec is one of the contenders.

use super::{
    COMPACT, HOST, LONG, OWN_NICK, PacketContent, ROOM_JID, ROOM_UNIFORM, Vocabulary, escape_xml,
    messages,
};

/// The reply that the client must write to each packet of [`session`](super::session). It is empty
/// if the client must write none.
pub fn replies(size: u64, syntax: &str) -> Option<Vec<u8>> {
    messages(size, |content| {
        Some(match syntax {
            "psyc" => content.psyc_reply(&LONG),
            "psyc-c" => content.psyc_reply(&COMPACT),
            "xml" => content.xml_reply().into_bytes(),
            "json" => content.json_reply().into_bytes(),
            _ => return None,
        })
    })
}

impl PacketContent {
    /// The text that the client must write to the room after this message, if any.
    fn answer(&self) -> Option<String> {
        let PacketContent::Public { nick, text } = self else {
            return None;
        };
        let rest = text.strip_prefix(OWN_NICK)?.strip_prefix(", ")?;
        Some(format!("{nick}: {rest}"))
    }

    /// The reply in XML that the client must write; empty for none.
    fn xml_reply(&self) -> String {
        match (self, self.answer()) {
            (PacketContent::Private { nick, id, .. }, _) => format!(
                "<message to='{nick}@{HOST}'><received xmlns='urn:xmpp:receipts' id='m{id}'/></message>"
            ),
            (PacketContent::Ping { id }, _) => {
                format!("<iq type='result' to='{HOST}' id='m{id}'/>")
            }
            (_, Some(text)) => format!(
                "<message type='groupchat' to='{ROOM_JID}'><body>{}</body></message>",
                escape_xml(&text)
            ),
            _ => String::new(),
        }
    }

    /// The reply in JSON that the client must write; empty for none.
    fn json_reply(&self) -> String {
        match (self, self.answer()) {
            (PacketContent::Private { nick, id, .. }, _) => {
                format!("{{\"type\":\"received\",\"to\":\"{nick}@{HOST}\",\"id\":\"m{id}\"}}")
            }
            (PacketContent::Ping { id }, _) => {
                format!("{{\"type\":\"pong\",\"to\":\"{HOST}\",\"id\":\"m{id}\"}}")
            }
            (_, Some(text)) => format!(
                "{{\"type\":\"groupchat\",\"to\":\"{ROOM_JID}\",\"body\":{}}}",
                serde_json::Value::from(text)
            ),
            _ => String::new(),
        }
    }

    /// The reply in PSYC that the client must write; empty for none.
    fn psyc_reply(&self, words: &Vocabulary) -> Vec<u8> {
        let acknowledged = |to: String, id: u64, method: &[u8]| {
            let id = format!("m{id}");
            let target: [&[u8]; 5] = [b":", words.target, b"\t", to.as_bytes(), b"\n"];
            let tag: [&[u8]; 5] = [b":", words.tag_relay, b"\t", id.as_bytes(), b"\n"];
            let content: [&[u8]; 3] = [b"\n", method, b"\n|\n"];
            [target.concat(), tag.concat(), content.concat()].concat()
        };
        match (self, self.answer()) {
            (PacketContent::Private { nick, id, .. }, _) => {
                acknowledged(format!("psyc://{HOST}/~{nick}"), *id, words.received)
            }
            (PacketContent::Ping { id }, _) => {
                acknowledged(format!("psyc://{HOST}/"), *id, words.pong)
            }
            (_, Some(text)) => {
                let room = ROOM_UNIFORM.as_bytes();
                let target: [&[u8]; 5] = [b":", words.target, b"\t", room, b"\n"];
                // The content has a length, because the codec writes one for data above 9 bytes.
                let length = (words.public.len() + text.len() + 2).to_string();
                let start: [&[u8]; 4] = [length.as_bytes(), b"\n", words.public, b"\n"];
                let data: [&[u8]; 2] = [text.as_bytes(), b"\n|\n"];
                [target.concat(), start.concat(), data.concat()].concat()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_syntax_has_its_form_of_each_reply() {
        let nick = || "heron".to_owned();
        let private = PacketContent::Private {
            nick: nick(),
            text: "here".to_owned(),
            id: 7,
        };
        let public = PacketContent::Public {
            nick: nick(),
            text: "warden, a < \"b\"\nand c".to_owned(),
        };
        for (content, xml, json, psyc) in [
            (
                private,
                "<message to='heron@lock.example'><received xmlns='urn:xmpp:receipts' id='m7'/></message>",
                r#"{"type":"received","to":"heron@lock.example","id":"m7"}"#,
                ":t\tpsyc://lock.example/~heron\n:tr\tm7\n\nre\n|\n",
            ),
            (
                PacketContent::Ping { id: 8 },
                "<iq type='result' to='lock.example' id='m8'/>",
                r#"{"type":"pong","to":"lock.example","id":"m8"}"#,
                ":t\tpsyc://lock.example/\n:tr\tm8\n\npo\n|\n",
            ),
            (
                public,
                "<message type='groupchat' to='weir@chat.lock.example'><body>heron: a &lt; \"b\"\nand c</body></message>",
                r#"{"type":"groupchat","to":"weir@chat.lock.example","body":"heron: a < \"b\"\nand c"}"#,
                ":t\tpsyc://chat.lock.example/@weir\n24\nmp\nheron: a < \"b\"\nand c\n|\n",
            ),
            (PacketContent::Enter { nick: nick() }, "", "", ""),
        ] {
            assert_eq!(content.xml_reply(), xml);
            assert_eq!(content.json_reply(), json);
            assert_eq!(content.psyc_reply(&COMPACT), psyc.as_bytes());
        }
    }
}

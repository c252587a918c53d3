//! The sessions of `chat-client`: the packets that a server sends to one client, in four syntaxes.
//!
//! A session of N packets is drawn from the `SplitMix64` sequence with the seed N: presence of
//! [`CONTACTS`] contacts, members who enter and leave one room, messages in the room and to the
//! client alone, and pings. Some messages in the room begin with the name of the client, some have
//! several lines, and some have characters that XML or JSON must escape.
//!
//! A file has its packets one after the other, each after a line with its length in bytes. So every
//! client gets whole packets, as it does from a websocket. A second file has the expected reply to
//! each packet, which is empty if the client must not reply.
//!
//! Invariant: the packets of number K have equal content in all syntaxes.

mod replies;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use weir_psyc::{Modifier, Packet, RenderError, Renderer};

pub use replies::replies;

use crate::error::{LabError, Result};
use crate::rng::SplitMix64;

/// Maximum number of packets of a session.
pub const PACKETS_MAX: u64 = 100_000;
/// Number of contacts.
pub const CONTACTS: usize = 64;
/// The host of the contacts, and of the sender of pings.
pub const HOST: &str = "lock.example";
/// The name of the client. It must answer a message that begins with this name and a comma.
pub const OWN_NICK: &str = "warden";
/// The address of the client in XMPP and JSON.
pub const OWN_JID: &str = "warden@mill.example";
/// The room in XMPP and JSON.
pub const ROOM_JID: &str = "weir@chat.lock.example";
/// The room in PSYC.
pub const ROOM_UNIFORM: &str = "psyc://chat.lock.example/@weir";

/// The names and methods of the PSYC packets.
#[derive(Clone, Copy, Debug)]
pub struct Vocabulary {
    /// Routing: the context that a packet is about.
    pub context: &'static [u8],
    /// Routing: the sender of a packet that the context forwards.
    pub source_relay: &'static [u8],
    /// Routing: the sender.
    pub source: &'static [u8],
    /// Routing: the receiver.
    pub target: &'static [u8],
    /// Routing: the number that an answer repeats.
    pub tag: &'static [u8],
    /// Routing: the number that this packet answers.
    pub tag_relay: &'static [u8],
    /// Entity: the name of a person in a room.
    pub nick: &'static [u8],
    /// Entity: whether a contact is available, a digit.
    pub availability: &'static [u8],
    /// Method: a contact changed its availability.
    pub presence: &'static [u8],
    /// Method: somebody entered a room.
    pub enter: &'static [u8],
    /// Method: somebody left a room.
    pub leave: &'static [u8],
    /// Method: a message to a room.
    pub public: &'static [u8],
    /// Method: a message to one person.
    pub private: &'static [u8],
    /// Method: asks for an answer.
    pub ping: &'static [u8],
    /// Method: the answer to a ping.
    pub pong: &'static [u8],
    /// Method: a message has arrived.
    pub received: &'static [u8],
}

/// Long names.
pub const LONG: Vocabulary = Vocabulary {
    context: b"_context",
    source_relay: b"_source_relay",
    source: b"_source",
    target: b"_target",
    tag: b"_tag",
    tag_relay: b"_tag_relay",
    nick: b"_nick",
    availability: b"_degree_availability",
    presence: b"_notice_presence",
    enter: b"_notice_context_enter",
    leave: b"_notice_context_leave",
    public: b"_message_public",
    private: b"_message_private",
    ping: b"_ping",
    pong: b"_pong",
    received: b"_status_received",
};

/// Compact names.
pub const COMPACT: Vocabulary = Vocabulary {
    context: b"c",
    source_relay: b"sr",
    source: b"s",
    target: b"t",
    tag: b"tg",
    tag_relay: b"tr",
    nick: b"k",
    availability: b"da",
    presence: b"np",
    enter: b"ne",
    leave: b"nl",
    public: b"mp",
    private: b"mv",
    ping: b"pi",
    pong: b"po",
    received: b"re",
};

/// The values of `show` in XMPP and JSON, each with the digit of its availability in PSYC. The empty
/// one is left out of a packet.
pub const SHOWS: [(&str, u8); 6] = [
    ("unavailable", 1),
    ("dnd", 2),
    ("xa", 3),
    ("away", 4),
    ("", 7),
    ("chat", 8),
];

/// The content of one packet, for all syntaxes.
#[derive(Clone, Debug)]
enum PacketContent {
    Presence { nick: String, show: usize },
    Enter { nick: String },
    Leave { nick: String },
    Public { nick: String, text: String },
    Private { nick: String, text: String, id: u64 },
    Ping { id: u64 },
}

const NICKS: [&str; 16] = [
    "heron", "otter", "bream", "miller", "pike", "sluice", "teal", "grebe", "perch", "ferry",
    "ouzel", "reed", "eel", "coot", "lamprey", "dace",
];

const WORDS: [&str; 32] = [
    "the",
    "north",
    "gate",
    "sticks",
    "again",
    "water",
    "is",
    "at",
    "2.1",
    "m",
    "and",
    "rising",
    "since",
    "six",
    "who",
    "has",
    "key",
    "to",
    "pump",
    "house",
    "I",
    "left",
    "it",
    "with",
    "you",
    "yesterday",
    "level",
    "fell",
    "below",
    "mark",
    "come",
    "over",
];

/// Pieces that XML or JSON must escape.
const SPECIAL: [&str; 4] = ["a < b & c", "\"closed\"", "c:\\log\\7", "x > 1 && y"];

fn nick(contact: usize) -> String {
    let name = NICKS[contact % NICKS.len()];
    match contact / NICKS.len() {
        0 => name.to_owned(),
        round => format!("{name}{round}"),
    }
}

fn text(rng: &mut SplitMix64) -> String {
    let mut text = String::new();
    for number in 0..3 + rng.below(16) {
        if number > 0 {
            text.push(if rng.below(64) == 0 { '\n' } else { ' ' });
        }
        text.push_str(match rng.below(48) {
            0 => SPECIAL[rng.below(SPECIAL.len())],
            _ => WORDS[rng.below(WORDS.len())],
        });
    }
    text
}

/// The packets of a session of `size`.
fn contents(size: u64) -> Vec<PacketContent> {
    let mut rng = SplitMix64::new(size);
    let mut present: Vec<usize> = Vec::new();
    let mut absent: Vec<usize> = (0..CONTACTS).collect();
    let mut contents = Vec::new();
    for id in 0..size {
        let contact = nick(rng.below(CONTACTS));
        let content = match rng.below(100) {
            0..45 if !present.is_empty() => {
                let nick = nick(present[rng.below(present.len())]);
                let called = rng.below(12) == 0;
                let start = if called {
                    format!("{OWN_NICK}, ")
                } else {
                    String::new()
                };
                let text = start + &text(&mut rng);
                PacketContent::Public { nick, text }
            }
            45..65 => PacketContent::Presence {
                nick: contact,
                show: rng.below(SHOWS.len()),
            },
            65..80 => PacketContent::Private {
                nick: contact,
                text: text(&mut rng),
                id,
            },
            80..87 if present.len() > 1 => {
                let member = present.swap_remove(rng.below(present.len()));
                absent.push(member);
                PacketContent::Leave { nick: nick(member) }
            }
            0..95 if !absent.is_empty() => {
                let member = absent.swap_remove(rng.below(absent.len()));
                present.push(member);
                PacketContent::Enter { nick: nick(member) }
            }
            _ => PacketContent::Ping { id },
        };
        contents.push(content);
    }
    contents
}

/// The bytes of `text` in XML, where it is not in an attribute.
pub fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

impl PacketContent {
    fn xml(&self) -> String {
        let to = OWN_JID;
        match self {
            PacketContent::Presence { nick, show } => {
                let from = format!("{nick}@{HOST}/quay");
                match SHOWS[*show].0 {
                    "unavailable" => {
                        format!("<presence from='{from}' to='{to}' type='unavailable'/>")
                    }
                    "" => format!("<presence from='{from}' to='{to}'/>"),
                    show => {
                        format!("<presence from='{from}' to='{to}'><show>{show}</show></presence>")
                    }
                }
            }
            PacketContent::Enter { nick } => format!(
                "<presence from='{ROOM_JID}/{nick}' to='{to}'><x xmlns='http://jabber.org/protocol/muc#user'><item affiliation='member' role='participant'/></x></presence>"
            ),
            PacketContent::Leave { nick } => format!(
                "<presence from='{ROOM_JID}/{nick}' to='{to}' type='unavailable'><x xmlns='http://jabber.org/protocol/muc#user'><item affiliation='member' role='none'/></x></presence>"
            ),
            PacketContent::Public { nick, text } => format!(
                "<message from='{ROOM_JID}/{nick}' to='{to}' type='groupchat'><body>{}</body></message>",
                escape_xml(text)
            ),
            PacketContent::Private { nick, text, id } => format!(
                "<message from='{nick}@{HOST}/quay' to='{to}' type='chat' id='m{id}'><body>{}</body><request xmlns='urn:xmpp:receipts'/></message>",
                escape_xml(text)
            ),
            PacketContent::Ping { id } => format!(
                "<iq from='{HOST}' to='{to}' type='get' id='m{id}'><ping xmlns='urn:xmpp:ping'/></iq>"
            ),
        }
    }

    fn json(&self) -> String {
        let to = OWN_JID;
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        match self {
            PacketContent::Presence { nick, show } => {
                let mut packet = format!(
                    "{{\"type\":\"presence\",\"from\":\"{nick}@{HOST}/quay\",\"to\":\"{to}\""
                );
                if !SHOWS[*show].0.is_empty() {
                    // Writing to a string cannot fail.
                    let _ = write!(packet, ",\"show\":\"{}\"", SHOWS[*show].0);
                }
                packet + "}"
            }
            PacketContent::Enter { nick } => format!(
                "{{\"type\":\"presence\",\"from\":\"{ROOM_JID}/{nick}\",\"to\":\"{to}\",\"affiliation\":\"member\",\"role\":\"participant\"}}"
            ),
            PacketContent::Leave { nick } => format!(
                "{{\"type\":\"presence\",\"from\":\"{ROOM_JID}/{nick}\",\"to\":\"{to}\",\"show\":\"unavailable\",\"affiliation\":\"member\",\"role\":\"none\"}}"
            ),
            PacketContent::Public { nick, text } => format!(
                "{{\"type\":\"groupchat\",\"from\":\"{ROOM_JID}/{nick}\",\"to\":\"{to}\",\"body\":{}}}",
                quoted(text)
            ),
            PacketContent::Private { nick, text, id } => format!(
                "{{\"type\":\"chat\",\"from\":\"{nick}@{HOST}/quay\",\"to\":\"{to}\",\"id\":\"m{id}\",\"body\":{}}}",
                quoted(text)
            ),
            PacketContent::Ping { id } => format!(
                "{{\"type\":\"ping\",\"from\":\"{HOST}\",\"to\":\"{to}\",\"id\":\"m{id}\"}}"
            ),
        }
    }

    /// The packet in PSYC, as the renderer of the codec writes it by default.
    fn psyc(&self, words: &Vocabulary) -> std::result::Result<Vec<u8>, RenderError> {
        let person = |nick: &str| format!("psyc://{HOST}/~{nick}");
        let room = ROOM_UNIFORM.to_owned();
        let (first, second, entity, method, data) = match self {
            PacketContent::Presence { nick, show } => (
                (words.context, person(nick)),
                None,
                Some((words.availability, SHOWS[*show].1.to_string())),
                words.presence,
                "",
            ),
            PacketContent::Enter { nick } | PacketContent::Leave { nick } => (
                (words.context, room),
                Some((words.source_relay, person(nick))),
                Some((words.nick, nick.clone())),
                match self {
                    PacketContent::Enter { .. } => words.enter,
                    _ => words.leave,
                },
                "",
            ),
            PacketContent::Public { nick, text } => (
                (words.context, room),
                Some((words.source_relay, person(nick))),
                Some((words.nick, nick.clone())),
                words.public,
                text.as_str(),
            ),
            PacketContent::Private { nick, text, id } => (
                (words.source, person(nick)),
                Some((words.tag, format!("m{id}"))),
                None,
                words.private,
                text.as_str(),
            ),
            PacketContent::Ping { id } => (
                (words.source, format!("psyc://{HOST}/")),
                Some((words.tag, format!("m{id}"))),
                None,
                words.ping,
                "",
            ),
        };
        let mut routing = vec![Modifier::set(first.0, first.1.as_bytes())];
        routing.extend(
            second
                .iter()
                .map(|(name, value)| Modifier::set(name, value.as_bytes())),
        );
        let entity: Vec<Modifier<'_>> = entity
            .iter()
            .map(|(name, value)| match self {
                // The availability of a contact is stored until it changes.
                PacketContent::Presence { .. } => Modifier::assign(name, value.as_bytes()),
                _ => Modifier::set(name, value.as_bytes()),
            })
            .collect();
        render(&routing, &entity, method, data)
    }
}

/// The bytes of a packet in PSYC.
fn render(
    routing: &[Modifier<'_>],
    entity: &[Modifier<'_>],
    method: &[u8],
    data: &str,
) -> std::result::Result<Vec<u8>, RenderError> {
    let packet = Packet::new(routing, entity, method, data.as_bytes());
    let mut out = Vec::new();
    Renderer::new().append(&packet, &mut out)?;
    Ok(out)
}

/// The session of `size` packets in `psyc`, `psyc-c`, `xml` or `json`; `None` for other words.
pub fn session(size: u64, syntax: &str) -> Option<Vec<u8>> {
    messages(size, |content| {
        Some(match syntax {
            "psyc" => content.psyc(&LONG).ok()?,
            "psyc-c" => content.psyc(&COMPACT).ok()?,
            "xml" => content.xml().into_bytes(),
            "json" => content.json().into_bytes(),
            _ => return None,
        })
    })
}

/// A file with one message for each packet of the session of `size`.
fn messages(size: u64, message: impl Fn(&PacketContent) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let mut file = Vec::new();
    for content in contents(size) {
        let message = message(&content)?;
        file.extend_from_slice(format!("{}\n", message.len()).as_bytes());
        file.extend_from_slice(&message);
    }
    Some(file)
}

/// The ranges of the packets in the bytes of a file; `None` if the file is not well-formed.
pub fn packets(file: &[u8]) -> Option<Vec<Range<usize>>> {
    let mut packets = Vec::new();
    let mut at = 0;
    while at < file.len() {
        let rest = file.get(at..)?;
        let digits = memchr::memchr(b'\n', rest)?;
        let length: usize = std::str::from_utf8(rest.get(..digits)?)
            .ok()?
            .parse()
            .ok()?;
        let from = at + digits + 1;
        at = from.checked_add(length)?;
        packets.push(from..at);
    }
    (at == file.len()).then_some(packets)
}

/// The file of the expected replies to the packets of the file `session`.
pub fn replies_path(session: &Path) -> PathBuf {
    let mut path = session.as_os_str().to_owned();
    path.push(".replies");
    PathBuf::from(path)
}

/// Generates a file from a size and a syntax.
type Generate = fn(u64, &str) -> Option<Vec<u8>>;

/// Writes the session of `size` and the expected replies in every syntax below `dir`, unless they
/// exist there. Returns the paths of the sessions by syntax.
pub fn files(dir: &Path, size: u64) -> Result<BTreeMap<String, PathBuf>> {
    let usage = |what: String| LabError::Usage { what };
    if size > PACKETS_MAX {
        let what = format!("a session of {size} packets; {PACKETS_MAX} is the largest");
        return Err(usage(what));
    }
    fs::create_dir_all(dir).map_err(LabError::io(dir))?;
    let mut files = BTreeMap::new();
    for syntax in ["psyc", "psyc-c", "xml", "json"] {
        let path = dir.join(format!("chat-{size}.{syntax}"));
        let wanted: [(PathBuf, Generate); 2] =
            [(path.clone(), session), (replies_path(&path), replies)];
        for (path, generate) in wanted {
            if !path.exists() {
                let bytes = generate(size, syntax);
                let bytes = bytes.ok_or_else(|| usage(format!("no session in {syntax}")))?;
                super::write_whole(&path, &bytes)?;
            }
        }
        files.insert(syntax.to_owned(), path);
    }
    Ok(files)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_syntax_has_all_packets_and_other_bytes_are_no_session() {
        for syntax in ["psyc", "psyc-c", "xml", "json"] {
            let file = session(500, syntax).unwrap();
            let found = packets(&file).unwrap();
            assert_eq!(found.len(), 500, "{syntax}");
            let replies = packets(&replies(500, syntax).unwrap()).unwrap();
            assert_eq!(replies.len(), 500, "{syntax}");
            assert!(replies.iter().any(|reply| !reply.is_empty()), "{syntax}");
            assert!(packets(&file[..file.len() - 1]).is_none(), "{syntax}");
        }
        assert!(session(1, "yaml").is_none());
        assert!(packets(b"3 abc").is_none() && packets(b"x\nabc").is_none());
    }

    #[test]
    fn a_session_has_every_kind_of_packet() {
        let contents = contents(1000);
        let count =
            |is: fn(&PacketContent) -> bool| contents.iter().filter(|content| is(content)).count();
        for (kind, count) in [
            (
                "presence",
                count(|l| matches!(l, PacketContent::Presence { .. })),
            ),
            ("enter", count(|l| matches!(l, PacketContent::Enter { .. }))),
            ("leave", count(|l| matches!(l, PacketContent::Leave { .. }))),
            (
                "public",
                count(|l| matches!(l, PacketContent::Public { .. })),
            ),
            (
                "private",
                count(|l| matches!(l, PacketContent::Private { .. })),
            ),
            ("ping", count(|l| matches!(l, PacketContent::Ping { .. }))),
            (
                "called",
                count(
                    |l| matches!(l, PacketContent::Public { text, .. } if text.starts_with("warden, ")),
                ),
            ),
            (
                "escaped",
                count(
                    |l| matches!(l, PacketContent::Private { text, .. } if text.contains(['&', '"', '\n'])),
                ),
            ),
        ] {
            assert!(count >= 5, "{count} of {kind}");
        }
    }
}

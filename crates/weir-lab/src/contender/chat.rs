//! A chat client: each packet of a session is decoded, applied to a roster and a room, and answered
//! if it needs an answer.
//!
//! All contenders have the [`Client`] and differ in the [`Dialect`]: how a packet becomes an
//! [`Event`], and how a [`Reply`] is written. So they must agree, in every syntax, on the state that
//! a session leaves and on the replies. Addresses are compared in one form ([`client::canonical`]).
//!
//! Invariants:
//! - A pass begins with an empty roster and an empty room.
//! - The touch includes the kind, the sender and the text of each event, and each written reply.

pub mod client;
pub mod jid;
pub mod json;
pub mod psyc;
pub mod xml;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use super::{Contender, ContenderError, parameter};
use crate::alloc;
use crate::clock::Stopwatch;
use crate::inputs::chat_session::{packets, replies_path};
use crate::protocol::{Answer, Fields, Timed};
use client::{Client, OwnedEvent, hash_of_reply};

/// The content of a packet for the client. All slices are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The kind of the packet.
    pub kind: Kind,
    /// The sender: the address of a contact or of a server, or the name of a member of the room.
    pub who: &'a [u8],
    /// The availability of a contact, 0 to 9.
    pub availability: u8,
    /// The number that the reply repeats.
    pub id: &'a [u8],
    /// The text of a message.
    pub text: &'a [u8],
}

/// The kinds of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A contact changed its availability.
    Presence = 1,
    /// A member entered the room.
    Enter,
    /// A member left the room.
    Leave,
    /// A member wrote to the room.
    Public,
    /// A contact wrote to the client; the reply reports that the message has arrived.
    Private,
    /// A server checks whether the client responds.
    Ping,
}

/// A packet that the client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The message `id` of `to` has arrived.
    Received {
        /// Address of the contact.
        to: &'a [u8],
        /// Number of the message.
        id: &'a [u8],
    },
    /// The answer to the ping `id`.
    Pong {
        /// Address of the server.
        to: &'a [u8],
        /// Number of the ping.
        id: &'a [u8],
    },
    /// A message to the room.
    Say {
        /// The text.
        text: &'a [u8],
    },
}

/// A syntax with a parser.
pub trait Dialect {
    /// Versions of the libraries that do the work.
    fn versions(&self) -> Fields {
        Fields::new()
    }
    /// Decodes `packet` and calls `then` with its event. Fails if the parser refuses the packet, or
    /// if no packet of a session has this form.
    fn decode(
        &mut self,
        packet: &[u8],
        then: impl FnOnce(&Event<'_>),
    ) -> Result<(), ContenderError>;
    /// Appends `reply` to `out`.
    fn write(reply: &Reply<'_>, out: &mut Vec<u8>) -> Result<(), ContenderError>;
}

/// The error for a packet that no session has.
#[cold]
pub(super) fn unexpected() -> ContenderError {
    ContenderError::Refused("a packet that no session has".to_owned())
}

/// The value that an event adds to the touch.
#[inline]
fn touch_of(event: &Event<'_>) -> u64 {
    let sum = event.kind as u64 + u64::from(event.availability);
    sum.wrapping_add(super::wire::touch(event.who))
        .wrapping_add(super::wire::touch(event.text))
}

/// The packets of a session, and the reply that the client must write to each.
#[derive(Debug)]
struct Session {
    bytes: Vec<u8>,
    /// The range of each packet in `bytes`.
    ranges: Vec<Range<usize>>,
    /// Empty if the client must write none.
    replies: Vec<Vec<u8>>,
}

impl Session {
    fn read(fields: &Fields) -> Result<Session, ContenderError> {
        let path: String = parameter(fields, "file")?;
        let (bytes, ranges) = read_messages(Path::new(&path))?;
        let (expected, of_replies) = read_messages(&replies_path(Path::new(&path)))?;
        let reply = |range: &Range<usize>| expected.get(range.clone()).map(<[u8]>::to_vec);
        let replies = of_replies.iter().filter_map(reply).collect();
        Ok(Session {
            bytes,
            ranges,
            replies,
        })
    }

    fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let packet = |range: &Range<usize>| self.bytes.get(range.clone());
        self.ranges.iter().filter_map(packet)
    }

    /// Fails unless `written` has the expected bytes for each packet; no bytes mean no reply.
    fn verify(&self, written: &[Vec<u8>]) -> Result<(), ContenderError> {
        if self.replies == written {
            return Ok(());
        }
        let pairs = self.replies.iter().zip(written);
        let equal = pairs.take_while(|(expected, written)| expected == written);
        Err(ContenderError::WrongReply(equal.count()))
    }
}

/// The bytes of a file of messages, and the range of each message.
fn read_messages(path: &Path) -> Result<(Vec<u8>, Vec<Range<usize>>), ContenderError> {
    let bytes = fs::read(path).map_err(|source| ContenderError::Io {
        path: path.display().to_string(),
        source,
    })?;
    let ranges = packets(&bytes).ok_or(ContenderError::Parameter("file"))?;
    Ok((bytes, ranges))
}

/// Times `iterations` calls of `pass`, which return the touch.
fn timed(
    iterations: u64,
    mut pass: impl FnMut() -> Result<u64, ContenderError>,
) -> Result<Timed, ContenderError> {
    let mut touch = 0u64;
    let watch = Stopwatch::start();
    for _ in 0..iterations {
        touch = touch.wrapping_add(pass()?);
    }
    let (wall_ns, cpu_ns) = watch.stop();
    Ok(Timed {
        wall_ns,
        cpu_ns,
        touch,
        extra: BTreeMap::new(),
    })
}

/// A chat client with one dialect.
#[derive(Debug)]
pub struct Chat<D> {
    dialect: D,
    client: Client,
    out: Vec<u8>,
    sessions: BTreeMap<usize, Session>,
}

impl<D: Dialect> Chat<D> {
    /// A client without sessions.
    pub fn new(dialect: D) -> Chat<D> {
        Chat {
            dialect,
            client: Client::default(),
            out: Vec::new(),
            sessions: BTreeMap::new(),
        }
    }

    /// Processes session `input`. Calls `each` with each reply, and `written` with the bytes that
    /// the client writes after each packet, which may be none. Returns the touch.
    fn pass(
        &mut self,
        input: usize,
        mut each: impl FnMut(&Reply<'_>),
        mut written: impl FnMut(&[u8]),
    ) -> Result<u64, ContenderError> {
        let (client, out) = (&mut self.client, &mut self.out);
        let session = self.sessions.get(&input);
        let session = session.ok_or(ContenderError::NotLoaded(input))?;
        let mut sum = 0u64;
        client.clear();
        for packet in session.packets() {
            out.clear();
            let mut result = Ok(());
            self.dialect.decode(packet, |event| {
                sum = sum.wrapping_add(touch_of(event));
                if let Some(reply) = client.apply(event) {
                    each(&reply);
                    result = D::write(&reply, out);
                }
            })?;
            result?;
            written(out.as_slice());
            sum = sum.wrapping_add(super::wire::touch(out));
        }
        Ok(sum)
    }
}

impl<D: Dialect> Contender for Chat<D> {
    fn versions(&self) -> Fields {
        self.dialect.versions()
    }

    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        self.sessions.insert(input, Session::read(fields)?);
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let (mut content, mut written) = (0u64, Vec::new());
        self.pass(
            input,
            |reply| content = content.wrapping_add(hash_of_reply(reply)),
            |bytes| written.push(bytes.to_vec()),
        )?;
        let session = self.sessions.get(&input);
        session
            .ok_or(ContenderError::NotLoaded(input))?
            .verify(&written)?;
        let content = content.wrapping_add(self.client.hash());
        let again = || self.pass(input, |_| (), |_| ());
        let (touch, allocations, allocated_bytes) = alloc::count(again);
        Ok(Answer {
            content,
            touch: touch?,
            allocations,
            allocated_bytes,
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        timed(iterations, || self.pass(input, |_| (), |_| ()))
    }
}

/// The floor: the events of a session are decoded when it is loaded, and replies are not written.
#[derive(Debug, Default)]
pub struct Floor {
    client: Client,
    sessions: BTreeMap<usize, Vec<OwnedEvent>>,
}

impl Floor {
    fn pass(
        &mut self,
        input: usize,
        mut each: impl FnMut(&Reply<'_>),
    ) -> Result<u64, ContenderError> {
        let session = self.sessions.get(&input);
        let session = session.ok_or(ContenderError::NotLoaded(input))?;
        let mut sum = 0u64;
        self.client.clear();
        for event in session {
            let event = event.borrowed();
            sum = sum.wrapping_add(touch_of(&event));
            if let Some(reply) = self.client.apply(&event) {
                each(&reply);
            }
        }
        Ok(sum)
    }
}

impl Contender for Floor {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let session = Session::read(fields)?;
        let mut events = Vec::new();
        let mut decoder = psyc::Psyc::<false>::default();
        for packet in session.packets() {
            decoder.decode(packet, |event| events.push(OwnedEvent::new(event)))?;
        }
        self.sessions.insert(input, events);
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let mut content = 0u64;
        let touch = self.pass(input, |reply| {
            content = content.wrapping_add(hash_of_reply(reply));
        })?;
        Ok(Answer {
            content: content.wrapping_add(self.client.hash()),
            touch,
            ..Answer::default()
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        timed(iterations, || self.pass(input, |_| ()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::by_name;
    use super::*;
    use crate::inputs::chat_session::files;

    /// The parameters of a session of `size` packets below `dir`.
    fn session(dir: &Path, size: u64, syntax: &str) -> Fields {
        let path = files(dir, size).unwrap().remove(syntax).unwrap();
        let path = path.to_str().unwrap().to_owned();
        Fields::from([("file".to_owned(), path)])
    }

    /// The answer of the contender `name` to a session of 400 packets.
    fn answer(name: &str, syntax: &str) -> Answer {
        let dir = tempfile::tempdir().unwrap();
        let fields = session(dir.path(), 400, syntax);
        let mut contender = by_name(name).unwrap();
        contender.load(7, &fields).unwrap();
        let answer = contender.check(7).unwrap();
        let timed = contender.run(7, 3).unwrap();
        assert_eq!(timed.touch, answer.touch.wrapping_mul(3), "{name}");
        answer
    }

    /// All clients, each with the syntax of its session.
    const CLIENTS: [(&str, &str); 6] = [
        ("chat-psyc", "psyc"),
        ("chat-psyc-compact", "psyc-c"),
        ("chat-psyc-lines", "psyc"),
        ("chat-quick-xml", "xml"),
        ("chat-serde-json", "json"),
        ("chat-serde-json-typed", "json"),
    ];

    #[test]
    fn sessions_in_all_syntaxes_have_equal_answers() {
        let expected = answer("chat-floor", "psyc").content;
        for (name, syntax) in CLIENTS {
            assert_eq!(answer(name, syntax).content, expected, "{name}");
        }
    }

    #[test]
    fn a_session_of_another_syntax_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let fields = session(dir.path(), 3, "xml");
        for name in ["chat-psyc", "chat-psyc-lines", "chat-serde-json"] {
            let mut contender = by_name(name).unwrap();
            contender.load(0, &fields).unwrap();
            assert!(contender.check(0).is_err(), "{name}");
        }
    }

    #[test]
    fn a_reply_with_one_wrong_byte_is_an_error() {
        for (name, syntax) in CLIENTS {
            let dir = tempfile::tempdir().unwrap();
            let fields = session(dir.path(), 400, syntax);
            let path = replies_path(Path::new(&fields["file"]));
            let mut replies = fs::read(&path).unwrap();
            let ranges = packets(&replies).unwrap();
            let wrong = ranges.iter().rposition(|range| !range.is_empty()).unwrap();
            replies[ranges[wrong].start] ^= 1;
            fs::write(&path, replies).unwrap();
            let mut contender = by_name(name).unwrap();
            contender.load(0, &fields).unwrap();
            match contender.check(0) {
                Err(ContenderError::WrongReply(at)) => assert_eq!(at, wrong, "{name}"),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}

//! The state of the client: a roster, and one room with its members and its last messages.
//!
//! `lab/peers/c-chat` has the same client in C++, with the same hash tables.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::{Event, Kind, Reply};
use crate::contender::wire::{pair, part};
use crate::inputs::chat_session::OWN_NICK;
use crate::rng::{fnv1a64, fnv1a64_more};

/// Number of messages that the room keeps.
const HISTORY: usize = 64;

/// FNV-1a as the hash of tables, so that the tables cost equal work in every language.
#[derive(Debug)]
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(fnv1a64(b""))
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = fnv1a64_more(self.0, bytes);
    }

    // The length of a key is not hashed.
    fn write_usize(&mut self, _: usize) {}
}

type Table<T> = HashMap<Vec<u8>, T, BuildHasherDefault<Fnv>>;

/// A contact of the roster.
#[derive(Debug, Default)]
struct Contact {
    availability: u8,
    unread: u64,
    last: Vec<u8>,
}

/// A roster and a room.
#[derive(Debug, Default)]
pub struct Client {
    roster: Table<Contact>,
    /// Number of messages of each member.
    members: Table<u64>,
    history: Vec<Vec<u8>>,
    /// Number of messages in the room so far.
    messages: usize,
    /// The text of a message that the client writes.
    own: Vec<u8>,
}

impl Client {
    /// Removes all contacts, members and messages.
    pub fn clear(&mut self) {
        self.roster.clear();
        self.members.clear();
        self.history.clear();
        self.messages = 0;
    }

    /// Changes the state, and returns the packet to send, if any.
    pub fn apply<'a>(&'a mut self, event: &Event<'a>) -> Option<Reply<'a>> {
        let (who, id) = (event.who, event.id);
        match event.kind {
            Kind::Presence => {
                let availability = event.availability;
                self.change(who, |contact| contact.availability = availability);
                None
            }
            Kind::Enter => {
                self.members.insert(who.to_vec(), 0);
                None
            }
            Kind::Leave => {
                self.members.remove(who);
                None
            }
            Kind::Public => self.room_message(who, event.text),
            Kind::Private => {
                self.change(who, |contact| {
                    contact.unread += 1;
                    contact.last.clear();
                    contact.last.extend_from_slice(event.text);
                });
                Some(Reply::Received { to: who, id })
            }
            Kind::Ping => Some(Reply::Pong { to: who, id }),
        }
    }

    /// A message in the room. The client answers those that begin with its name.
    fn room_message(&mut self, who: &[u8], text: &[u8]) -> Option<Reply<'_>> {
        if let Some(messages) = self.members.get_mut(who) {
            *messages += 1;
        }
        let index = self.messages % HISTORY;
        self.messages += 1;
        match self.history.get_mut(index) {
            Some(old) => {
                old.clear();
                old.extend_from_slice(text);
            }
            None => self.history.push(text.to_vec()),
        }
        let rest = text.strip_prefix(OWN_NICK.as_bytes())?;
        let rest = rest.strip_prefix(b", ")?;
        self.own.clear();
        self.own.extend_from_slice(who);
        self.own.extend_from_slice(b": ");
        self.own.extend_from_slice(rest);
        Some(Reply::Say { text: &self.own })
    }

    /// Changes a contact. Adds it if it is new.
    fn change(&mut self, who: &[u8], change: impl FnOnce(&mut Contact)) {
        if let Some(contact) = self.roster.get_mut(who) {
            return change(contact);
        }
        let mut contact = Contact::default();
        change(&mut contact);
        self.roster.insert(who.to_vec(), contact);
    }

    /// Hash of the state. It does not depend on the order of the tables.
    pub fn hash(&self) -> u64 {
        let contacts = self.roster.iter().map(|(who, contact)| {
            let state = format!("{} {} ", contact.availability, contact.unread);
            let value = [state.as_bytes(), &contact.last].concat();
            pair(b'c', &canonical(who), &value)
        });
        let members = self.members.iter().map(|(who, messages)| {
            let messages = messages.to_string();
            pair(b'm', who, messages.as_bytes())
        });
        let history = self.history.iter().enumerate().map(|(index, text)| {
            let index = index.to_string();
            pair(b'h', index.as_bytes(), text)
        });
        let all = contacts.chain(members).chain(history);
        all.fold(0, u64::wrapping_add)
    }
}

/// Hash of a reply, equal in all syntaxes.
pub fn hash_of_reply(reply: &Reply<'_>) -> u64 {
    match reply {
        Reply::Received { to, id } => pair(b'r', &canonical(to), id),
        Reply::Pong { to, id } => pair(b'p', &canonical(to), id),
        Reply::Say { text } => part(b's', text),
    }
}

/// The form of an address that all syntaxes share: `psyc://HOST/~NICK` is `NICK@HOST`, and
/// `psyc://HOST/` is `HOST`. Other addresses are in this form already.
pub fn canonical(address: &[u8]) -> Vec<u8> {
    let Some(rest) = address.strip_prefix(b"psyc://") else {
        return address.to_vec();
    };
    let mut parts = rest.splitn(2, |byte| *byte == b'/');
    let (host, object) = (parts.next(), parts.next());
    let (host, object) = (host.unwrap_or_default(), object.unwrap_or_default());
    match object.split_first() {
        Some((_, nick)) => [nick, b"@", host].concat(),
        None => host.to_vec(),
    }
}

/// An event with its own memory.
#[derive(Debug)]
pub struct OwnedEvent {
    kind: Kind,
    who: Vec<u8>,
    availability: u8,
    id: Vec<u8>,
    text: Vec<u8>,
}

impl OwnedEvent {
    /// A copy of `event`.
    pub fn new(event: &Event<'_>) -> OwnedEvent {
        OwnedEvent {
            kind: event.kind,
            who: event.who.to_vec(),
            availability: event.availability,
            id: event.id.to_vec(),
            text: event.text.to_vec(),
        }
    }

    /// The event.
    pub fn borrowed(&self) -> Event<'_> {
        Event {
            kind: self.kind,
            who: &self.who,
            availability: self.availability,
            id: &self.id,
            text: &self.text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event<'a>(kind: Kind, who: &'a [u8], text: &'a [u8]) -> Event<'a> {
        Event {
            kind,
            who,
            availability: 4,
            id: b"m1",
            text,
        }
    }

    #[test]
    fn only_private_or_addressed_messages_and_pings_get_a_reply() {
        let mut client = Client::default();
        let replies = [
            (event(Kind::Presence, b"a@h", b""), None),
            (event(Kind::Enter, b"heron", b""), None),
            (
                event(Kind::Public, b"heron", b"warden, come"),
                Some(b"heron: come".as_slice()),
            ),
            (event(Kind::Public, b"heron", b"warden"), None),
            (event(Kind::Leave, b"heron", b""), None),
        ];
        for (event, expected) in replies {
            let reply = client.apply(&event);
            assert_eq!(reply, expected.map(|text| Reply::Say { text }), "{event:?}");
        }
        let private = event(Kind::Private, b"a@h", b"here");
        let received = Reply::Received {
            to: b"a@h",
            id: b"m1",
        };
        assert_eq!(client.apply(&private), Some(received));
        let ping = event(Kind::Ping, b"h", b"");
        assert_eq!(
            client.apply(&ping),
            Some(Reply::Pong {
                to: b"h",
                id: b"m1"
            })
        );
    }

    #[test]
    fn the_state_depends_on_each_event() {
        let mut hashes = Vec::new();
        let events = [
            event(Kind::Presence, b"a@h", b""),
            event(Kind::Private, b"a@h", b"one"),
            event(Kind::Enter, b"heron", b""),
            event(Kind::Public, b"heron", b"two"),
            event(Kind::Leave, b"heron", b""),
        ];
        let mut client = Client::default();
        for event in events {
            client.apply(&event);
            hashes.push(client.hash());
        }
        hashes.dedup();
        assert_eq!(hashes.len(), 5);
        client.clear();
        assert_eq!(client.hash(), 0);
    }

    #[test]
    fn addresses_have_one_form() {
        for (address, form) in [
            ("psyc://lock.example/~heron", "heron@lock.example"),
            ("psyc://lock.example/", "lock.example"),
            ("heron@lock.example", "heron@lock.example"),
        ] {
            assert_eq!(canonical(address.as_bytes()), form.as_bytes());
        }
    }
}

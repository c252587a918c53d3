//! Converts words to steps of groups, and prints groups.
//!
//! `group TOPIC NAME VERB[=VALUE] [WORD=VALUE ...]`; lists are `take=2,3` and `keys=a,b,-`, with
//! `-` for a record without key.

use std::fmt::Write as _;

use weir_core::group::{Hashes, Offsets, key_hash};
use weir_core::machine::groups::{EntryState, Group};
use weir_core::{GroupMode, GroupName, GroupSetup, GroupStep, Machine};

use super::words::{number, pair, print};

/// A step that owns its bytes.
#[derive(Clone, Debug)]
pub(crate) struct OwnedGroupStep {
    pub(crate) name: String,
    verb: String,
    value: String,
    words: Vec<(String, String)>,
    take: Vec<u64>,
    keys: Option<Vec<u64>>,
}

impl OwnedGroupStep {
    /// Reads the words that belong to the step.
    pub(crate) fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Self {
        let name = words.next().unwrap_or_default().to_owned();
        let (verb, value) = pair(words.next().unwrap_or_default());
        Self {
            name,
            verb: verb.to_owned(),
            value: value.to_owned(),
            words: Vec::new(),
            take: Vec::new(),
            keys: None,
        }
    }

    /// Sets a property of the step from a word.
    pub(crate) fn set(&mut self, word: &str, value: &str) {
        match word {
            "take" => self.take = value.split(',').map(number).collect(),
            "keys" => {
                let hash = |key: &str| key_hash(key.strip_prefix('-').unwrap_or(key).as_bytes());
                self.keys = Some(value.split(',').map(hash).collect());
            }
            _ => self.words.push((word.to_owned(), value.to_owned())),
        }
    }

    fn text(&self, word: &str) -> Option<&str> {
        let found = self.words.iter().find(|(name, _)| name == word);
        found.map(|(_, value)| value.as_str())
    }

    fn number(&self, word: &str) -> u64 {
        self.text(word).map_or(0, number)
    }

    /// The step, borrowed.
    pub(crate) fn borrowed(&self) -> GroupStep<'_> {
        let value = || number(&self.value);
        let offsets = Offsets::Plain(&self.take);
        match self.verb.as_str() {
            "open" => {
                let modes = [GroupMode::Exclusive, GroupMode::Keyed, GroupMode::Shared];
                let mode = modes.into_iter().find(|mode| mode.name() == self.value);
                let mut setup = GroupSetup::new(mode.expect("a mode"));
                setup.start = self.number("start");
                setup.lease_ms = self.text("lease").map_or(setup.lease_ms, number);
                setup.attempts_max = u32::try_from(self.number("attempts")).unwrap();
                if let Some(pending) = self.text("pending") {
                    setup.pending_max = u32::try_from(number(pending)).unwrap();
                }
                setup.dead_letters = self.text("dead").unwrap_or_default();
                GroupStep::Open(setup)
            }
            "delete" => GroupStep::Delete,
            "reset" => GroupStep::Reset { offset: value() },
            "join" => GroupStep::Join {
                member: self.value.as_bytes(),
                takeover: self.text("takeover").is_some(),
            },
            "renew" => GroupStep::Renew {
                generation: value(),
            },
            "leave" => GroupStep::Leave {
                generation: value(),
            },
            "move" => GroupStep::Move {
                generation: self.number("generation"),
                offset: value(),
            },
            "claim" => GroupStep::Claim {
                member: self.value.as_bytes(),
                lease_ms: self.number("lease"),
                seen: self.number("seen"),
                through: self.number("through"),
                offsets,
                keys: self.keys.as_deref().map(Hashes::Plain),
            },
            "ack" => GroupStep::Ack {
                claim: value(),
                offsets,
            },
            "nack" => GroupStep::Nack {
                claim: value(),
                delay_ms: self.number("delay"),
                reason: self.text("reason").unwrap_or_default(),
                offsets,
            },
            "extend" => GroupStep::Extend {
                claim: value(),
                lease_ms: self.number("lease"),
                offsets,
            },
            "dead-letters-written" => GroupStep::DeadLettersWritten { numbers: offsets },
            verb => panic!("a group cannot {verb}"),
        }
    }
}

/// Prints the groups of a topic.
pub(crate) fn print_groups(machine: &Machine, topic: &str, out: &mut String) {
    let Some(id) = machine.topic(topic).map(|view| view.id) else {
        out.push_str("no topic\n");
        return;
    };
    for (name, group) in machine.groups(id) {
        print_group(name, group, out);
    }
    if let Some(held) = machine.held(id) {
        let _ = writeln!(out, "held from {}", held + 1);
    }
    let _ = writeln!(out, "{} groups", machine.groups(id).count());
}

fn print_group(name: &GroupName, group: &Group, out: &mut String) {
    let (cursor, frontier) = (group.cursor(), group.frontier());
    let _ = write!(out, "{name} {}: cursor {cursor}", group.mode().name());
    if group.mode() != GroupMode::Exclusive {
        let _ = write!(
            out,
            ", frontier {frontier}, {} acknowledged above",
            group.acknowledged_above()
        );
    }
    if group.redeliveries() > 0 {
        let _ = write!(out, ", {} redeliveries", group.redeliveries());
    }
    out.push('\n');
    if let Some(owner) = group.owner() {
        let member = print(&owner.member);
        let (generation, until) = (owner.generation, owner.until_ms);
        let _ = writeln!(
            out,
            "  owner {member} generation {generation} until {until}"
        );
    }
    for (offset, entry) in group.entries() {
        let _ = write!(out, "  {offset} attempts {}", entry.attempts);
        let _ = match entry.state {
            EntryState::Waiting { from_ms } => writeln!(out, " waits from {from_ms}"),
            EntryState::Leased { claim, until_ms } => {
                let mut claims = group.claims();
                let member = claims.find(|(id, ..)| *id == claim).expect("a claim").1;
                writeln!(
                    out,
                    " with {} by claim {claim} until {until_ms}",
                    print(member)
                )
            }
        };
    }
    for (number, letter) in group.unwritten_dead_letters() {
        let (offset, attempts, time) = (letter.offset, letter.attempts, letter.time_ms);
        let _ = writeln!(
            out,
            "  dead letter {number}: offset {offset} attempts {attempts} at {time} reason '{}'",
            letter.reason
        );
    }
}

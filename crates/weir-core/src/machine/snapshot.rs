//! The state of a machine as a snapshot (docs/formats/snapshot.md).
//!
//! Invariants:
//! - Equal states have equal bytes.
//! - Reading a snapshot restores everything in it.

use std::sync::Arc;

use super::saved::{self, SavedProgram};
use super::topic::{LiveTopic, Topic};
use super::{Machine, groups};
use crate::digest::{Digest, hash};
use crate::exact::{to_u16, to_u32};
use crate::ids::{ConsequenceOffset, IntentionOffset, TopicId, TopicName};
use crate::keys::KeyIndex;
use crate::limits::{
    KEY_BYTES_MAX, MACHINE_VERSION, OPTION_BYTES_MAX, TOPIC_NAME_BYTES_MAX, TOPICS_MAX,
};
use crate::options::TopicOptions;
use crate::program::ProgramHost;
use crate::session::SessionTable;
use crate::snapshot::{Input, SnapshotError, SnapshotSink, SnapshotSource, Writer};

impl Machine {
    /// Writes the state. Equal states give equal bytes, independent of the seeds.
    pub fn save(&self, to: &mut dyn SnapshotSink) -> Result<(), SnapshotError> {
        let mut out = Writer::new(to);
        out.number(u64::from(MACHINE_VERSION))?;
        out.number(self.applied.0)?;
        out.number(self.time_ms)?;
        out.word(self.digest.0)?;
        out.number(self.topics.len() as u64)?;
        for topic in &self.topics {
            out.bytes(topic.name.as_str().as_bytes())?;
            out.number(topic.last.0)?;
            out.word(topic.digest.0)?;
            match &topic.live {
                None => out.number(0)?,
                Some(live) => save_live(live, &mut out)?,
            }
            save_sections(topic, &mut out)?;
        }
        self.sessions.save(&mut out)?;
        out.number(u64::from(!self.codes.is_empty()))?; // further sections
        if !self.codes.is_empty() {
            saved::save_codes(&self.codes, &mut out)?;
        }
        out.finish()
    }

    /// Reads a state without programs, as written by [`save`](Self::save).
    pub fn load(from: &mut dyn SnapshotSource, seed: u64) -> Result<Self, SnapshotError> {
        Self::load_with(from, seed, None)
    }

    /// Reads a state that [`save`](Self::save) wrote. `host` runs its programs.
    pub fn load_with(
        from: &mut dyn SnapshotSource,
        seed: u64,
        host: Option<Arc<dyn ProgramHost>>,
    ) -> Result<Self, SnapshotError> {
        let mut input = Input::new(from);
        let version = input.count(u64::from(u16::MAX), "a machine version")?;
        if version != u64::from(MACHINE_VERSION) {
            let found = to_u16(version, "a larger version is refused above");
            return Err(SnapshotError::Version {
                found,
                known: MACHINE_VERSION,
            });
        }
        let mut machine = Self::new(seed).with_host(host);
        let mut programs = Vec::new();
        machine.applied = IntentionOffset(input.counter()?);
        machine.time_ms = input.number()?;
        machine.digest = Digest(input.word()?);
        for number in 0..input.count(TOPICS_MAX as u64, "at most 2^20 topics")? {
            let id = TopicId(to_u32(number, "there are at most 2^20 topics"));
            let (topic, program) = load_topic(&mut input, seed, machine.applied)?;
            programs.extend(program.map(|program| (id, program)));
            if machine.by_name.insert(topic.name.clone(), id).is_some() {
                return Err(SnapshotError::Malformed("each topic name once"));
            }
            let entries = topic.groups.values().map(|group| group.entries().len());
            machine.pending += entries.sum::<usize>();
            let incarnation = topic.live.as_ref().map(|live| live.incarnation);
            machine.newest = machine.newest.max(incarnation.unwrap_or_default());
            machine.topics.push(topic);
        }
        machine.sessions = SessionTable::load(&mut input, machine.applied)?;
        let sections = input.count(1, SECTIONS)?;
        if (sections == 1) == programs.is_empty() {
            return Err(SnapshotError::Malformed("the code of the programs"));
        }
        if sections == 1 {
            section(&mut input, saved::CODES)?;
            let host = machine.host.clone().ok_or(SnapshotError::ProgramNeeded)?;
            machine.codes = saved::load_codes(&mut input, &*host)?;
            for (id, program) in programs {
                if let Some(topic) = machine.topics.get_mut(id.index()) {
                    saved::restore_program(
                        topic,
                        program,
                        (&mut machine.codes, &mut machine.states),
                        &*host,
                    )?;
                }
            }
            if machine.codes.iter().any(|code| code.topics == 0) {
                return Err(SnapshotError::Malformed("only modules that are used"));
            }
        }
        Ok(machine)
    }
}

fn save_live(live: &LiveTopic, out: &mut Writer<'_>) -> Result<(), SnapshotError> {
    out.number(live.incarnation.0)?;
    out.number(live.created.0)?;
    let mut options = Vec::new();
    live.options.encode(&mut options);
    out.bytes(&options)?;
    out.number(live.keys.len() as u64)?;
    for (key, offset) in live.keys.sorted() {
        out.bytes(key)?;
        out.number(offset.0)?;
    }
    Ok(())
}

fn save_sections(topic: &Topic, out: &mut Writer<'_>) -> Result<(), SnapshotError> {
    let live = topic.live.as_ref();
    let program = live.and_then(|live| Some((live.program.as_ref()?, &live.keys)));
    let stopped = live.is_some_and(|live| live.stopped);
    let is_trimmed = topic.trimmed > ConsequenceOffset::ZERO;
    let present = [
        program.is_some(),
        stopped,
        !topic.groups.is_empty(),
        is_trimmed,
    ];
    out.number(present.into_iter().map(u64::from).sum())?;
    if let Some((running, keys)) = program {
        saved::save(running, keys, out)?;
    }
    if stopped {
        out.number(saved::STOPPED)?;
        out.bytes(&[])?;
    }
    if !topic.groups.is_empty() {
        groups::saved::save(&topic.groups, out)?;
    }
    if is_trimmed {
        out.number(saved::TRIMMED)?;
        out.bytes(&topic.trimmed.0.to_le_bytes())?;
    }
    Ok(())
}

/// Message for a section that this version does not know.
const SECTIONS: &str = "no sections that this build does not know";

fn section(input: &mut Input<'_>, tag: u64) -> Result<(), SnapshotError> {
    match input.number()? {
        found if found == tag => Ok(()),
        _ => Err(SnapshotError::Malformed(SECTIONS)),
    }
}

fn load_topic(
    input: &mut Input<'_>,
    seed: u64,
    applied: IntentionOffset,
) -> Result<(Topic, Option<SavedProgram>), SnapshotError> {
    let what = "a topic name of at most 255 bytes";
    let name = String::from_utf8(input.bytes(TOPIC_NAME_BYTES_MAX, what)?).ok();
    let name = name.and_then(|name| TopicName::any(&name).ok());
    let name = name.ok_or(SnapshotError::Malformed(what))?;
    let mut topic = Topic {
        name_hash: hash(0, name.as_str().as_bytes()),
        name,
        last: ConsequenceOffset(input.counter()?),
        trimmed: ConsequenceOffset::ZERO,
        digest: Digest(input.word()?),
        live: None,
        groups: groups::Groups::new(),
    };
    if topic.last == ConsequenceOffset::ZERO {
        return Err(SnapshotError::Malformed("a topic with a record"));
    }
    let incarnation = IntentionOffset(input.number()?);
    if incarnation == IntentionOffset::ZERO {
        load_sections(input, &mut topic, applied, None)?;
        return Ok((topic, None));
    }
    let created = ConsequenceOffset(input.number()?);
    if incarnation > applied || created > topic.last || created == ConsequenceOffset::ZERO {
        return Err(SnapshotError::Malformed(
            "a creation before the last record",
        ));
    }
    let options = TopicOptions::decode(&input.bytes(OPTION_BYTES_MAX, "topic options")?);
    let options = options.ok_or(SnapshotError::Malformed("topic options"))?;
    let mut keys = KeyIndex::new(seed);
    let mut before = Vec::new();
    for _ in 0..input.number()? {
        let key = input.bytes(KEY_BYTES_MAX, "a key of at most 65,535 bytes")?;
        let offset = ConsequenceOffset(input.number()?);
        if key <= before {
            return Err(SnapshotError::Malformed("keys in ascending order"));
        }
        if offset <= created || offset > topic.last {
            return Err(SnapshotError::Malformed("the offset of a key"));
        }
        keys.set(&key, offset);
        before = key;
    }
    let (program, stopped) = load_sections(input, &mut topic, applied, Some((&options, &keys)))?;
    topic.live = Some(LiveTopic {
        incarnation,
        created,
        options,
        keys,
        program: None,
        stopped,
    });
    Ok((topic, program))
}

/// Reads the sections of a topic. `live` has the options and keys of a live topic. Returns the
/// program, and whether the topic is in quarantine.
fn load_sections(
    input: &mut Input<'_>,
    topic: &mut Topic,
    applied: IntentionOffset,
    live: Option<(&TopicOptions, &KeyIndex)>,
) -> Result<(Option<SavedProgram>, bool), SnapshotError> {
    let (mut program, mut stopped) = (None, false);
    let mut before = 0;
    for _ in 0..input.count(4, SECTIONS)? {
        let tag = input.number()?;
        match (tag, live) {
            _ if tag <= before => return Err(SnapshotError::Malformed(SECTIONS)),
            (saved::PROGRAM, Some((options, keys))) => {
                program = Some(saved::load(input, options, keys)?);
            }
            (saved::STOPPED, Some(_)) => {
                input.bytes(0, "a mark without content")?;
                stopped = true;
            }
            (groups::saved::GROUPS, _) => {
                let name = topic.name.as_str();
                topic.groups = groups::saved::load(input, name, topic.last, applied.0)?;
            }
            (saved::TRIMMED, _) => {
                let trimmed = u64::from_le_bytes(input.array()?);
                if !(1..=topic.last.0).contains(&trimmed) {
                    return Err(SnapshotError::Malformed("the offset of a removed record"));
                }
                topic.trimmed = ConsequenceOffset(trimmed);
            }
            _ => return Err(SnapshotError::Malformed(SECTIONS)),
        }
        before = tag;
    }
    Ok((program, stopped))
}

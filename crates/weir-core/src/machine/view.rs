//! Topics as callers of the machine see them.

use super::Machine;
use super::topic::{LiveTopic, Topic};
use crate::digest::Digest;
use crate::ids::{ConsequenceOffset, IntentionOffset, TopicId, TopicName};
use crate::keys::KeyIndex;
use crate::options::TopicOptions;
use crate::program::ProgramView;

/// A topic as callers of the machine see it, live or destroyed.
#[derive(Clone, Copy, Debug)]
pub struct TopicView<'a> {
    /// Its name.
    pub name: &'a TopicName,
    /// Its id.
    pub id: TopicId,
    /// Offset of its newest record.
    pub last: ConsequenceOffset,
    /// Offset of the newest record that reads no longer return; zero for none.
    pub trimmed: ConsequenceOffset,
    /// Intention offset of its CREATE; `None` if the topic is not live.
    pub incarnation: Option<IntentionOffset>,
    /// Offset of its CREATE record; `None` if the topic is not live.
    pub created: Option<ConsequenceOffset>,
    /// Options; `None` if the topic is not live.
    pub options: Option<&'a TopicOptions>,
    /// Keys; `None` if the topic is not live.
    pub keys: Option<&'a KeyIndex>,
    /// Its program; `None` for a plain topic and for one that is not live.
    pub program: Option<ProgramView<'a>>,
    /// In quarantine: it accepts no PUT, DELETE or transaction.
    pub quarantined: bool,
    /// Digest of its history.
    pub digest: Digest,
}

impl Machine {
    /// Every topic that was ever created, in order of ids.
    pub fn topics(&self) -> impl Iterator<Item = TopicView<'_>> {
        (0_u32..)
            .zip(&self.topics)
            .map(|(number, topic)| view(TopicId(number), topic))
    }

    /// A topic by name, live or not; `None` if it was never created.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<TopicView<'_>> {
        self.topic_by_id(*self.by_name.get(name)?)
    }

    /// A topic by id.
    #[must_use]
    pub fn topic_by_id(&self, id: TopicId) -> Option<TopicView<'_>> {
        self.topics.get(id.index()).map(|topic| view(id, topic))
    }
}

pub(super) fn view(id: TopicId, topic: &Topic) -> TopicView<'_> {
    let live = topic.live.as_ref();
    TopicView {
        name: &topic.name,
        id,
        last: topic.last,
        trimmed: topic.trimmed,
        incarnation: live.map(|live| live.incarnation),
        created: live.map(|live| live.created),
        options: live.map(|live| &live.options),
        keys: live.map(|live| &live.keys),
        program: live.and_then(program_view),
        quarantined: live.is_some_and(|live| live.stopped),
        digest: topic.digest,
    }
}

fn program_view(live: &LiveTopic) -> Option<ProgramView<'_>> {
    let running = live.program.as_deref()?;
    Some(ProgramView {
        code: running.code,
        args: &running.args,
        meter: running.meter,
        mode: running.mode,
        state: Some(running.context.state()),
        state_entries: running.context.state().len() as u64,
        state_bytes: running.state_bytes(),
        counts: running.counts,
        verdicts: running.verdicts,
    })
}

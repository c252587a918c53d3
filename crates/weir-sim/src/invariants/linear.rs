//! A linear read returns everything that was acknowledged or returned before the read began.

use std::time::Duration;

use weir_core::ConsequenceOffset;
use weir_store::{Store, StoreError};

use crate::cluster::{GROUP, TOPIC};
use crate::report::Violation;

/// The reads of a node that can be linear.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadKind {
    /// The description of the topic.
    Topic,
    /// The list of topics.
    List,
    /// Pages of records, as a listener or a query reads them.
    Page,
    /// One record by its offset.
    Record,
    /// The description of the group.
    Group,
}

impl ReadKind {
    /// The kind of read `number`: each kind in turn.
    pub(crate) fn nth(number: u64) -> Self {
        match number % 5 {
            0 => Self::Topic,
            1 => Self::List,
            2 => Self::Page,
            3 => Self::Record,
            _ => Self::Group,
        }
    }

    /// The newest offset of the topic that a read of this kind returns. `None` if the read fails.
    ///
    /// `Page` and `Record` read from offset `floor` on: `floor - 1` if there is no such record, else
    /// the offset of the last record that they return.
    pub(crate) fn newest(self, store: &Store, floor: u64) -> Option<u64> {
        let before = ConsequenceOffset(floor.saturating_sub(1));
        match self {
            Self::Topic => Some(store.topic(TOPIC).map_or(0, |topic| topic.last.0)),
            Self::List => {
                let topics = store.topics_after("", "", usize::MAX, false);
                let topic = topics.iter().find(|topic| topic.name == TOPIC);
                Some(topic.map_or(0, |topic| topic.last.0))
            }
            Self::Page | Self::Record => {
                let mut reader = match store.read(TOPIC, before) {
                    Ok(reader) => reader,
                    Err(StoreError::TopicUnknown { .. }) => return Some(0),
                    // The power of the node was cut.
                    Err(_) => return None,
                };
                let mut newest = before.0;
                while let Some(page) = reader.next_page().ok()? {
                    newest = match self {
                        Self::Page => page.last().0,
                        _ => page.iter().next()?.ok()?.offset.0,
                    };
                    if matches!(self, Self::Record) {
                        break;
                    }
                }
                Some(newest)
            }
            // A group that does not exist yet returns nothing.
            Self::Group => store.group(TOPIC, GROUP).map(|group| group.last.0),
        }
    }
}

/// `floor` and `last`: the newest offset that was returned before the read, and by the read.
pub(crate) fn check(
    (floor, last): (u64, u64),
    kind: ReadKind,
    node: u64,
    duration: Duration,
) -> Result<(), Violation> {
    if last >= floor {
        return Ok(());
    }
    Err(Violation::new(
        "a linear read is never stale",
        format!(
            "{kind:?} at node {node}: offset {last}, {floor} was returned before; the read took \
             {duration:?}"
        ),
    ))
}

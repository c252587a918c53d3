//! What the topics of a query have in common, and what one of them gives.

use bytes::Bytes;
use weir_core::{IntentionOffset, RecordKind};
use weir_query::{Frames, Meta, Properties, QueryError};

use super::options::TopicView;
use crate::remote::pushdown::PushdownRequest;

/// What all topics of a query have in common.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) properties: Properties,
    /// Bit `n` for kind number `n`.
    pub(super) kinds: u8,
    /// The last intention of the query.
    pub(super) cut: Option<IntentionOffset>,
    pub(super) view: TopicView,
    pub(super) reset_earliest: bool,
    /// What a server is asked for.
    pub(super) pushdown: PushdownRequest,
}

impl Shared {
    pub(super) fn wants(&self, kind: RecordKind) -> bool {
        self.kinds & 1 << kind as u8 != 0
    }
}

/// What a topic gives.
pub(super) enum Fetched {
    /// Items, perhaps none.
    Page(Came),
    /// There are no more.
    End,
    /// There are none now.
    Nothing,
    /// What is wrong with the record that comes next.
    Fault(QueryError),
}

/// Items that came.
pub(super) struct Came {
    pub(super) bytes: Bytes,
    pub(super) frames: Frames,
    /// What names those after them; without that they were the last.
    pub(super) next: Option<Bytes>,
    /// Of the latest values the offset of each.
    pub(super) records: Vec<u64>,
}

impl Came {
    /// The offset of an item's record, and what names the place in front of it.
    pub(super) fn record(&self, item: usize) -> Option<(u64, Bytes)> {
        match *self.frames.starts.get(item)? {
            Meta::Number(before) => Some((before.checked_add(1)?, Bytes::from(before.to_string()))),
            Meta::Bytes(key) => {
                let key = Bytes::copy_from_slice(key.of(&self.bytes));
                Some((*self.records.get(item)?, key))
            }
            Meta::Nothing | Meta::Text(_) | Meta::Kind(_) => None,
        }
    }
}

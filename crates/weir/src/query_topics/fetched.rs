//! The settings that the topics of a query share, and the items that one topic returns.

use bytes::Bytes;
use weir_core::{IntentionOffset, RecordKind};
use weir_query::{Frames, Meta, Properties, QueryError};

use super::options::TopicView;
use crate::remote::pushdown::PushdownRequest;

/// The settings that all topics of a query share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) properties: Properties,
    /// Bit `n` for kind number `n`.
    pub(super) kinds: u8,
    /// The last intention of the query.
    pub(super) cut: Option<IntentionOffset>,
    pub(super) view: TopicView,
    pub(super) reset_earliest: bool,
    /// The request to a server.
    pub(super) pushdown: PushdownRequest,
}

impl Shared {
    pub(super) fn wants(&self, kind: RecordKind) -> bool {
        self.kinds & 1 << kind as u8 != 0
    }
}

/// The result of one read of a topic.
pub(super) enum Fetched {
    /// Items, perhaps none.
    Page(Items),
    /// There are no more items.
    End,
    /// There are no items now.
    Nothing,
    /// The error of the next record.
    Fault(QueryError),
}

/// Items of a topic.
pub(super) struct Items {
    pub(super) bytes: Bytes,
    pub(super) frames: Frames,
    /// The name of the position after these items; `None` if they were the last ones.
    pub(super) next: Option<Bytes>,
    /// For latest values: the offset of each value.
    pub(super) records: Vec<u64>,
}

impl Items {
    /// The offset of an item's record, and the name of the position before it.
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

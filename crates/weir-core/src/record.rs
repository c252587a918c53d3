//! Records: the consequences that listeners see.

use crate::effect::Effect;
use crate::ids::{ClientId, ConsequenceOffset, IntentionOffset, TopicId, TopicName};

/// Bytes of the header that precedes the records of a page on the wire
/// (docs/formats/native.md).
pub const PAGE_HEAD_BYTES: usize = 48;

/// What a record says happened to its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum RecordKind {
    /// The topic came into being. Value: program hash (32 bytes or none) and
    /// arguments, empty for a plain topic.
    Create = 1,
    /// The topic is gone, with its keys.
    Destroy = 2,
    /// A key, or no key, has a value.
    Put = 3,
    /// A key has no value any more.
    Delete = 4,
    /// The options changed. Value: the encoded options.
    Alter = 5,
    /// The program changed. Value: as for `Create`.
    Replace = 6,
}

impl RecordKind {
    /// The kind with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Create,
            2 => Self::Destroy,
            3 => Self::Put,
            4 => Self::Delete,
            5 => Self::Alter,
            6 => Self::Replace,
            _ => return None,
        })
    }

    /// Upper-case name, as printed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Destroy => "DESTROY",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Alter => "ALTER",
            Self::Replace => "REPLACE",
        }
    }
}

/// Marks of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordFlags(pub u8);

impl RecordFlags {
    /// Final record of its intention.
    pub const LAST: u8 = 1;
    /// Part of a transaction.
    pub const TXN: u8 = 2;

    /// Whether this is the final record of its intention.
    #[must_use]
    pub const fn last(self) -> bool {
        self.0 & Self::LAST != 0
    }

    /// Whether this record is part of a transaction.
    #[must_use]
    pub const fn txn(self) -> bool {
        self.0 & Self::TXN != 0
    }
}

/// One consequence. Its slices borrow from the page or buffer that holds the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Position in the topic.
    pub offset: ConsequenceOffset,
    /// Position of the intention that caused it.
    pub intention: IntentionOffset,
    /// Term of the log entry.
    pub term: u64,
    /// Milliseconds since 1970-01-01 UTC, stamped when the batch was proposed;
    /// never goes back.
    pub time_ms: u64,
    /// Who asked.
    pub client: ClientId,
    /// The client's number of the intention; 0 without session.
    pub nonce: u64,
    /// Marks.
    pub flags: RecordFlags,
    /// What happened.
    pub kind: RecordKind,
    /// Key; empty when the record has none.
    pub key: &'a [u8],
    /// Value; empty for kinds without one.
    pub value: &'a [u8],
    /// Metadata the store does not read.
    pub meta: &'a [u8],
}

/// Takes what [`Machine::apply`](crate::Machine::apply) decides, in order.
pub trait ConsequenceSink {
    /// A topic name was seen for the first time and has this number. Called
    /// before its first record.
    fn topic(&mut self, id: TopicId, name: &TopicName);
    /// A record of that topic. Offsets of one topic are dense and ascending
    /// (I1).
    fn record(&mut self, id: TopicId, record: &Record<'_>);
    /// An intention took its offset with this effect. Called once for each
    /// executed intention, after its records; the default does nothing.
    fn executed(&mut self, intention: IntentionOffset, effect: Effect) {
        let _ = (intention, effect);
    }
    /// State that nothing refers to any more: the keys and the program state of
    /// a destroyed topic or of a replaced program. Dropping it may take long; an
    /// implementation may do so on another thread. The default drops it here.
    fn discard(&mut self, state: Box<dyn Send + Sync>) {
        drop(state);
    }
}

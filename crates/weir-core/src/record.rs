//! Records: the consequences of intentions, which readers of a topic see.

use crate::effect::Effect;
use crate::ids::{ClientId, ConsequenceOffset, IntentionOffset, TopicId, TopicName};

/// Bytes of the header that precedes the records of a page on the wire
/// (docs/formats/native.md).
pub const PAGE_HEAD_BYTES: usize = 48;

/// The kind of a change of the topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum RecordKind {
    /// The topic was created. The value is the program hash (32 bytes or none) and the arguments;
    /// it is empty for a plain topic.
    Create = 1,
    /// The topic was destroyed, with its keys.
    Destroy = 2,
    /// A value was written, for a key or without one.
    Put = 3,
    /// The value of a key was removed.
    Delete = 4,
    /// The options changed. The value is the encoded options.
    Alter = 5,
    /// The program changed. The value is as for `Create`.
    Replace = 6,
}

impl RecordKind {
    /// The kind with this number; `None` if there is none.
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

/// Flags of a record.
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
    /// Offset of the intention that caused the record.
    pub intention: IntentionOffset,
    /// Term of the log entry.
    pub term: u64,
    /// Milliseconds since 1970-01-01 UTC, stamped when the batch was proposed. Never decreases.
    pub time_ms: u64,
    /// The client of the intention; [`ClientId::NONE`] without session.
    pub client: ClientId,
    /// Nonce of the intention; 0 without session.
    pub nonce: u64,
    /// Flags.
    pub flags: RecordFlags,
    /// The kind of the change.
    pub kind: RecordKind,
    /// Key; empty when the record has none.
    pub key: &'a [u8],
    /// Value; empty for kinds without one.
    pub value: &'a [u8],
    /// Metadata, not read by the store.
    pub meta: &'a [u8],
}

/// Receives the results of [`Machine::apply`](crate::Machine::apply), in order.
pub trait ConsequenceSink {
    /// A new topic name was assigned this id. Called before the first record of the topic.
    fn topic(&mut self, id: TopicId, name: &TopicName);
    /// A record of the topic. Offsets of one topic are dense and ascending (I1).
    fn record(&mut self, id: TopicId, record: &Record<'_>);
    /// Reads of the topic no longer return records up to `through`. `through` ascends. The default
    /// does nothing.
    fn trimmed(&mut self, id: TopicId, through: ConsequenceOffset) {
        let _ = (id, through);
    }
    /// An intention was assigned its offset and has this effect. Called once for each executed
    /// intention, after its records. The default does nothing.
    fn executed(&mut self, intention: IntentionOffset, effect: Effect) {
        let _ = (intention, effect);
    }
    /// State that is no longer referenced: the keys and the program state of a destroyed topic or
    /// of a replaced program. To drop it may take long, so an implementation may do it on another
    /// thread. The default drops it at once.
    fn discard(&mut self, state: Box<dyn Send + Sync>) {
        drop(state);
    }
}

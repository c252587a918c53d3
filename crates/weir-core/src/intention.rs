//! Intentions: requests of clients, before they have a position in the log.

use crate::error_code::ErrorCode;
use crate::group::GroupStep;
use crate::ids::{ClientId, NameError};
use crate::limits;
use crate::options::TopicOptions;
use crate::program::CodeHash;
use thiserror::Error;

/// A condition on the state of the topic when the intention is applied. All conditions of an
/// intention must hold. Otherwise the verdict is INVALID/CONFLICT and nothing changes. A `key` of
/// `None` is the intention's own key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expect<'a> {
    /// The key's current value was written at this offset.
    KeyOffset(Option<&'a [u8]>, u64),
    /// The key has no value.
    KeyAbsent(Option<&'a [u8]>),
    /// The key has a value.
    KeyPresent(Option<&'a [u8]>),
    /// The topic's last record has this offset.
    TopicOffset(u64),
    /// The topic does not exist, or its last record has this offset.
    TopicAbsentOr(u64),
    /// The topic exists, and has no record after the one that created it.
    TopicEmpty,
    /// The topic exists, and the CREATE at this intention offset created it.
    Incarnation(u64),
    /// The topic exists, and its options have this [`fingerprint`](TopicOptions::fingerprint).
    Options(u64),
}

/// One step of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnOp<'a> {
    /// Sets a key.
    Put {
        /// Key; empty for a record without key.
        key: &'a [u8],
        /// Value.
        value: &'a [u8],
        /// Metadata, not read by the store.
        meta: &'a [u8],
    },
    /// Removes a key.
    Delete {
        /// Key, not empty.
        key: &'a [u8],
        /// Metadata, not read by the store.
        meta: &'a [u8],
    },
}

/// The requested operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// Creates the topic.
    Create {
        /// Its options.
        options: &'a TopicOptions,
    },
    /// Creates the topic with a program that judges each write to it.
    CreateProgram {
        /// Its options.
        options: &'a TopicOptions,
        /// The module's bytes.
        code: &'a [u8],
        /// Arguments of the program.
        args: &'a [u8],
    },
    /// Replaces the program of the topic.
    Replace {
        /// Required SHA-256 of the current code; `None`: any code.
        expected: Option<CodeHash>,
        /// The new module's bytes.
        code: &'a [u8],
        /// Its arguments.
        args: &'a [u8],
    },
    /// Destroys the topic.
    Destroy,
    /// Appends a record. If the key is not empty, sets the key.
    Put {
        /// Key; empty for a record without key.
        key: &'a [u8],
        /// Value.
        value: &'a [u8],
    },
    /// Removes a key.
    Delete {
        /// Key, not empty.
        key: &'a [u8],
    },
    /// Replaces the topic's options.
    Alter {
        /// The new options.
        options: &'a TopicOptions,
    },
    /// Executes all steps in order, or none of them.
    Txn {
        /// At least one step.
        ops: &'a [TxnOp<'a>],
    },
    /// Changes a group of the topic.
    Cursor {
        /// Name of the group.
        group: &'a str,
        /// The change of the group.
        step: GroupStep<'a>,
    },
    /// Drops every session that was last used more than this many milliseconds of log time ago. The
    /// topic name is empty.
    ExpireSessions {
        /// Idle time in milliseconds.
        idle_ms: u64,
    },
    /// Stops a topic, or resumes it. An operator stops a topic whose state differs between nodes. A
    /// stopped topic responds with ERROR/QUARANTINED to PUT, DELETE and transactions.
    Quarantine {
        /// `true` stops the topic, `false` resumes it.
        stopped: bool,
    },
    /// Removes the records of the topic up to an offset from reads. Keys and offsets do not change.
    /// Never removes a record that a group in the option `hold_for_groups` has not passed.
    Trim {
        /// Offset of the newest record to remove.
        through: u64,
    },
}

/// The nonce of an intention whose client id is used only once.
///
/// The intention is executed once. Its outcome is retained for at least
/// [`ONCE_MS_MIN`](crate::limits::ONCE_MS_MIN) and at most
/// [`ONCE_MS_MAX`](crate::limits::ONCE_MS_MAX). The id may be the hash of an idempotency key. It
/// occupies no session, and no session can have it. The nonces of sessions never reach this number.
pub const ONCE: u64 = 1 << 63;

/// An intention as a client passes it. Nothing is copied until it is pushed into a batch.
#[derive(Clone, Copy, Debug)]
pub struct Intention<'a> {
    /// The client; [`ClientId::NONE`] for no session.
    pub client: ClientId,
    /// Nonce of the intention: the client's first is 1; 0 without session; [`ONCE`] for an id that
    /// is used only once.
    pub nonce: u64,
    /// Topic name; empty for operations without topic.
    pub topic: &'a str,
    /// The requested operation.
    pub operation: Operation<'a>,
    /// Conditions.
    pub expect: &'a [Expect<'a>],
    /// Metadata for the record, at most 4 KiB, not read by the store. Must be empty for a
    /// transaction, whose steps have their own metadata.
    pub meta: &'a [u8],
    /// Name of the authenticated principal; empty when there is none.
    pub principal: &'a [u8],
    /// Identity of the request beyond its content, for an edge that must detect two requests with
    /// one idempotency key. `None`: the hash of the content is used.
    pub fingerprint: Option<u64>,
}

impl<'a> Intention<'a> {
    /// An intention without session, conditions and metadata.
    #[must_use]
    pub const fn new(topic: &'a str, operation: Operation<'a>) -> Self {
        Self {
            client: ClientId::NONE,
            nonce: 0,
            topic,
            operation,
            expect: &[],
            meta: &[],
            principal: &[],
            fingerprint: None,
        }
    }

    /// Sets the client and the nonce.
    #[must_use]
    pub const fn under(mut self, client: ClientId, nonce: u64) -> Self {
        self.client = client;
        self.nonce = nonce;
        self
    }

    /// Estimate of its encoded size in bytes.
    #[must_use]
    pub fn size_hint(&self) -> usize {
        let step = |step: &TxnOp<'_>| match step {
            TxnOp::Put { key, value, meta } => key.len() + value.len() + meta.len() + 8,
            TxnOp::Delete { key, meta } => key.len() + meta.len() + 8,
        };
        let body = match &self.operation {
            Operation::Put { key, value } => key.len() + value.len(),
            Operation::Delete { key } => key.len(),
            Operation::Txn { ops } => ops.iter().map(step).sum(),
            Operation::CreateProgram { code, args, .. } | Operation::Replace { code, args, .. } => {
                code.len() + args.len() + 128
            }
            Operation::Cursor { step, .. } => match step {
                GroupStep::Claim { offsets, .. } => offsets.len() * 18 + 128,
                GroupStep::Ack { offsets, .. }
                | GroupStep::Nack { offsets, .. }
                | GroupStep::Extend { offsets, .. } => offsets.len() * 10 + 320,
                _ => 512,
            },
            _ => 64,
        };
        body + self.meta.len() + 8
    }

    /// Sets the conditions of the intention.
    #[must_use]
    pub const fn expecting(mut self, expect: &'a [Expect<'a>]) -> Self {
        self.expect = expect;
        self
    }
}

/// Why an intention is rejected before it has a position in the log. Nothing was written, and its
/// nonce is not consumed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IntentionError {
    /// The topic name is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A part of the intention has too many bytes.
    #[error("{what} of {actual} bytes is over the limit of {max}")]
    TooLarge {
        /// The part: "key", "value", "metadata", ...
        what: &'static str,
        /// Its size in bytes.
        actual: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The intention has too many parts of one kind.
    #[error("{actual} {what} are over the limit of {max}")]
    TooMany {
        /// The kind of the parts.
        what: &'static str,
        /// Their number.
        actual: usize,
        /// The limit.
        max: usize,
    },
    /// A DELETE, a key condition or a transaction step needs a key.
    #[error("{0} needs a key")]
    KeyMissing(&'static str),
    /// A field that this operation does not support and would ignore.
    #[error("{operation} accepts no {what}")]
    Unsupported {
        /// The operation.
        operation: &'static str,
        /// The field: "topic", "condition" or "metadata".
        what: &'static str,
    },
    /// A program without code.
    #[error("a program needs code")]
    CodeMissing,
    /// A step of a group with a field that is never valid.
    #[error("a step of a group has a wrong {0}")]
    Group(&'static str),
    /// A transaction without steps.
    #[error("a transaction needs at least one operation")]
    TxnEmpty,
    /// An option has a value outside of its range.
    #[error("topic option {0} is out of its range")]
    Option(&'static str),
    /// The nonces of a session start at 1; without session the nonce must be 0.
    #[error(
        "nonce {0} does not match the client id: the first nonce of a session is 1, without a \
         session the nonce is 0"
    )]
    Nonce(u64),
}

impl IntentionError {
    /// Its error code, which is the same in every language.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Name(_) => ErrorCode::BadName,
            Self::TooLarge { .. } | Self::TooMany { .. } => ErrorCode::TooLarge,
            Self::Option(_) => ErrorCode::BadOption,
            _ => ErrorCode::BadRequest,
        }
    }
}

/// Limits that a store may set below the model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntentionLimits {
    /// Maximum bytes of a key.
    pub key_bytes_max: usize,
    /// Maximum bytes of a value.
    pub value_bytes_max: usize,
}

impl Default for IntentionLimits {
    fn default() -> Self {
        Self {
            key_bytes_max: limits::KEY_BYTES_DEFAULT,
            value_bytes_max: limits::VALUE_BYTES_DEFAULT,
        }
    }
}

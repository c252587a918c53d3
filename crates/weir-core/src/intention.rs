//! Intentions: what a client asks for, before it has a place in the log.

use crate::error_code::ErrorCode;
use crate::group::GroupStep;
use crate::ids::{ClientId, NameError};
use crate::limits;
use crate::options::TopicOptions;
use crate::program::CodeHash;
use thiserror::Error;

/// A condition on the state in which an intention meets its topic. All
/// conditions of an intention must hold, else it is INVALID/CONFLICT and
/// changes nothing. A `key` of `None` is the intention's own key.
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
    /// The topic does not live, or its last record has this offset.
    TopicAbsentOr(u64),
    /// The topic lives, and has no record after the one that created it.
    TopicEmpty,
    /// The topic lives since this intention offset.
    Incarnation(u64),
}

/// One step of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnOp<'a> {
    /// Sets a key.
    Put {
        /// Key; may be empty for "no key".
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

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// Makes the topic live.
    Create {
        /// Its options.
        options: &'a TopicOptions,
    },
    /// Makes the topic live, with a program that judges each write to it.
    CreateProgram {
        /// Its options.
        options: &'a TopicOptions,
        /// The module's bytes.
        code: &'a [u8],
        /// What the program is told about its task.
        args: &'a [u8],
    },
    /// Puts another program in the place of the one that the topic has.
    Replace {
        /// SHA-256 of the code that must be there; `None`: any.
        expected: Option<CodeHash>,
        /// The new module's bytes.
        code: &'a [u8],
        /// Its arguments.
        args: &'a [u8],
    },
    /// Ends the topic.
    Destroy,
    /// Appends a record; with a key, sets the key.
    Put {
        /// Key; empty for "no key".
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
    /// All or none of these, in order.
    Txn {
        /// At least one step.
        ops: &'a [TxnOp<'a>],
    },
    /// Changes a group of the topic.
    Cursor {
        /// Name of the group.
        group: &'a str,
        /// What is done to it.
        step: GroupStep<'a>,
    },
    /// Drops every session that was last used more than this many
    /// milliseconds of log time ago. Names no topic.
    ExpireSessions {
        /// Idle time in milliseconds.
        idle_ms: u64,
    },
    /// Stops a topic, or resumes it. An operator stops a topic on which nodes
    /// disagree. A stopped topic responds with
    /// ERROR/QUARANTINED to PUT, DELETE and transactions.
    Quarantine {
        /// Whether it is stopped from now on.
        stopped: bool,
    },
}

/// The nonce of an intention whose client id is good for it alone: it is
/// executed once, and its outcome is kept for
/// [`ONCE_MS_MAX`](crate::limits::ONCE_MS_MAX), for
/// [`ONCE_MS_MIN`](crate::limits::ONCE_MS_MIN) at least. The id may be the hash
/// of an idempotency key; it takes no session and cannot have one. Sessions
/// never count so far.
pub const ONCE: u64 = 1 << 63;

/// An intention as a client hands it over. Nothing is copied until it is
/// pushed into a batch.
#[derive(Clone, Copy, Debug)]
pub struct Intention<'a> {
    /// Who asks; [`ClientId::NONE`] for no session.
    pub client: ClientId,
    /// The client's number, 1 for its first; 0 without session; [`ONCE`] for
    /// an id that is good for one intention.
    pub nonce: u64,
    /// Topic name; empty for operations that name none.
    pub topic: &'a str,
    /// What is asked for.
    pub operation: Operation<'a>,
    /// Conditions.
    pub expect: &'a [Expect<'a>],
    /// Metadata for the record, at most 4 KiB, not read by the store. The
    /// steps of a transaction have their own instead.
    pub meta: &'a [u8],
    /// Name of the authenticated principal; empty when there is none.
    pub principal: &'a [u8],
    /// Identity of the request beyond its content, for edges that must notice
    /// one idempotency key on two requests; none: the content's own hash.
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

    /// Puts the intention under a nonce of a session.
    #[must_use]
    pub const fn under(mut self, client: ClientId, nonce: u64) -> Self {
        self.client = client;
        self.nonce = nonce;
        self
    }

    /// About how many bytes it takes in a batch.
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

/// Why an intention is refused before it gets a place in the log: nothing was
/// written and its nonce is not used up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IntentionError {
    /// The topic name is no name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Something is too large.
    #[error("{what} of {actual} bytes is over the limit of {max}")]
    TooLarge {
        /// What it is: "key", "value", "metadata", ...
        what: &'static str,
        /// Its bytes.
        actual: usize,
        /// The limit.
        max: usize,
    },
    /// Too many of something.
    #[error("{actual} {what} are over the limit of {max}")]
    TooMany {
        /// What they are.
        what: &'static str,
        /// How many.
        actual: usize,
        /// The limit.
        max: usize,
    },
    /// A DELETE, a key condition or a transaction step needs a key.
    #[error("{0} needs a key")]
    KeyMissing(&'static str),
    /// Something that this operation has no place for and would lose.
    #[error("{operation} takes no {what}")]
    NotTaken {
        /// The operation.
        operation: &'static str,
        /// What was given: "topic", "condition" or "metadata".
        what: &'static str,
    },
    /// A program without code.
    #[error("a program needs code")]
    CodeMissing,
    /// Something about a group that can never be.
    #[error("a step of a group has a wrong {0}")]
    Group(&'static str),
    /// A transaction without steps.
    #[error("a transaction needs at least one operation")]
    TxnEmpty,
    /// An option has a value that can never hold.
    #[error("topic option {0} is out of its range")]
    Option(&'static str),
    /// A session's nonces start at 1; without session there is none.
    #[error("nonce {0} does not fit the client id: sessions count from 1, no session has 0")]
    Nonce(u64),
}

impl IntentionError {
    /// Its number, which is the same in every language.
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
    /// Bytes of a key.
    pub key_bytes_max: usize,
    /// Bytes of a value.
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

//! The items of a write, decoded until the server proposes them.

use thiserror::Error;

use weir_core::ClientId;
use weir_core::batch::{Action, BATCH_HEAD_BYTES, Batch, BatchError};
use weir_core::group::GroupStep;
use weir_core::intention::{Expect, Intention, Operation, TxnOp};
use weir_core::options::TopicOptions;
use weir_core::program::CodeHash;

use crate::OPERATIONS_MAX;

/// The reason for refusing a write. No item of a refused write is executed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ItemsError {
    /// The bytes are not valid items, or their number differs from the announced one.
    #[error("item {} cannot be read at byte {}: expected {}", .0.item, .0.at, .0.what)]
    Unreadable(BatchError),
    /// A valid item that a client must not send on this connection.
    #[error("item {index}: {what}")]
    NotAllowed {
        /// Index of the item, from 0.
        index: u32,
        /// What is wrong.
        what: &'static str,
    },
}

impl ItemsError {
    /// Returns the index of the wrong item, from 0.
    #[must_use]
    pub const fn item(&self) -> u32 {
        match self {
            Self::Unreadable(error) => error.item,
            Self::NotAllowed { index, .. } => *index,
        }
    }
}

/// A decoded item, with the memory that its [`Intention`] borrows.
#[derive(Clone, Debug)]
pub struct DecodedItem<'a> {
    client: ClientId,
    nonce: u64,
    topic: &'a str,
    fingerprint: Option<u64>,
    meta: &'a [u8],
    expects: Vec<Expect<'a>>,
    operation: DecodedOperation<'a>,
}

#[derive(Clone, Debug)]
enum DecodedOperation<'a> {
    Plain(Operation<'a>),
    Options(Box<TopicOptions>, Shape<'a>),
    Txn(Vec<TxnOp<'a>>),
}

#[derive(Clone, Copy, Debug)]
enum Shape<'a> {
    Create,
    CreateProgram(&'a [u8], &'a [u8]),
    Alter,
}

impl<'a> DecodedItem<'a> {
    /// Returns the item as an intention of `principal`.
    #[must_use]
    pub fn intention<'h>(&'h self, principal: &'h [u8]) -> Intention<'h> {
        let operation = match &self.operation {
            DecodedOperation::Plain(operation) => *operation,
            DecodedOperation::Options(options, Shape::Create) => Operation::Create { options },
            DecodedOperation::Options(options, Shape::Alter) => Operation::Alter { options },
            DecodedOperation::Options(options, Shape::CreateProgram(code, args)) => {
                Operation::CreateProgram {
                    options,
                    code,
                    args,
                }
            }
            DecodedOperation::Txn(ops) => Operation::Txn { ops },
        };
        Intention {
            client: self.client,
            nonce: self.nonce,
            topic: self.topic,
            operation,
            expect: &self.expects,
            meta: self.meta,
            principal,
            fingerprint: self.fingerprint,
        }
    }

    /// Topic name.
    #[must_use]
    pub const fn topic(&self) -> &'a str {
        self.topic
    }

    /// Nonce; 0 without a session.
    #[must_use]
    pub const fn nonce(&self) -> u64 {
        self.nonce
    }
}

/// Decodes the items of a write of `client` (`NONE`: no session).
///
/// # Errors
/// Fails if an item is malformed or has a principal, if clients must not send its operation, if the
/// write has more than [`OPERATIONS_MAX`] operations in transactions,
/// or if the nonces of a session do not rise by one.
pub fn read_items(
    client: ClientId,
    count: u32,
    items: &[u8],
) -> Result<Vec<DecodedItem<'_>>, ItemsError> {
    let batch = Batch {
        count,
        time_ms: 0,
        term: 0,
        items,
    };
    // An item has at least two bytes, so the announced count alone allocates no memory.
    let mut decoded: Vec<DecodedItem<'_>> =
        Vec::with_capacity((count as usize).min(items.len() / 2));
    let mut operations = 0_usize;
    for (index, item) in (0_u32..).zip(batch.items()) {
        let item = item.map_err(|error| {
            ItemsError::Unreadable(BatchError {
                at: error.at.saturating_sub(BATCH_HEAD_BYTES),
                ..error
            })
        })?;
        let not_allowed = |what| Err(ItemsError::NotAllowed { index, what });
        if item.client != client {
            return not_allowed("its client is not that of the connection");
        }
        let expected = decoded.last().map(|before| before.nonce.wrapping_add(1));
        if !client.is_none() && expected.is_some_and(|next| next != item.nonce) {
            return not_allowed("its nonce does not follow that of the item before it");
        }
        if !item.principal.is_empty() {
            return not_allowed("it has a principal, which only the server sets");
        }
        if let Action::Txn(steps) = &item.action {
            operations += steps.len() as usize;
            if operations > OPERATIONS_MAX {
                return not_allowed("the write has too many operations in transactions");
            }
        }
        let Ok(topic) = std::str::from_utf8(item.topic) else {
            return not_allowed("its topic name is not text");
        };
        let Some(operation) = decode_operation(&item.action) else {
            return not_allowed("clients must not send its operation");
        };
        decoded.push(DecodedItem {
            client,
            nonce: item.nonce,
            topic,
            fingerprint: item.fingerprint,
            meta: item.meta,
            expects: item.expects.iter().collect(),
            operation,
        });
    }
    Ok(decoded)
}

fn decode_operation<'a>(action: &Action<'a>) -> Option<DecodedOperation<'a>> {
    let options = |bytes: &[u8]| TopicOptions::decode(bytes).map(Box::new);
    Some(match action {
        Action::Put { key, value } => DecodedOperation::Plain(Operation::Put { key, value }),
        Action::Delete { key } => DecodedOperation::Plain(Operation::Delete { key }),
        Action::Destroy => DecodedOperation::Plain(Operation::Destroy),
        Action::Quarantine { stopped } => {
            let stopped = *stopped;
            DecodedOperation::Plain(Operation::Quarantine { stopped })
        }
        Action::Create {
            options: bytes,
            code: [],
            args: [],
            ..
        } => DecodedOperation::Options(options(bytes)?, Shape::Create),
        Action::Create {
            options: bytes,
            code,
            args,
            ..
        } => DecodedOperation::Options(options(bytes)?, Shape::CreateProgram(code, args)),
        Action::Alter { options: bytes } => {
            DecodedOperation::Options(options(bytes)?, Shape::Alter)
        }
        Action::Replace {
            expected,
            code,
            args,
            ..
        } => DecodedOperation::Plain(replace(*expected, code, args)),
        Action::Txn(steps) => {
            let mut ops = Vec::with_capacity(steps.len() as usize);
            ops.extend(steps.iter());
            DecodedOperation::Txn(ops)
        }
        // The server creates the offsets of claims, and the store creates DEAD_LETTERS_WRITTEN:
        // clients must not send either. A node decides a TRIM by the retention of the topic.
        Action::Cursor {
            step: GroupStep::Claim { .. } | GroupStep::DeadLettersWritten { .. },
            ..
        }
        | Action::Trim { .. }
        | Action::ExpireSessions { .. } => return None,
        Action::Cursor { group, step } => {
            DecodedOperation::Plain(Operation::Cursor { group, step: *step })
        }
    })
}

const fn replace<'a>(expected: Option<CodeHash>, code: &'a [u8], args: &'a [u8]) -> Operation<'a> {
    Operation::Replace {
        expected,
        code,
        args,
    }
}

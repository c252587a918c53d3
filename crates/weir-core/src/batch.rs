//! Batches: the unit of the log, of apply and of group commit.
//!
//! A batch consists of a 16-byte head and its items without gaps; docs/formats/batch.md specifies
//! every byte. The builder checks every limit before it appends. The reader checks every byte and
//! reports the position of the first invalid one.

use thiserror::Error;

use crate::codec::{Reader, Short, put_bytes, put_short_bytes, put_varint};
use crate::exact::part;
use crate::group::{self, GroupStep};
use crate::ids::{ClientId, TopicName};
use crate::intention::{Expect, Intention, IntentionError, IntentionLimits, Operation, TxnOp};
use crate::limits::{
    ARGUMENT_BYTES_MAX, BATCH_BYTES_HARD_MAX, BATCH_ITEMS_MAX, CODE_BYTES_MAX, EXPECTS_MAX,
    ITEM_BYTES_MAX, KEY_BYTES_MAX, META_BYTES_MAX, METER, PRINCIPAL_BYTES_MAX, TXN_OPS_MAX,
    VALUE_BYTES_MAX,
};
use crate::options::TopicOptions;
use crate::program::CodeHash;

/// First byte of a batch.
pub const BATCH_VERSION: u8 = 1;
/// Bytes before the first item.
pub const BATCH_HEAD_BYTES: usize = 16;

/// Why bytes up to the position of a reader exist.
const READ: &str = "the reader has read these bytes";

mod op {
    pub(super) const CREATE: u8 = 1;
    pub(super) const DESTROY: u8 = 2;
    pub(super) const PUT: u8 = 3;
    pub(super) const DELETE: u8 = 4;
    pub(super) const ALTER: u8 = 5;
    pub(super) const REPLACE: u8 = 6;
    pub(super) const CURSOR: u8 = 8;
    pub(super) const TXN: u8 = 9;
    pub(super) const HOUSEKEEPING: u8 = 10;
    pub(super) const QUARANTINE: u8 = 11;
    pub(super) const TRIM: u8 = 12;
}

mod flag {
    pub(super) const CLIENT: u8 = 0x01;
    pub(super) const NONCE: u8 = 0x02;
    pub(super) const TOPIC: u8 = 0x04;
    pub(super) const FINGERPRINT: u8 = 0x08;
    pub(super) const EXPECT: u8 = 0x10;
    pub(super) const META: u8 = 0x20;
    pub(super) const PRINCIPAL: u8 = 0x40;
    pub(super) const ALL: u8 = 0x7f;
    /// The flags that are hashed with the content of an item.
    pub(super) const CONTENT: u8 = EXPECT | META;
}

/// A batch that cannot be read: it is damaged, or a newer version wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("batch cannot be read at byte {at}, item {item}: {what}")]
pub struct BatchError {
    /// Position in the batch, in bytes: the fault is there or after it.
    pub at: usize,
    /// Index of the item that was being read, from 0.
    pub item: u32,
    /// What was expected there.
    pub what: &'static str,
}

/// Author of the intentions, which decides the topic names that are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// A client: topic names with a leading dot are rejected.
    Client,
    /// The process that opened the store: topics of the store are allowed too.
    Store,
}

/// Collects intentions into the items of a batch.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    items: Vec<u8>,
    count: u32,
    client: ClientId,
    nonce: u64,
    topic: Vec<u8>,
    /// Whether the next item may omit fields that equal those of the item before it.
    can_omit: bool,
}

impl BatchBuilder {
    /// Number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the items.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.items.len()
    }

    /// The items, encoded.
    #[must_use]
    pub fn items(&self) -> &[u8] {
        &self.items
    }

    /// The head that precedes the items in the log. `time_ms`: milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn head(&self, time_ms: u64) -> [u8; BATCH_HEAD_BYTES] {
        let mut head = [0; BATCH_HEAD_BYTES];
        head[0] = BATCH_VERSION;
        head[4..8].copy_from_slice(&self.count.to_le_bytes());
        head[8..].copy_from_slice(&time_ms.to_le_bytes());
        head
    }

    /// Head and items in one vector.
    #[must_use]
    pub fn to_bytes(&self, time_ms: u64) -> Vec<u8> {
        let mut bytes = self.head(time_ms).to_vec();
        bytes.extend_from_slice(&self.items);
        bytes
    }

    /// Removes all items; retains at most `keep_bytes` of memory.
    pub fn clear(&mut self, keep_bytes: usize) {
        self.items.clear();
        self.items.shrink_to(keep_bytes);
        self.count = 0;
        self.can_omit = false;
    }

    /// Adds the items of another batch. The caller ensures that the sums of the items and of their
    /// bytes are within the limits of a batch.
    pub fn append(&mut self, other: &Self) {
        // The first item of a batch omits no field.
        self.items.extend_from_slice(&other.items);
        self.count += other.count;
        self.client = other.client;
        self.nonce = other.nonce;
        self.topic.clone_from(&other.topic);
        self.can_omit = other.can_omit;
    }

    /// Adds all intentions of one call, or none of them. The error contains the index of the
    /// rejected intention, from 0.
    pub fn push_all(
        &mut self,
        intentions: &[Intention<'_>],
        limits: &IntentionLimits,
    ) -> Result<(), (usize, IntentionError)> {
        self.push_all_from(Author::Client, intentions, limits)
    }

    /// As [`push_all`](Self::push_all), for the given author. Only the store itself may write to
    /// topics with a leading dot.
    pub fn push_all_from(
        &mut self,
        author: Author,
        intentions: &[Intention<'_>],
        limits: &IntentionLimits,
    ) -> Result<(), (usize, IntentionError)> {
        let (bytes, count) = (self.items.len(), self.count);
        for (index, intention) in intentions.iter().enumerate() {
            if let Err(error) = self.push_from(author, intention, limits) {
                self.items.truncate(bytes);
                self.count = count;
                // The next item must not refer to a removed item.
                self.can_omit = false;
                return Err((index, error));
            }
        }
        Ok(())
    }

    /// Adds an intention. If it is rejected, the batch does not change.
    pub fn push(
        &mut self,
        intention: &Intention<'_>,
        limits: &IntentionLimits,
    ) -> Result<(), IntentionError> {
        self.push_from(Author::Client, intention, limits)
    }

    fn push_from(
        &mut self,
        author: Author,
        intention: &Intention<'_>,
        limits: &IntentionLimits,
    ) -> Result<(), IntentionError> {
        check(author, intention, limits)?;
        let too_many = IntentionError::TooMany {
            what: "intentions in a batch",
            actual: self.len() + 1,
            max: BATCH_ITEMS_MAX,
        };
        if self.len() >= BATCH_ITEMS_MAX {
            return Err(too_many);
        }
        let start = self.items.len();
        self.encode(intention);
        let item_bytes = self.items.len() - start;
        let fits = at_most("intention", item_bytes, ITEM_BYTES_MAX)
            .and_then(|()| at_most("batch", self.items.len(), BATCH_BYTES_HARD_MAX));
        if let Err(error) = fits {
            self.items.truncate(start);
            return Err(error);
        }
        self.count += 1;
        self.can_omit = true;
        self.client = intention.client;
        self.nonce = intention.nonce;
        if self.topic != intention.topic.as_bytes() {
            self.topic.clear();
            self.topic.extend_from_slice(intention.topic.as_bytes());
        }
        Ok(())
    }

    #[inline]
    fn encode(&mut self, intention: &Intention<'_>) {
        let first = !self.can_omit;
        let mut flags = 0;
        let mut set = |condition: bool, bit: u8| {
            flags |= if condition { bit } else { 0 };
            condition
        };
        let client = set(first || self.client != intention.client, flag::CLIENT);
        let expected = if intention.client.is_none() {
            0
        } else {
            self.nonce.wrapping_add(1)
        };
        let nonce = set(client || expected != intention.nonce, flag::NONCE);
        let topic = set(
            first || self.topic != intention.topic.as_bytes(),
            flag::TOPIC,
        );
        set(intention.fingerprint.is_some(), flag::FINGERPRINT);
        set(!intention.expect.is_empty(), flag::EXPECT);
        set(!intention.meta.is_empty(), flag::META);
        set(!intention.principal.is_empty(), flag::PRINCIPAL);
        let out = &mut self.items;
        out.push(op_number(&intention.operation));
        out.push(flags);
        if client {
            out.extend_from_slice(&intention.client.0);
        }
        if nonce {
            put_varint(out, intention.nonce);
        }
        if topic {
            put_short_bytes(out, intention.topic.as_bytes());
        }
        if let Some(fingerprint) = intention.fingerprint {
            out.extend_from_slice(&fingerprint.to_le_bytes());
        }
        if !intention.principal.is_empty() {
            put_short_bytes(out, intention.principal);
        }
        if !intention.expect.is_empty() {
            let own_key = own_key(&intention.operation);
            put_varint(out, intention.expect.len() as u64);
            for expect in intention.expect {
                put_expect(out, expect, own_key);
            }
        }
        if !intention.meta.is_empty() {
            put_bytes(out, intention.meta);
        }
        put_operation(out, &intention.operation);
    }
}

fn op_number(operation: &Operation<'_>) -> u8 {
    match operation {
        Operation::Create { .. } | Operation::CreateProgram { .. } => op::CREATE,
        Operation::Replace { .. } => op::REPLACE,
        Operation::Destroy => op::DESTROY,
        Operation::Put { .. } => op::PUT,
        Operation::Delete { .. } => op::DELETE,
        Operation::Alter { .. } => op::ALTER,
        Operation::Cursor { .. } => op::CURSOR,
        Operation::Txn { .. } => op::TXN,
        Operation::ExpireSessions { .. } => op::HOUSEKEEPING,
        Operation::Quarantine { .. } => op::QUARANTINE,
        Operation::Trim { .. } => op::TRIM,
    }
}

#[inline]
fn put_operation(out: &mut Vec<u8>, operation: &Operation<'_>) {
    match operation {
        Operation::Put { key, value } => {
            put_bytes(out, key);
            put_bytes(out, value);
        }
        Operation::Delete { key } => put_bytes(out, key),
        Operation::Create { options } | Operation::Alter { options } => {
            let mut bytes = Vec::new();
            options.encode(&mut bytes);
            put_bytes(out, &bytes);
            if matches!(operation, Operation::Create { .. }) {
                put_bytes(out, &[]); // program
                put_bytes(out, &[]); // its arguments
            }
        }
        Operation::CreateProgram {
            options,
            code,
            args,
        } => {
            let mut bytes = Vec::new();
            options.encode(&mut bytes);
            put_bytes(out, &bytes);
            put_bytes(out, code);
            put_bytes(out, args);
            put_varint(out, u64::from(METER));
        }
        Operation::Replace {
            expected,
            code,
            args,
        } => {
            put_bytes(out, expected.as_ref().map_or(&[], |hash| &hash.0));
            put_bytes(out, code);
            put_bytes(out, args);
            put_varint(out, u64::from(METER));
        }
        Operation::Destroy => {}
        Operation::Cursor { group, step } => group::put(out, group, step),
        Operation::Txn { ops } => {
            put_varint(out, ops.len() as u64);
            ops.iter().for_each(|step| put_step(out, step));
        }
        Operation::ExpireSessions { idle_ms } => {
            out.push(1);
            put_varint(out, *idle_ms);
        }
        Operation::Quarantine { stopped } => out.push(u8::from(*stopped)),
        Operation::Trim { through } => put_varint(out, *through),
    }
}

fn put_step(out: &mut Vec<u8>, step: &TxnOp<'_>) {
    let (number, key, value, meta) = match step {
        TxnOp::Put { key, value, meta } => (op::PUT, *key, Some(*value), *meta),
        TxnOp::Delete { key, meta } => (op::DELETE, *key, None, *meta),
    };
    out.push(number);
    put_bytes(out, meta);
    put_bytes(out, key);
    if let Some(value) = value {
        put_bytes(out, value);
    }
}

// The intention's own key is always encoded as an empty key.
fn put_expect(out: &mut Vec<u8>, expect: &Expect<'_>, own_key: &[u8]) {
    let (kind, key, number) = match *expect {
        Expect::KeyOffset(key, n) => (1, Some(key), Some(n)),
        Expect::KeyAbsent(key) => (2, Some(key), None),
        Expect::KeyPresent(key) => (3, Some(key), None),
        Expect::TopicOffset(n) => (4, None, Some(n)),
        Expect::TopicAbsentOr(n) => (5, None, Some(n)),
        Expect::TopicEmpty => (6, None, None),
        Expect::Incarnation(n) => (7, None, Some(n)),
        Expect::Options(n) => (8, None, Some(n)),
    };
    out.push(kind);
    if let Some(key) = key {
        put_bytes(out, key.filter(|key| *key != own_key).unwrap_or_default());
    }
    if let Some(number) = number {
        put_varint(out, number);
    }
}

fn own_key<'a>(operation: &Operation<'a>) -> &'a [u8] {
    match operation {
        Operation::Put { key, .. } | Operation::Delete { key } => key,
        _ => &[],
    }
}

fn at_most(what: &'static str, actual: usize, max: usize) -> Result<(), IntentionError> {
    if actual > max {
        Err(IntentionError::TooLarge { what, actual, max })
    } else {
        Ok(())
    }
}

fn must_be_absent(
    operation: &'static str,
    what: &'static str,
    absent: bool,
) -> Result<(), IntentionError> {
    if absent {
        Ok(())
    } else {
        Err(IntentionError::Unsupported { operation, what })
    }
}

fn check(
    author: Author,
    intention: &Intention<'_>,
    limits: &IntentionLimits,
) -> Result<(), IntentionError> {
    let key_max = limits.key_bytes_max.min(KEY_BYTES_MAX);
    let value_max = limits.value_bytes_max.min(VALUE_BYTES_MAX);
    if intention.client.is_none() != (intention.nonce == 0) {
        return Err(IntentionError::Nonce(intention.nonce));
    }
    at_most("metadata", intention.meta.len(), META_BYTES_MAX)?;
    at_most("principal", intention.principal.len(), PRINCIPAL_BYTES_MAX)?;
    if intention.expect.len() > EXPECTS_MAX {
        let actual = intention.expect.len();
        return Err(IntentionError::TooMany {
            what: "conditions",
            actual,
            max: EXPECTS_MAX,
        });
    }
    let own_key = own_key(&intention.operation);
    for expect in intention.expect {
        if let Expect::KeyOffset(key, _) | Expect::KeyAbsent(key) | Expect::KeyPresent(key) = expect
        {
            let key = key.unwrap_or(own_key);
            at_most("key", key.len(), key_max)?;
            if key.is_empty() {
                return Err(IntentionError::KeyMissing("a condition on a key"));
            }
        }
    }
    let step = |key: &[u8], value: &[u8], meta: &[u8], delete: bool| {
        at_most("key", key.len(), key_max)?;
        at_most("value", value.len(), value_max)?;
        at_most("metadata", meta.len(), META_BYTES_MAX)?;
        if delete && key.is_empty() {
            return Err(IntentionError::KeyMissing("DELETE"));
        }
        Ok(())
    };
    match &intention.operation {
        Operation::Put { key, value } => step(key, value, &[], false)?,
        Operation::Delete { key } => step(key, &[], &[], true)?,
        Operation::Create { options } | Operation::Alter { options } => {
            options.check().map_err(IntentionError::Option)?;
        }
        Operation::CreateProgram {
            options,
            code,
            args,
        } => {
            options.check().map_err(IntentionError::Option)?;
            check_program(code, args)?;
        }
        Operation::Replace { code, args, .. } => check_program(code, args)?,
        Operation::Txn { ops } => {
            if ops.is_empty() {
                return Err(IntentionError::TxnEmpty);
            }
            if ops.len() > TXN_OPS_MAX {
                let actual = ops.len();
                return Err(IntentionError::TooMany {
                    what: "steps",
                    actual,
                    max: TXN_OPS_MAX,
                });
            }
            must_be_absent("a transaction", "metadata", intention.meta.is_empty())?;
            // Checked before anything is copied: several steps may refer to one large value.
            let mut bytes = 0;
            for op in *ops {
                let (key, value, meta, delete) = match op {
                    TxnOp::Put { key, value, meta } => (*key, *value, *meta, false),
                    TxnOp::Delete { key, meta } => (*key, &[][..], *meta, true),
                };
                step(key, value, meta, delete)?;
                bytes += key.len() + value.len() + meta.len();
                at_most("intention", bytes, ITEM_BYTES_MAX)?;
            }
        }
        Operation::Destroy | Operation::Quarantine { .. } | Operation::Trim { .. } => {}
        Operation::Cursor { group, step } => {
            let operation = "a step of a group";
            must_be_absent(operation, "condition", intention.expect.is_empty())?;
            must_be_absent(operation, "metadata", intention.meta.is_empty())?;
            group::check(intention.topic, group, step).map_err(IntentionError::Group)?;
        }
        Operation::ExpireSessions { .. } => {
            let operation = "housekeeping";
            must_be_absent(operation, "topic", intention.topic.is_empty())?;
            must_be_absent(operation, "condition", intention.expect.is_empty())?;
            return must_be_absent(operation, "metadata", intention.meta.is_empty());
        }
    }
    match author {
        Author::Client => check_name(intention.topic),
        Author::Store => TopicName::any(intention.topic)
            .map(drop)
            .map_err(IntentionError::Name),
    }
}

fn check_program(code: &[u8], args: &[u8]) -> Result<(), IntentionError> {
    if code.is_empty() {
        return Err(IntentionError::CodeMissing);
    }
    at_most("program", code.len(), CODE_BYTES_MAX)?;
    at_most("arguments", args.len(), ARGUMENT_BYTES_MAX)
}

/// Checks a name by the rules of [`TopicName::new`], without its allocation.
#[inline]
fn check_name(name: &str) -> Result<(), IntentionError> {
    let bytes = name.as_bytes();
    if (1..=255).contains(&bytes.len()) && bytes[0] != b'.' && bytes.iter().copied().all(name_byte)
    {
        return Ok(());
    }
    TopicName::new(name).map(drop).map_err(IntentionError::Name)
}

#[inline]
fn name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// A batch read from its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Number of items.
    pub count: u32,
    /// Time of the proposal, milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    /// Term of its log entry.
    pub term: u64,
    /// The encoded items.
    pub items: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Reads the head. `term` comes from the log entry.
    pub fn read(bytes: &'a [u8], term: u64) -> Result<Self, BatchError> {
        let fail = |at, what| Err(BatchError { at, item: 0, what });
        let Some((head, items)) = bytes.split_first_chunk::<BATCH_HEAD_BYTES>() else {
            return fail(bytes.len(), "the head of the batch");
        };
        let [version, flags, zero, zero2, c0, c1, c2, c3, time @ ..] = *head;
        if version != BATCH_VERSION {
            return fail(0, "batch version 1");
        }
        if (flags, zero, zero2) != (0, 0, 0) {
            return fail(1, "zero bytes");
        }
        let count = u32::from_le_bytes([c0, c1, c2, c3]);
        if count == 0 || count as usize > BATCH_ITEMS_MAX {
            return fail(4, "1 to 65,536 items");
        }
        Ok(Self {
            count,
            time_ms: u64::from_le_bytes(time),
            term,
            items,
        })
    }

    /// Reads the items one by one.
    #[must_use]
    pub fn items(&self) -> Items<'a> {
        Items {
            reader: Reader::new(self.items),
            left: self.count,
            index: 0,
            client: ClientId::NONE,
            nonce: 0,
            topic: &[],
        }
    }
}

/// An item of a batch. Slices point into the batch.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// The client; [`ClientId::NONE`] without session.
    pub client: ClientId,
    /// Nonce of the intention; 0 without session.
    pub nonce: u64,
    /// Topic name, which may be a topic of the store. Empty only for housekeeping.
    pub topic: &'a [u8],
    /// Whether `topic` equals that of the item before.
    pub same_topic: bool,
    /// Fingerprint of the request, from the HTTP edge.
    pub fingerprint: Option<u64>,
    /// Metadata.
    pub meta: &'a [u8],
    /// Name of the principal; empty for none.
    pub principal: &'a [u8],
    /// The encoded content, for hashing.
    pub(crate) content: &'a [u8],
    /// Operation and content flags, for hashing.
    pub(crate) shape: u16,
    /// Conditions.
    pub expects: Expects<'a>,
    /// The requested operation.
    pub action: Action<'a>,
}

/// The requested operation of an item; the encoded form of [`Operation`].
#[derive(Clone, Copy, Debug)]
pub enum Action<'a> {
    /// CREATE with encoded options, program and arguments.
    Create {
        /// Encoded [`TopicOptions`], checked.
        options: &'a [u8],
        /// Program module; empty for a plain topic.
        code: &'a [u8],
        /// Arguments of the program.
        args: &'a [u8],
        /// Number of the meter that counts its fuel; 0 for a plain topic.
        meter: u32,
    },
    /// DESTROY.
    Destroy,
    /// PUT.
    Put {
        /// Key; empty for none.
        key: &'a [u8],
        /// Value.
        value: &'a [u8],
    },
    /// DELETE.
    Delete {
        /// Key.
        key: &'a [u8],
    },
    /// ALTER with encoded options, checked.
    Alter {
        /// Encoded [`TopicOptions`].
        options: &'a [u8],
    },
    /// REPLACE.
    Replace {
        /// Required SHA-256 of the current code; `None`: any code.
        expected: Option<CodeHash>,
        /// New module.
        code: &'a [u8],
        /// Its arguments.
        args: &'a [u8],
        /// Number of the meter that counts its fuel.
        meter: u32,
    },
    /// CURSOR, checked.
    Cursor {
        /// Name of the group.
        group: &'a str,
        /// The change of the group.
        step: GroupStep<'a>,
    },
    /// TXN.
    Txn(Steps<'a>),
    /// Drops idle sessions.
    ExpireSessions {
        /// Minimum idle time in milliseconds.
        idle_ms: u64,
    },
    /// Stops a topic, or resumes it.
    Quarantine {
        /// `true` stops the topic, `false` resumes it.
        stopped: bool,
    },
    /// Removes the records up to an offset from reads.
    Trim {
        /// Offset of the newest record to remove.
        through: u64,
    },
}

impl Action<'_> {
    /// Whether the topic's program judges this action: a PUT, a DELETE or a transaction of them.
    #[inline]
    #[must_use]
    pub const fn is_write(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::Delete { .. } | Self::Txn(_))
    }
}

/// Conditions of an item, still encoded. They were validated when the item was read.
#[derive(Clone, Copy, Debug)]
pub struct Expects<'a> {
    bytes: &'a [u8],
    count: u64,
}

impl<'a> Expects<'a> {
    /// Whether there are no conditions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The conditions in order.
    pub fn iter(&self) -> impl Iterator<Item = Expect<'a>> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        (0..self.count).map_while(move |_| read_expect(&mut reader).ok())
    }
}

/// Steps of a transaction, still encoded. They were validated when the item was read.
#[derive(Clone, Copy, Debug)]
pub struct Steps<'a> {
    bytes: &'a [u8],
    count: u32,
}

impl<'a> Steps<'a> {
    /// Number of steps, at least 1.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Always `false`: a transaction has at least one step.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The steps in order.
    pub fn iter(&self) -> impl Iterator<Item = TxnOp<'a>> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        (0..self.count).map_while(move |_| read_step(&mut reader).ok())
    }
}

/// Reads the items of a batch; ends after the last item or the first error.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    reader: Reader<'a>,
    left: u32,
    index: u32,
    client: ClientId,
    nonce: u64,
    topic: &'a [u8],
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Item<'a>, BatchError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            if self.reader.is_empty() {
                return None;
            }
            let error = self.error("the end of the batch");
            self.reader = Reader::new(&[]);
            return Some(Err(error));
        }
        self.left -= 1;
        let item = match self.read() {
            Ok(item) => Ok(item),
            Err(what) => {
                let error = self.error(what);
                self.left = 0;
                self.reader = Reader::new(&[]);
                Err(error)
            }
        };
        self.index += 1;
        Some(item)
    }
}

impl<'a> Items<'a> {
    /// Number of unread items.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left
    }

    fn error(&self, what: &'static str) -> BatchError {
        BatchError {
            at: BATCH_HEAD_BYTES + self.reader.at(),
            item: self.index,
            what,
        }
    }

    #[inline]
    fn read(&mut self) -> Result<Item<'a>, &'static str> {
        let r = &mut self.reader;
        let number = r.u8().map_err(|Short| "an operation")?;
        let flags = r.u8().map_err(|Short| "flags")?;
        if flags & !flag::ALL != 0 {
            return Err("known flags");
        }
        let first = self.index == 0;
        if first && flags & (flag::CLIENT | flag::TOPIC) != flag::CLIENT | flag::TOPIC {
            return Err("client and topic of the first item");
        }
        if flags & flag::CLIENT != 0 {
            if flags & flag::NONCE == 0 {
                return Err("a nonce after a client id");
            }
            self.client = ClientId(r.array().map_err(|Short| "a client id")?);
        }
        self.nonce = if flags & flag::NONCE != 0 {
            r.varint().map_err(|Short| "a nonce")?
        } else if self.client.is_none() {
            0
        } else {
            self.nonce
                .checked_add(1)
                .ok_or("a nonce below the last number")?
        };
        if self.client.is_none() != (self.nonce == 0) {
            return Err("a nonce that fits the client id");
        }
        if flags & flag::TOPIC != 0 {
            self.topic = r.short_bytes().map_err(|Short| "a topic name")?;
            if !self.topic.iter().copied().all(name_byte) {
                return Err("a topic name");
            }
        }
        if self.topic.is_empty() != (number == op::HOUSEKEEPING) {
            return Err("a topic, and none for housekeeping");
        }
        let fingerprint = match flags & flag::FINGERPRINT {
            0 => None,
            _ => Some(r.u64().map_err(|Short| "a fingerprint")?),
        };
        let principal = match flags & flag::PRINCIPAL {
            0 => &[][..],
            _ => non_empty(r.short_bytes()).ok_or("a principal")?,
        };
        let content = r.rest();
        let content_at = r.at();
        let expects = match flags & flag::EXPECT {
            0 => Expects {
                bytes: &[],
                count: 0,
            },
            _ => read_expects(r)?,
        };
        let meta = match flags & flag::META {
            0 => &[][..],
            _ => non_empty(read_meta(r)).ok_or("metadata of 1 to 4,096 bytes")?,
        };
        let mut action = if number == op::CURSOR {
            let (group, step) = group::read(r, self.topic)?;
            Action::Cursor { group, step }
        } else {
            read_action(r, number)?
        };
        if flags & flag::CONTENT != 0 {
            fits(&action, &expects, meta)?;
        }
        let content = part(content, ..r.at() - content_at, READ);
        // The meter is not part of the content: a retry of the request may come from a build with
        // another meter.
        if let Action::Create { code, meter, .. } | Action::Replace { code, meter, .. } =
            &mut action
            && !code.is_empty()
        {
            *meter = read_meter(r).map_err(|Short| "a meter of 1 to 2^32 - 1")?;
        }
        Ok(Item {
            client: self.client,
            nonce: self.nonce,
            topic: self.topic,
            same_topic: flags & flag::TOPIC == 0,
            fingerprint,
            meta,
            principal,
            content,
            shape: u16::from(number) << 8 | u16::from(flags & flag::CONTENT),
            expects,
            action,
        })
    }
}

/// A string that must not be empty; `None` if it is.
fn non_empty(bytes: Result<&[u8], Short>) -> Option<&[u8]> {
    bytes.ok().filter(|bytes| !bytes.is_empty())
}

/// Checks that the action permits these conditions and this metadata.
fn fits(action: &Action<'_>, expects: &Expects<'_>, meta: &[u8]) -> Result<(), &'static str> {
    let own_key = match action {
        Action::Put { key, .. } | Action::Delete { key } => *key,
        Action::ExpireSessions { .. } => return Err("housekeeping without conditions or metadata"),
        Action::Cursor { .. } => return Err("a group without conditions or metadata"),
        Action::Txn(_) if !meta.is_empty() => return Err("metadata in the steps"),
        _ => &[],
    };
    for expect in expects.iter() {
        if let Expect::KeyOffset(key, _) | Expect::KeyAbsent(key) | Expect::KeyPresent(key) = expect
            && (key.unwrap_or(own_key).is_empty() || key == Some(own_key))
        {
            return Err("the key of a condition");
        }
    }
    Ok(())
}

#[inline]
fn read_action<'a>(r: &mut Reader<'a>, number: u8) -> Result<Action<'a>, &'static str> {
    let options = |r: &mut Reader<'a>| {
        let bytes = r.bytes().map_err(|Short| "options")?;
        TopicOptions::decode(bytes)
            .map(|_| bytes)
            .ok_or("known options")
    };
    Ok(match number {
        op::PUT => {
            let key = r.bytes().map_err(|Short| "a key")?;
            Action::Put {
                key,
                value: r.bytes().map_err(|Short| "a value")?,
            }
        }
        op::DELETE => Action::Delete {
            key: read_key(r).map_err(|Short| "a key that is not empty")?,
        },
        op::CREATE => Action::Create {
            options: options(r)?,
            code: r.bytes().map_err(|Short| "a program")?,
            args: r.bytes().map_err(|Short| "arguments")?,
            meter: 0,
        },
        op::REPLACE => read_replace(r)?,
        op::DESTROY => Action::Destroy,
        op::ALTER => Action::Alter {
            options: options(r)?,
        },
        op::TXN => Action::Txn(read_steps(r)?),
        op::HOUSEKEEPING => {
            if r.u8() != Ok(1) {
                return Err("a known housekeeping task");
            }
            Action::ExpireSessions {
                idle_ms: r.varint().map_err(|Short| "a duration")?,
            }
        }
        op::QUARANTINE => Action::Quarantine {
            stopped: match r.u8() {
                Ok(0) => false,
                Ok(1) => true,
                _ => return Err("0 to resume or 1 to stop"),
            },
        },
        op::TRIM => Action::Trim {
            through: r.varint().map_err(|Short| "an offset")?,
        },
        _ => return Err("a known operation"),
    })
}

fn read_replace<'a>(r: &mut Reader<'a>) -> Result<Action<'a>, &'static str> {
    let hash = r.bytes().map_err(|Short| "a hash of code")?;
    let expected = match hash.len() {
        0 => None,
        _ => Some(CodeHash(
            hash.try_into().map_err(|_| "32 bytes of a hash or none")?,
        )),
    };
    let code = non_empty(r.bytes()).ok_or("a program that is not empty")?;
    let args = r.bytes().map_err(|Short| "arguments")?;
    Ok(Action::Replace {
        expected,
        code,
        args,
        meter: 0,
    })
}

fn read_meter(r: &mut Reader<'_>) -> Result<u32, Short> {
    let meter = u32::try_from(r.varint()?).map_err(|_| Short)?;
    if meter == 0 { Err(Short) } else { Ok(meter) }
}

#[inline]
fn read_meta<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Short> {
    r.bytes().and_then(|meta| {
        if meta.len() > META_BYTES_MAX {
            Err(Short)
        } else {
            Ok(meta)
        }
    })
}

#[inline]
fn read_key<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Short> {
    r.bytes()
        .and_then(|key| if key.is_empty() { Err(Short) } else { Ok(key) })
}

fn read_expects<'a>(r: &mut Reader<'a>) -> Result<Expects<'a>, &'static str> {
    let count = r.varint().map_err(|Short| "a number of conditions")?;
    if count == 0 || count > EXPECTS_MAX as u64 {
        return Err("1 to 64 conditions");
    }
    let (bytes, at) = (r.rest(), r.at());
    for _ in 0..count {
        read_expect(r).map_err(|Short| "a condition")?;
    }
    Ok(Expects {
        bytes: part(bytes, ..r.at() - at, READ),
        count,
    })
}

fn read_expect<'a>(r: &mut Reader<'a>) -> Result<Expect<'a>, Short> {
    let kind = r.u8()?;
    let key = match kind {
        1..=3 => Some(r.bytes()?).filter(|key| !key.is_empty()),
        _ => None,
    };
    Ok(match kind {
        1 => Expect::KeyOffset(key, r.varint()?),
        2 => Expect::KeyAbsent(key),
        3 => Expect::KeyPresent(key),
        4 => Expect::TopicOffset(r.varint()?),
        5 => Expect::TopicAbsentOr(r.varint()?),
        6 => Expect::TopicEmpty,
        7 => Expect::Incarnation(r.varint()?),
        8 => Expect::Options(r.varint()?),
        _ => return Err(Short),
    })
}

fn read_steps<'a>(r: &mut Reader<'a>) -> Result<Steps<'a>, &'static str> {
    let count = r.varint().map_err(|Short| "a number of steps")?;
    let count = u32::try_from(count).map_err(|_| "a number of steps")?;
    if count == 0 || count as usize > TXN_OPS_MAX {
        return Err("1 to 10,000 steps");
    }
    let (bytes, at) = (r.rest(), r.at());
    for _ in 0..count {
        read_step(r).map_err(|Short| "a step")?;
    }
    Ok(Steps {
        bytes: part(bytes, ..r.at() - at, READ),
        count,
    })
}

fn read_step<'a>(r: &mut Reader<'a>) -> Result<TxnOp<'a>, Short> {
    let number = r.u8()?;
    let meta = read_meta(r)?;
    match number {
        op::PUT => Ok(TxnOp::Put {
            key: r.bytes()?,
            value: r.bytes()?,
            meta,
        }),
        op::DELETE => Ok(TxnOp::Delete {
            key: read_key(r)?,
            meta,
        }),
        _ => Err(Short),
    }
}

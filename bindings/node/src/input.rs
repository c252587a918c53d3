//! Arguments from JavaScript: intentions, conditions, options. Bytes are copied, because the memory
//! of JavaScript cannot be borrowed beyond a call.

use std::time::Duration;

use napi::bindgen_prelude::{BigInt, Uint8Array};
use napi_derive::napi;
use weir::{
    CodeHash, Compaction, ErrorCode, Expect, GroupName, Intention, Operation, TopicOptions, TxnOp,
};

use crate::error::{Failure, Result};

/// A number with a name. Without a value, it is not set.
#[napi(object)]
pub struct Setting {
    pub name: String,
    pub value: Option<BigInt>,
}

/// A condition.
#[napi(object)]
pub struct ExpectIn {
    pub kind: String,
    pub key: Option<Uint8Array>,
    pub number: Option<BigInt>,
}

/// An intention, or a step of a transaction.
#[napi(object)]
pub struct OpIn {
    pub kind: String,
    pub topic: String,
    pub key: Option<Uint8Array>,
    pub value: Option<Uint8Array>,
    pub meta: Option<Uint8Array>,
    pub expect: Option<Vec<ExpectIn>>,
    pub steps: Option<Vec<OpIn>>,
    pub settings: Option<Vec<Setting>>,
    pub groups: Option<Vec<String>>,
    pub program: Option<Uint8Array>,
    /// For a replacement: the SHA-256 of the current program.
    pub expected: Option<Uint8Array>,
}

/// Converts a `bigint`.
///
/// # Errors
/// `BAD_OPTION` for a number that is negative or too large.
pub(crate) fn number(what: &str, value: &BigInt) -> Result<u64> {
    if let (false, number, true) = value.get_u64() {
        return Ok(number);
    }
    let text = format!("{what} is not a number from 0 to 2^64 - 1");
    Err(Failure::new(ErrorCode::BadOption, text))
}

/// Like [`number`], for an optional value.
pub(crate) fn maybe(what: &str, value: Option<&BigInt>) -> Result<Option<u64>> {
    value.map(|value| number(what, value)).transpose()
}

/// Converts a number of JavaScript. A parameter of type `u32` would convert -1 to 2^32 - 1.
///
/// # Errors
/// `BAD_OPTION` if it is not a whole number of 32 bits.
pub(crate) fn whole(what: &str, value: f64) -> Result<u32> {
    if value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value) {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked above"
        )]
        return Ok(value as u32);
    }
    let text = format!("{what} is {value}, not a whole number from 0 to 2^32 - 1");
    Err(Failure::new(ErrorCode::BadOption, text))
}

/// Like [`whole`], for an optional number of milliseconds.
pub(crate) fn millis(what: &str, value: Option<f64>) -> Result<Option<Duration>> {
    let ms = value.map(|value| whole(what, value)).transpose()?;
    Ok(ms.map(|ms| Duration::from_millis(u64::from(ms))))
}

/// A copy of the bytes; empty if there are none.
pub(crate) fn bytes(array: Option<&Uint8Array>) -> Vec<u8> {
    array.map(|array| array.to_vec()).unwrap_or_default()
}

/// An intention that owns its bytes.
pub(crate) struct OwnedIntention {
    topic: String,
    operation: OwnedOperation,
    meta: Vec<u8>,
    expect: Vec<Condition>,
}

enum OwnedOperation {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Transaction(Vec<OwnedIntention>),
    Create(Box<TopicOptions>, Option<Vec<u8>>, Vec<u8>),
    Replace(Option<CodeHash>, Vec<u8>, Vec<u8>),
    Alter(Box<TopicOptions>),
    Destroy,
}

struct Condition {
    kind: String,
    key: Option<Vec<u8>>,
    number: u64,
}

/// Converts intentions from JavaScript. Also returns their approximate size in bytes.
pub(crate) fn to_owned_intentions(ops: Vec<OpIn>) -> Result<(Vec<OwnedIntention>, usize)> {
    let mut size = 0;
    let owned = ops.into_iter().map(|op| to_owned_intention(op, &mut size));
    Ok((owned.collect::<Result<_>>()?, size))
}

fn to_owned_intention(op: OpIn, size: &mut usize) -> Result<OwnedIntention> {
    let (key, value) = (bytes(op.key.as_ref()), bytes(op.value.as_ref()));
    let program = op.program.as_ref().map(|program| program.to_vec());
    *size += key.len() + value.len() + program.as_ref().map_or(0, Vec::len);
    let options = || -> Result<Box<TopicOptions>> {
        let settings = op.settings.as_deref().unwrap_or_default();
        topic_options(settings, op.groups.as_deref().unwrap_or_default()).map(Box::new)
    };
    let operation = match op.kind.as_str() {
        "put" => OwnedOperation::Put(key, value),
        "delete" => OwnedOperation::Delete(key),
        "create" => OwnedOperation::Create(options()?, program, value),
        "replace" => {
            let expected = op.expected.as_deref().map(hash).transpose()?;
            OwnedOperation::Replace(expected, program.unwrap_or_default(), value)
        }
        "alter" => OwnedOperation::Alter(options()?),
        "destroy" => OwnedOperation::Destroy,
        "transaction" => {
            let steps = op.steps.unwrap_or_default().into_iter();
            let steps = steps.map(|step| to_owned_intention(step, size));
            OwnedOperation::Transaction(steps.collect::<Result<_>>()?)
        }
        other => return Err(Failure::option("kind", other)),
    };
    let mut expect = Vec::new();
    for condition in op.expect.unwrap_or_default() {
        expect.push(Condition {
            key: condition.key.as_ref().map(|key| key.to_vec()),
            number: maybe("a condition", condition.number.as_ref())?.unwrap_or(0),
            kind: condition.kind,
        });
    }
    Ok(OwnedIntention {
        topic: op.topic,
        operation,
        meta: bytes(op.meta.as_ref()),
        expect,
    })
}

fn hash(bytes: &[u8]) -> Result<CodeHash> {
    let hash = bytes.try_into();
    let hash =
        hash.map_err(|_| Failure::new(ErrorCode::BadOption, "expected is not of 32 bytes"))?;
    Ok(CodeHash(hash))
}

/// The parts that an intention borrows, created before it.
pub(crate) struct BorrowedParts<'a> {
    owned: &'a OwnedIntention,
    expect: Vec<Expect<'a>>,
    steps: Vec<TxnOp<'a>>,
}

/// Borrows the parts of all intentions.
pub(crate) fn borrow(all: &[OwnedIntention]) -> Result<Vec<BorrowedParts<'_>>> {
    all.iter().map(OwnedIntention::borrow).collect()
}

impl OwnedIntention {
    fn borrow(&self) -> Result<BorrowedParts<'_>> {
        let expect = self
            .expect
            .iter()
            .map(Condition::borrow)
            .collect::<Result<_>>()?;
        let steps = match &self.operation {
            OwnedOperation::Transaction(steps) => {
                steps.iter().map(Self::step).collect::<Result<_>>()?
            }
            _ => Vec::new(),
        };
        Ok(BorrowedParts {
            owned: self,
            expect,
            steps,
        })
    }

    fn step(&self) -> Result<TxnOp<'_>> {
        match &self.operation {
            OwnedOperation::Put(key, value) if self.expect.is_empty() => Ok(TxnOp::Put {
                key,
                value,
                meta: &self.meta,
            }),
            OwnedOperation::Delete(key) if self.expect.is_empty() => Ok(TxnOp::Delete {
                key,
                meta: &self.meta,
            }),
            _ => {
                let text =
                    "a step is a put or delete without conditions; pass them to the transaction";
                Err(Failure::new(ErrorCode::BadRequest, text))
            }
        }
    }
}

impl Condition {
    fn borrow(&self) -> Result<Expect<'_>> {
        let key = self.key.as_deref();
        Ok(match self.kind.as_str() {
            "keyOffset" => Expect::KeyOffset(key, self.number),
            "keyAbsent" => Expect::KeyAbsent(key),
            "keyPresent" => Expect::KeyPresent(key),
            "topicOffset" => Expect::TopicOffset(self.number),
            "topicAbsentOr" => Expect::TopicAbsentOr(self.number),
            "topicEmpty" => Expect::TopicEmpty,
            "incarnation" => Expect::Incarnation(self.number),
            other => return Err(Failure::option("expect", other)),
        })
    }
}

/// The intentions of the borrowed parts.
pub(crate) fn intentions<'a>(borrowed: &'a [BorrowedParts<'a>]) -> Vec<Intention<'a>> {
    borrowed
        .iter()
        .map(|borrowed| {
            let operation = match &borrowed.owned.operation {
                OwnedOperation::Put(key, value) => Operation::Put { key, value },
                OwnedOperation::Delete(key) => Operation::Delete { key },
                OwnedOperation::Transaction(_) => Operation::Txn {
                    ops: &borrowed.steps,
                },
                OwnedOperation::Create(options, None, _) => Operation::Create { options },
                OwnedOperation::Create(options, Some(code), args) => Operation::CreateProgram {
                    options,
                    code,
                    args,
                },
                OwnedOperation::Replace(expected, code, args) => Operation::Replace {
                    expected: *expected,
                    code,
                    args,
                },
                OwnedOperation::Alter(options) => Operation::Alter { options },
                OwnedOperation::Destroy => Operation::Destroy,
            };
            let intention =
                Intention::new(&borrowed.owned.topic, operation).expecting(&borrowed.expect);
            Intention {
                meta: &borrowed.owned.meta,
                ..intention
            }
        })
        .collect()
}

fn topic_options(settings: &[Setting], groups: &[String]) -> Result<TopicOptions> {
    let mut options = TopicOptions::default();
    for setting in settings {
        let value = maybe(&setting.name, setting.value.as_ref())?;
        match setting.name.as_str() {
            "compaction" => {
                options.compaction = if value == Some(1) {
                    Compaction::Latest
                } else {
                    Compaction::Off
                };
            }
            "tombstoneTtlMs" => options.tombstone_ttl_ms = value,
            "compactionLagMs" => options.compaction_lag_ms = value,
            "keyBytesMax" => options.key_bytes_max = value,
            "valueBytesMax" => options.value_bytes_max = value,
            "keysMax" => options.keys_max = value,
            "retentionAgeMs" => options.retention.age_ms = value,
            "retentionBytes" => options.retention.bytes = value,
            "retentionRecords" => options.retention.records = value,
            "fuelMax" => options.program.fuel_max = value,
            "memoryBytesMax" => options.program.memory_bytes_max = value,
            "emitsMax" => options.program.emits_max = value,
            "emitBytesMax" => options.program.emit_bytes_max = value,
            "stateEntriesMax" => options.program.state_entries_max = value,
            "stateBytesMax" => options.program.state_bytes_max = value,
            other => return Err(Failure::option("an option of a topic", other)),
        }
    }
    for name in groups {
        let group = GroupName::new(name);
        let group = group.ok_or_else(|| Failure::option("holdForGroups", name))?;
        options.retention.hold_for_groups.push(group);
    }
    options.retention.hold_for_groups.sort();
    options.retention.hold_for_groups.dedup();
    Ok(options)
}

//! Arguments from JavaScript: intentions, conditions, options. Bytes are copied, because the memory
//! of JavaScript cannot be borrowed beyond a call.

use napi::bindgen_prelude::{BigInt, Uint8Array};
use napi_derive::napi;
use weir::{
    CodeHash, Compaction, ErrorCode, Expect, GroupName, Intention, Operation, TopicOptions, TxnOp,
};

use crate::error::{Answer, Failure};

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
pub(crate) fn number(what: &str, value: &BigInt) -> Answer<u64> {
    if let (false, number, true) = value.get_u64() {
        return Ok(number);
    }
    let text = format!("{what} is not a number from 0 to 2^64 - 1");
    Err(Failure::new(ErrorCode::BadOption, text))
}

/// Like [`number`], for an optional value.
pub(crate) fn maybe(what: &str, value: Option<&BigInt>) -> Answer<Option<u64>> {
    value.map(|value| number(what, value)).transpose()
}

/// A copy of the bytes; empty if there are none.
pub(crate) fn bytes(given: Option<&Uint8Array>) -> Vec<u8> {
    given.map(|given| given.to_vec()).unwrap_or_default()
}

/// An intention that owns its bytes.
pub(crate) struct Owned {
    topic: String,
    what: What,
    meta: Vec<u8>,
    expect: Vec<Condition>,
}

enum What {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Transaction(Vec<Owned>),
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
pub(crate) fn own(ops: Vec<OpIn>) -> Answer<(Vec<Owned>, usize)> {
    let mut size = 0;
    let owned = ops.into_iter().map(|op| one(op, &mut size));
    Ok((owned.collect::<Answer<_>>()?, size))
}

fn one(op: OpIn, size: &mut usize) -> Answer<Owned> {
    let (key, value) = (bytes(op.key.as_ref()), bytes(op.value.as_ref()));
    let program = op.program.as_ref().map(|program| program.to_vec());
    *size += key.len() + value.len() + program.as_ref().map_or(0, Vec::len);
    let options = || -> Answer<Box<TopicOptions>> {
        let settings = op.settings.as_deref().unwrap_or_default();
        topic_options(settings, op.groups.as_deref().unwrap_or_default()).map(Box::new)
    };
    let what = match op.kind.as_str() {
        "put" => What::Put(key, value),
        "delete" => What::Delete(key),
        "create" => What::Create(options()?, program, value),
        "replace" => {
            let expected = op.expected.as_deref().map(hash).transpose()?;
            What::Replace(expected, program.unwrap_or_default(), value)
        }
        "alter" => What::Alter(options()?),
        "destroy" => What::Destroy,
        "transaction" => {
            let steps = op.steps.unwrap_or_default().into_iter();
            let steps = steps.map(|step| one(step, size));
            What::Transaction(steps.collect::<Answer<_>>()?)
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
    Ok(Owned {
        topic: op.topic,
        what,
        meta: bytes(op.meta.as_ref()),
        expect,
    })
}

fn hash(given: &[u8]) -> Answer<CodeHash> {
    let hash = given.try_into();
    let hash =
        hash.map_err(|_| Failure::new(ErrorCode::BadOption, "expected is not of 32 bytes"))?;
    Ok(CodeHash(hash))
}

/// The parts that an intention borrows, created before it.
pub(crate) struct Lent<'a> {
    owned: &'a Owned,
    expect: Vec<Expect<'a>>,
    steps: Vec<TxnOp<'a>>,
}

/// Borrows the parts of all intentions.
pub(crate) fn lend(all: &[Owned]) -> Answer<Vec<Lent<'_>>> {
    all.iter().map(Owned::lend).collect()
}

impl Owned {
    fn lend(&self) -> Answer<Lent<'_>> {
        let expect = self
            .expect
            .iter()
            .map(Condition::lend)
            .collect::<Answer<_>>()?;
        let steps = match &self.what {
            What::Transaction(steps) => steps.iter().map(Self::step).collect::<Answer<_>>()?,
            _ => Vec::new(),
        };
        Ok(Lent {
            owned: self,
            expect,
            steps,
        })
    }

    fn step(&self) -> Answer<TxnOp<'_>> {
        match &self.what {
            What::Put(key, value) if self.expect.is_empty() => Ok(TxnOp::Put {
                key,
                value,
                meta: &self.meta,
            }),
            What::Delete(key) if self.expect.is_empty() => Ok(TxnOp::Delete {
                key,
                meta: &self.meta,
            }),
            _ => {
                let text = "a step is a put or delete, and conditions are given for the whole";
                Err(Failure::new(ErrorCode::BadRequest, text))
            }
        }
    }
}

impl Condition {
    fn lend(&self) -> Answer<Expect<'_>> {
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
pub(crate) fn intentions<'a>(lent: &'a [Lent<'a>]) -> Vec<Intention<'a>> {
    lent.iter()
        .map(|lent| {
            let operation = match &lent.owned.what {
                What::Put(key, value) => Operation::Put { key, value },
                What::Delete(key) => Operation::Delete { key },
                What::Transaction(_) => Operation::Txn { ops: &lent.steps },
                What::Create(options, None, _) => Operation::Create { options },
                What::Create(options, Some(code), args) => Operation::CreateProgram {
                    options,
                    code,
                    args,
                },
                What::Replace(expected, code, args) => Operation::Replace {
                    expected: *expected,
                    code,
                    args,
                },
                What::Alter(options) => Operation::Alter { options },
                What::Destroy => Operation::Destroy,
            };
            let intention = Intention::new(&lent.owned.topic, operation).expecting(&lent.expect);
            Intention {
                meta: &lent.owned.meta,
                ..intention
            }
        })
        .collect()
}

fn topic_options(settings: &[Setting], groups: &[String]) -> Answer<TopicOptions> {
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

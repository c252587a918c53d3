//! What can be asked for: `Put`, `Delete`, and the conditions of both.

use pyo3::prelude::*;
use weir::{Intention, Operation, TxnOp};

use crate::data::Data;

/// Appends a record; with a key, sets the key.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Put {
    key: Data,
    value: Data,
    meta: Data,
    expect: Vec<Condition>,
}

#[pymethods]
impl Put {
    /// `key` may be empty for a record without key. `expect` are conditions that all must hold;
    /// `meta` is at most 4 KiB that the store keeps and does not read.
    #[new]
    #[pyo3(signature = (key, value, *, expect=Vec::new(), meta=Data::Copy(Vec::new())))]
    fn new(key: Data, value: Data, expect: Vec<Bound<'_, Expect>>, meta: Data) -> Self {
        Self {
            key,
            value,
            meta,
            expect: conditions(&expect),
        }
    }
}

/// Removes a key. VALID even if it has no value.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Delete {
    key: Data,
    meta: Data,
    expect: Vec<Condition>,
}

#[pymethods]
impl Delete {
    /// As for `Put`.
    #[new]
    #[pyo3(signature = (key, *, expect=Vec::new(), meta=Data::Copy(Vec::new())))]
    fn new(key: Data, expect: Vec<Bound<'_, Expect>>, meta: Data) -> Self {
        Self {
            key,
            meta,
            expect: conditions(&expect),
        }
    }
}

/// A condition on the state in which an intention meets its topic. If one does not hold, the verdict
/// is INVALID with the reason CONFLICT. A `key` of None is the key of the intention.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Expect(Condition);

/// The same, owned.
#[derive(Clone)]
pub(crate) enum Condition {
    KeyOffset(Option<Vec<u8>>, u64),
    KeyAbsent(Option<Vec<u8>>),
    KeyPresent(Option<Vec<u8>>),
    TopicOffset(u64),
    TopicAbsentOr(u64),
    TopicEmpty,
    Incarnation(u64),
}

fn owned(key: Option<Data>) -> Option<Vec<u8>> {
    key.map(|key| key.as_ref().to_vec())
}

#[pymethods]
impl Expect {
    /// The key's current value was written at this offset.
    #[staticmethod]
    #[pyo3(signature = (offset, key=None))]
    fn key_offset(offset: u64, key: Option<Data>) -> Self {
        Self(Condition::KeyOffset(owned(key), offset))
    }

    /// The key has no value.
    #[staticmethod]
    #[pyo3(signature = (key=None))]
    fn key_absent(key: Option<Data>) -> Self {
        Self(Condition::KeyAbsent(owned(key)))
    }

    /// The key has a value.
    #[staticmethod]
    #[pyo3(signature = (key=None))]
    fn key_present(key: Option<Data>) -> Self {
        Self(Condition::KeyPresent(owned(key)))
    }

    /// The topic's last record has this offset.
    #[staticmethod]
    fn topic_offset(offset: u64) -> Self {
        Self(Condition::TopicOffset(offset))
    }

    /// The topic does not live, or its last record has this offset.
    #[staticmethod]
    fn topic_absent_or(offset: u64) -> Self {
        Self(Condition::TopicAbsentOr(offset))
    }

    /// The topic lives, and has no record behind the one that created it.
    #[staticmethod]
    fn topic_empty() -> Self {
        Self(Condition::TopicEmpty)
    }

    /// The topic lives since this intention offset.
    #[staticmethod]
    fn incarnation(intention: u64) -> Self {
        Self(Condition::Incarnation(intention))
    }
}

/// The conditions in objects of Python.
pub(crate) fn conditions(expect: &[Bound<'_, Expect>]) -> Vec<Condition> {
    expect.iter().map(|expect| expect.get().0.clone()).collect()
}

/// The conditions as the front door takes them.
pub(crate) fn borrowed(conditions: &[Condition]) -> Vec<weir::Expect<'_>> {
    let conditions = conditions.iter();
    conditions
        .map(|condition| match condition {
            Condition::KeyOffset(key, offset) => weir::Expect::KeyOffset(key.as_deref(), *offset),
            Condition::KeyAbsent(key) => weir::Expect::KeyAbsent(key.as_deref()),
            Condition::KeyPresent(key) => weir::Expect::KeyPresent(key.as_deref()),
            Condition::TopicOffset(offset) => weir::Expect::TopicOffset(*offset),
            Condition::TopicAbsentOr(offset) => weir::Expect::TopicAbsentOr(*offset),
            Condition::TopicEmpty => weir::Expect::TopicEmpty,
            Condition::Incarnation(offset) => weir::Expect::Incarnation(*offset),
        })
        .collect()
}

/// A `Put` or a `Delete`.
#[derive(FromPyObject)]
pub(crate) enum Op<'py> {
    Put(Bound<'py, Put>),
    Delete(Bound<'py, Delete>),
}

impl Op<'_> {
    /// Itself without the interpreter.
    pub(crate) fn get(&self) -> Step<'_> {
        match self {
            Self::Put(put) => Step::Put(put.get()),
            Self::Delete(delete) => Step::Delete(delete.get()),
        }
    }
}

/// A `Put` or a `Delete`, good while the interpreter is released.
#[derive(Clone, Copy)]
pub(crate) enum Step<'a> {
    Put(&'a Put),
    Delete(&'a Delete),
}

impl<'a> Step<'a> {
    /// Its conditions.
    pub(crate) fn expect(self) -> Vec<weir::Expect<'a>> {
        match self {
            Self::Put(put) => borrowed(&put.expect),
            Self::Delete(delete) => borrowed(&delete.expect),
        }
    }

    /// As an intention of its own.
    pub(crate) fn intention(self, topic: &'a str, expect: &'a [weir::Expect<'a>]) -> Intention<'a> {
        let (operation, meta) = match self {
            Self::Put(put) => {
                let (key, value) = (put.key.as_ref(), put.value.as_ref());
                (Operation::Put { key, value }, put.meta.as_ref())
            }
            Self::Delete(delete) => (
                Operation::Delete {
                    key: delete.key.as_ref(),
                },
                delete.meta.as_ref(),
            ),
        };
        Intention {
            meta,
            ..Intention::new(topic, operation).expecting(expect)
        }
    }

    /// As a step of a transaction; nothing for one with conditions of its own.
    pub(crate) fn step(self) -> Option<TxnOp<'a>> {
        match self {
            Self::Put(put) if put.expect.is_empty() => Some(TxnOp::Put {
                key: put.key.as_ref(),
                value: put.value.as_ref(),
                meta: put.meta.as_ref(),
            }),
            Self::Delete(delete) if delete.expect.is_empty() => Some(TxnOp::Delete {
                key: delete.key.as_ref(),
                meta: delete.meta.as_ref(),
            }),
            _ => None,
        }
    }
}

//! The kinds of intentions, `Put`, `Delete`, `Transaction`, `Create`, `Alter` and `Destroy`, and
//! the conditions.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use weir::{ErrorCode, Intention, Operation, TopicOptions, TxnOp};

use crate::data::{Content, Data};
use crate::error::Failure;
use crate::options;

/// Appends a record; with a key, sets the value of the key.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Put {
    key: Data,
    value: Content,
    meta: Data,
    expect: Vec<Condition>,
}

#[pymethods]
impl Put {
    /// `key` may be empty for a record without a key. `expect` are conditions that must all hold.
    /// `meta` is metadata of at most 4 KiB, which the store retains and does not interpret.
    #[new]
    #[pyo3(signature = (key, value, *, expect=Vec::new(), meta=Data::Copy(Vec::new())))]
    fn new(key: Data, value: Content, expect: Vec<Bound<'_, Expect>>, meta: Data) -> Self {
        Self {
            key,
            value,
            meta,
            expect: conditions(&expect),
        }
    }
}

/// Deletes a key. The verdict is VALID even if the key has no value.
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

/// Executes all steps, in order, or none. A step is a `Put` or `Delete` without conditions.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Transaction {
    steps: Vec<Py<PyAny>>,
    owned: Vec<OwnedStep>,
    expect: Vec<Condition>,
}

/// A stored step.
enum OwnedStep {
    Put(Py<Put>),
    Delete(Py<Delete>),
}

#[pymethods]
impl Transaction {
    /// `expect` are conditions of the whole transaction; each names its key.
    #[new]
    #[pyo3(signature = (ops, *, expect=Vec::new()))]
    pub(crate) fn new(
        ops: Vec<Bound<'_, PyAny>>,
        expect: Vec<Bound<'_, Expect>>,
    ) -> PyResult<Self> {
        let mut owned = Vec::new();
        for op in &ops {
            let (step, is_unconditional) = if let Ok(put) = op.cast::<Put>() {
                (
                    OwnedStep::Put(put.clone().unbind()),
                    put.get().expect.is_empty(),
                )
            } else {
                let delete = op.cast::<Delete>()?;
                (
                    OwnedStep::Delete(delete.clone().unbind()),
                    delete.get().expect.is_empty(),
                )
            };
            if !is_unconditional {
                let text = "a step has no conditions; pass them to the transaction";
                return Err(Failure::new(ErrorCode::BadRequest, text).into());
            }
            owned.push(step);
        }
        let steps = ops.into_iter().map(Bound::unbind).collect();
        Ok(Self {
            steps,
            owned,
            expect: conditions(&expect),
        })
    }

    /// The steps.
    #[getter]
    fn ops(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.steps.iter().map(|step| step.clone_ref(py)).collect()
    }
}

/// Creates a topic.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Create {
    options: TopicOptions,
    program: Option<Data>,
    args: Data,
}

#[pymethods]
impl Create {
    /// See `Topic.create`.
    #[new]
    #[pyo3(signature = (*, program=None, args=Data::Copy(Vec::new()), **options))]
    fn new(
        program: Option<Data>,
        args: Data,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = options::topic(options)?;
        Ok(Self {
            options,
            program,
            args,
        })
    }
}

/// Replaces the options of a topic.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Alter {
    options: TopicOptions,
}

#[pymethods]
impl Alter {
    /// See `Topic.create`.
    #[new]
    #[pyo3(signature = (**options))]
    fn new(options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        Ok(Self {
            options: options::topic(options)?,
        })
    }
}

/// Destroys a topic.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Destroy;

#[pymethods]
impl Destroy {
    /// See `Topic.destroy`.
    #[new]
    fn new() -> Self {
        Self
    }
}

/// A condition on the state of the topic. If a condition fails, the verdict is INVALID with the
/// reason CONFLICT. A `key` of None is the key of the intention.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Expect(Condition);

/// An owned form of `Expect`.
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
    /// The current value of the key was written at this offset.
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

    /// The last record of the topic has this offset.
    #[staticmethod]
    fn topic_offset(offset: u64) -> Self {
        Self(Condition::TopicOffset(offset))
    }

    /// The topic does not exist, or its last record has this offset.
    #[staticmethod]
    fn topic_absent_or(offset: u64) -> Self {
        Self(Condition::TopicAbsentOr(offset))
    }

    /// The topic exists and has no record after the one that created it.
    #[staticmethod]
    fn topic_empty() -> Self {
        Self(Condition::TopicEmpty)
    }

    /// The intention with this offset created the topic.
    #[staticmethod]
    fn incarnation(intention: u64) -> Self {
        Self(Condition::Incarnation(intention))
    }
}

/// The conditions of Python objects.
pub(crate) fn conditions(expect: &[Bound<'_, Expect>]) -> Vec<Condition> {
    expect.iter().map(|expect| expect.get().0.clone()).collect()
}

/// The conditions in the form of the public API.
pub(crate) fn borrow_conditions(conditions: &[Condition]) -> Vec<weir::Expect<'_>> {
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

/// An intention of any kind.
#[derive(FromPyObject)]
pub(crate) enum Op<'py> {
    Put(Bound<'py, Put>),
    Delete(Bound<'py, Delete>),
    Transaction(Bound<'py, Transaction>),
    Create(Bound<'py, Create>),
    Alter(Bound<'py, Alter>),
    Destroy(Bound<'py, Destroy>),
}

impl Op<'_> {
    /// The operation in a form that does not need the interpreter.
    pub(crate) fn get(&self) -> Step<'_> {
        match self {
            Self::Put(put) => Step::Put(put.get()),
            Self::Delete(delete) => Step::Delete(delete.get()),
            Self::Transaction(transaction) => Step::Transaction(transaction.get()),
            Self::Create(create) => Step::Create(create.get()),
            Self::Alter(alter) => Step::Alter(alter.get()),
            Self::Destroy(destroy) => Step::Destroy(destroy.get()),
        }
    }
}

/// An `Op` that is valid while the interpreter is released.
#[derive(Clone, Copy)]
pub(crate) enum Step<'a> {
    Put(&'a Put),
    Delete(&'a Delete),
    Transaction(&'a Transaction),
    Create(&'a Create),
    Alter(&'a Alter),
    Destroy(&'a Destroy),
}

/// The parts that an intention borrows, created before it.
pub(crate) struct BorrowedParts<'a> {
    step: Step<'a>,
    expect: Vec<weir::Expect<'a>>,
    steps: Vec<TxnOp<'a>>,
}

impl<'a> Step<'a> {
    /// Borrows the parts of the step.
    pub(crate) fn borrow(self) -> BorrowedParts<'a> {
        let expect = match self {
            Self::Put(put) => borrow_conditions(&put.expect),
            Self::Delete(delete) => borrow_conditions(&delete.expect),
            Self::Transaction(transaction) => borrow_conditions(&transaction.expect),
            _ => Vec::new(),
        };
        let steps = match self {
            Self::Transaction(transaction) => {
                let steps = transaction.owned.iter();
                steps.map(OwnedStep::borrow).collect()
            }
            _ => Vec::new(),
        };
        BorrowedParts {
            step: self,
            expect,
            steps,
        }
    }
}

impl OwnedStep {
    fn borrow(&self) -> TxnOp<'_> {
        match self {
            Self::Put(put) => {
                let put = put.get();
                TxnOp::Put {
                    key: put.key.as_ref(),
                    value: put.value.as_ref(),
                    meta: put.meta.as_ref(),
                }
            }
            Self::Delete(delete) => {
                let delete = delete.get();
                TxnOp::Delete {
                    key: delete.key.as_ref(),
                    meta: delete.meta.as_ref(),
                }
            }
        }
    }
}

impl BorrowedParts<'_> {
    /// The intention for a topic.
    pub(crate) fn intention<'a>(&'a self, topic: &'a str) -> Intention<'a> {
        let mut meta: &[u8] = b"";
        let operation = match self.step {
            Step::Put(put) => {
                meta = put.meta.as_ref();
                Operation::Put {
                    key: put.key.as_ref(),
                    value: put.value.as_ref(),
                }
            }
            Step::Delete(delete) => {
                meta = delete.meta.as_ref();
                Operation::Delete {
                    key: delete.key.as_ref(),
                }
            }
            Step::Transaction(_) => Operation::Txn { ops: &self.steps },
            Step::Create(Create {
                options,
                program: None,
                ..
            }) => Operation::Create { options },
            Step::Create(Create {
                options,
                program: Some(code),
                args,
            }) => Operation::CreateProgram {
                options,
                code: code.as_ref(),
                args: args.as_ref(),
            },
            Step::Alter(Alter { options }) => Operation::Alter { options },
            Step::Destroy(Destroy) => Operation::Destroy,
        };
        let intention = Intention::new(topic, operation).expecting(&self.expect);
        Intention { meta, ..intention }
    }
}

/// Borrows the parts of several steps with their topics.
pub(crate) fn borrow<'a>(steps: &[(&'a str, Step<'a>)]) -> Vec<(&'a str, BorrowedParts<'a>)> {
    let steps = steps.iter();
    steps.map(|(topic, step)| (*topic, step.borrow())).collect()
}

/// The intentions of the borrowed parts.
pub(crate) fn intentions<'a>(borrowed: &'a [(&'a str, BorrowedParts<'a>)]) -> Vec<Intention<'a>> {
    borrowed
        .iter()
        .map(|(topic, borrowed)| borrowed.intention(topic))
        .collect()
}

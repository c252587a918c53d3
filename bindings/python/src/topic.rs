//! Topics: writing, reading by key, and reading in order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use weir::{CodeHash, ErrorCode, Intention, Operation, ReadFrom, Weir};

use crate::data::{Content, Data};
use crate::error::{Failure, Result};
use crate::group::{Group, GroupInfo};
use crate::intention::{self, Expect, Op};
use crate::options;
use crate::pending::Pending;
use crate::reader::{Latest, Position, Reader, start};
use crate::record::Record;
use crate::store_handle::StoreHandle;
use crate::verdict::Verdict;
use crate::wait::{self, seconds};

/// Keys of one request of a scan.
const SCAN_KEYS: usize = 1000;

/// A handle of a topic. A write waits for its verdict; `send` does not.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Topic {
    handles: StoreHandle<(Weir, weir::Topic)>,
    name: String,
}

impl Topic {
    pub(crate) fn new(handles: StoreHandle<(Weir, weir::Topic)>, name: &str) -> Self {
        Self {
            handles,
            name: name.to_owned(),
        }
    }

    /// The topic, or an error if the store was closed.
    fn open_handle(&self) -> Result<&weir::Topic> {
        Ok(&self.handles.get()?.1)
    }

    /// The store of the topic.
    fn weir(&self) -> Result<&Weir> {
        Ok(&self.handles.get()?.0)
    }

    fn name(&self) -> &str {
        &self.name
    }

    /// Executes one intention and returns its verdict.
    fn execute_one(
        &self,
        py: Python<'_>,
        operation: Operation<'_>,
        expect: &[weir::Expect<'_>],
        meta: &[u8],
    ) -> PyResult<Verdict> {
        let intention = Intention::new(self.name(), operation).expecting(expect);
        let intention = Intention { meta, ..intention };
        let pending = wait::interruptible(py, || -> Result<Pending> {
            Ok(Pending::new(self.weir()?.propose_inline(&[intention])?))
        })?;
        Self::first(py, &pending)
    }

    /// Proposes operations.
    fn propose(&self, py: Python<'_>, ops: &[Op<'_>]) -> PyResult<Pending> {
        let name = self.name();
        let steps: Vec<_> = ops.iter().map(|op| (name, op.get())).collect();
        wait::interruptible(py, || -> Result<Pending> {
            let borrowed = intention::borrow(&steps);
            let intentions = intention::intentions(&borrowed);
            Ok(Pending::new(self.weir()?.propose(&intentions)?))
        })
    }

    fn first(py: Python<'_>, pending: &Pending) -> PyResult<Verdict> {
        let verdicts = pending.verdicts(py, None)?;
        let verdict = verdicts.and_then(|verdicts| verdicts.into_iter().next());
        verdict.ok_or_else(|| Failure::closed().into())
    }
}

#[pymethods]
impl Topic {
    /// The name of the topic.
    #[getter(name)]
    fn name_of(&self) -> &str {
        self.name()
    }

    /// Creates the topic. If it exists, the verdict is INVALID with TOPIC_EXISTS.
    ///
    /// Options: compaction ("off", "latest"), tombstone_ttl_ms, compaction_lag_ms, key_bytes_max,
    /// value_bytes_max, keys_max, retention_age_ms, retention_bytes, retention_records,
    /// hold_for_groups. `program` is the bytes of a WebAssembly module that validates each write.
    /// With a program, there are also the options fuel_max, memory_bytes_max, emits_max,
    /// emit_bytes_max, state_entries_max, state_bytes_max.
    #[pyo3(signature = (*, program=None, args=Data::Copy(Vec::new()), **options))]
    fn create(
        &self,
        py: Python<'_>,
        program: Option<Data>,
        args: Data,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Verdict> {
        let options = &options::topic(options)?;
        let operation = match &program {
            None => Operation::Create { options },
            Some(code) => {
                let (code, args) = (code.as_ref(), args.as_ref());
                Operation::CreateProgram {
                    options,
                    code,
                    args,
                }
            }
        };
        self.execute_one(py, operation, &[], b"")
    }

    /// Creates the topic if it does not exist. Returns whether this call created it.
    fn ensure(&self, py: Python<'_>) -> PyResult<bool> {
        wait::interruptible(py, || self.open_handle()?.ensure().map_err(Failure::from))
    }

    /// Replaces the options; see `create`.
    #[pyo3(signature = (**options))]
    fn alter(&self, py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Verdict> {
        let options = &options::topic(options)?;
        self.execute_one(py, Operation::Alter { options }, &[], b"")
    }

    /// Replaces the program of the topic. With `expected`, only if the current program has this
    /// SHA-256.
    #[pyo3(signature = (program, args=Data::Copy(Vec::new()), *, expected=None))]
    fn replace(
        &self,
        py: Python<'_>,
        program: Data,
        args: Data,
        expected: Option<[u8; 32]>,
    ) -> PyResult<Verdict> {
        let expected = expected.map(CodeHash);
        let (code, args) = (program.as_ref(), args.as_ref());
        self.execute_one(
            py,
            Operation::Replace {
                expected,
                code,
                args,
            },
            &[],
            b"",
        )
    }

    /// Destroys the topic and its keys. If it is created again, its offsets continue after the old
    /// ones.
    fn destroy(&self, py: Python<'_>) -> PyResult<Verdict> {
        self.execute_one(py, Operation::Destroy, &[], b"")
    }

    /// The current state of the topic; None if it was never created.
    fn info(&self, py: Python<'_>) -> PyResult<Option<TopicInfo>> {
        let info =
            wait::interruptible(py, || self.open_handle()?.try_info().map_err(Failure::from))?;
        Ok(info.map(TopicInfo::from))
    }

    /// Appends a record without a key.
    #[pyo3(signature = (value, *, meta=Data::Copy(Vec::new())))]
    fn append(&self, py: Python<'_>, value: Content, meta: Data) -> PyResult<Verdict> {
        let operation = Operation::Put {
            key: b"",
            value: value.as_ref(),
        };
        self.execute_one(py, operation, &[], meta.as_ref())
    }

    /// Appends a record and sets its key. Ctrl-C ends the wait, not the write.
    #[pyo3(signature = (key, value, *, meta=Data::Copy(Vec::new())))]
    fn put(&self, py: Python<'_>, key: Data, value: Content, meta: Data) -> PyResult<Verdict> {
        let operation = Operation::Put {
            key: key.as_ref(),
            value: value.as_ref(),
        };
        self.execute_one(py, operation, &[], meta.as_ref())
    }

    /// Puts the record if all conditions hold. Otherwise the verdict is INVALID with CONFLICT, and
    /// `detail["actual"]` is the offset that was found.
    #[pyo3(signature = (key, value, expect, *, meta=Data::Copy(Vec::new())))]
    fn put_if(
        &self,
        py: Python<'_>,
        key: Data,
        value: Content,
        expect: Vec<Bound<'_, Expect>>,
        meta: Data,
    ) -> PyResult<Verdict> {
        let conditions = intention::conditions(&expect);
        let operation = Operation::Put {
            key: key.as_ref(),
            value: value.as_ref(),
        };
        self.execute_one(
            py,
            operation,
            &intention::borrow_conditions(&conditions),
            meta.as_ref(),
        )
    }

    /// Deletes a key. The verdict is VALID even if the key has no value.
    #[pyo3(signature = (key, *, expect=Vec::new(), meta=Data::Copy(Vec::new())))]
    fn delete(
        &self,
        py: Python<'_>,
        key: Data,
        expect: Vec<Bound<'_, Expect>>,
        meta: Data,
    ) -> PyResult<Verdict> {
        let conditions = intention::conditions(&expect);
        let operation = Operation::Delete { key: key.as_ref() };
        self.execute_one(
            py,
            operation,
            &intention::borrow_conditions(&conditions),
            meta.as_ref(),
        )
    }

    /// Executes several intentions independently, in one call. Returns one verdict for each, in
    /// order. See also `transaction`.
    fn batch(&self, py: Python<'_>, ops: Vec<Op<'_>>) -> PyResult<Vec<Verdict>> {
        let pending = self.propose(py, &ops)?;
        Ok(pending.verdicts(py, None)?.unwrap_or_default())
    }

    /// Sends the operations as a batch and returns without waiting for the verdicts.
    fn send(slf: Bound<'_, Self>, ops: Vec<Op<'_>>) -> PyResult<Pending> {
        let pending = slf.get().propose(slf.py(), &ops)?;
        Ok(pending.sent_by(slf.into_any().unbind()))
    }

    /// Like `send`. Returns None if the call would wait for room in the queue for a server.
    #[pyo3(name = "_try_send")]
    fn try_send(&self, py: Python<'_>, ops: Vec<Op<'_>>) -> PyResult<Option<Pending>> {
        let name = self.name();
        let steps: Vec<_> = ops.iter().map(|op| (name, op.get())).collect();
        Ok(py.detach(|| -> Result<Option<Pending>> {
            let weir = self.weir()?;
            let borrowed = intention::borrow(&steps);
            let intentions = intention::intentions(&borrowed);
            // Every wait is cancelled, before anything is queued.
            let is_cancelled = Arc::new(|| true);
            let propose = || weir.propose(&intentions);
            match weir::interruptible(Duration::ZERO, is_cancelled, propose) {
                Ok(proposal) => Ok(Some(Pending::new(proposal))),
                Err(error) if error.code() == ErrorCode::Cancelled => Ok(None),
                Err(error) => Err(error.into()),
            }
        })?)
    }

    /// Executes all steps, in order, or none. Conditions apply to the whole; each names its key.
    #[pyo3(signature = (ops, *, expect=Vec::new()))]
    fn transaction(
        &self,
        py: Python<'_>,
        ops: Vec<Bound<'_, PyAny>>,
        expect: Vec<Bound<'_, Expect>>,
    ) -> PyResult<Verdict> {
        let whole = intention::Transaction::new(ops, expect)?;
        let borrowed = intention::Step::Transaction(&whole).borrow();
        let pending = wait::interruptible(py, || -> Result<Pending> {
            let intention = borrowed.intention(self.name());
            Ok(Pending::new(self.weir()?.propose_inline(&[intention])?))
        })?;
        Self::first(py, &pending)
    }

    /// The record with the current value of a key; None if there is none.
    fn get(&self, py: Python<'_>, key: Data) -> PyResult<Option<Record>> {
        let found =
            wait::interruptible(py, || self.open_handle()?.get(&key).map_err(Failure::from))?;
        Ok(found.map(Record::of_value))
    }

    /// The record at an offset; None if it does not exist.
    fn at(&self, py: Python<'_>, offset: u64) -> PyResult<Option<Record>> {
        let offset = weir::ConsequenceOffset(offset);
        let found =
            wait::interruptible(py, || self.open_handle()?.at(offset).map_err(Failure::from))?;
        Ok(found.map(Record::of_value))
    }

    /// Keys with a value, in byte order, each with the offset of its record: an iterator. Starts
    /// after the key `after`.
    #[pyo3(signature = (prefix=Data::Copy(Vec::new()), *, after=None, limit=None))]
    fn keys(&self, prefix: Data, after: Option<Data>, limit: Option<usize>) -> PyResult<Keys> {
        Ok(Keys {
            topic: self.handles.opened(self.open_handle()?.clone()),
            prefix: prefix.as_ref().to_vec(),
            state: Mutex::new(KeysState {
                ready: VecDeque::new(),
                after: after.map(|after| after.as_ref().to_vec()),
                remaining: limit.unwrap_or(usize::MAX),
                ended: false,
            }),
        })
    }

    /// Pages of records up to the newest record: an iterator.
    ///
    /// By default, reading starts with the first record. Otherwise, exactly one argument sets the
    /// start:
    /// - `position`, an offset (the first record), or a text in the syntax of the command `weir`:
    ///   `start`, `end`, an offset, `-N` (the last N records), an age such as `10m`, a date or a time
    /// - `after`: after this offset
    /// - `last`: with this number of last records
    /// - `time_ms`: with the first record at or after this time, in milliseconds since 1970
    /// - `end`: after the newest record
    #[pyo3(signature = (position=None, *, after=None, last=None, time_ms=None, end=false))]
    fn pages(
        &self,
        py: Python<'_>,
        position: Option<Position>,
        after: Option<u64>,
        last: Option<u64>,
        time_ms: Option<u64>,
        end: bool,
    ) -> PyResult<Reader> {
        let from = start(position, after, last, time_ms, end, ReadFrom::Start)?;
        let reader = wait::interruptible(py, || {
            self.open_handle()?.reader(from).map_err(Failure::from)
        })?;
        Ok(Reader::new(self.handles.opened(reader), Some(0.0)))
    }

    /// Records up to the newest record: an iterator. Its start position is as for `pages`.
    #[pyo3(signature = (position=None, *, after=None, last=None, time_ms=None))]
    fn records(
        &self,
        py: Python<'_>,
        position: Option<Position>,
        after: Option<u64>,
        last: Option<u64>,
        time_ms: Option<u64>,
    ) -> PyResult<Py<PyAny>> {
        let reader = self.pages(py, position, after, last, time_ms, false)?;
        Reader::records(Py::new(py, reader)?, py)
    }

    /// Existing and new records: an iterator that waits, like `follow_pages`.
    #[pyo3(signature = (position=None, *, after=None, last=None, time_ms=None, start=false, timeout=None))]
    fn follow(
        &self,
        py: Python<'_>,
        position: Option<Position>,
        after: Option<u64>,
        last: Option<u64>,
        time_ms: Option<u64>,
        start: bool,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let reader = self.follow_pages(py, position, after, last, time_ms, start, timeout)?;
        Reader::records(Py::new(py, reader)?, py)
    }

    /// Pages of new records: an iterator that waits. By default, it starts after the newest record.
    /// It ends if no record arrives for `timeout` seconds (None: no limit). The topic may be
    /// created later. Ctrl-C ends the wait.
    #[pyo3(signature = (position=None, *, after=None, last=None, time_ms=None, start=false, timeout=None))]
    fn follow_pages(
        &self,
        py: Python<'_>,
        position: Option<Position>,
        after: Option<u64>,
        last: Option<u64>,
        time_ms: Option<u64>,
        start: bool,
        timeout: Option<f64>,
    ) -> PyResult<Reader> {
        let default = if start {
            ReadFrom::Start
        } else {
            ReadFrom::End
        };
        let from = crate::reader::start(position, after, last, time_ms, false, default)?;
        timeout.map(|time| seconds("timeout", time)).transpose()?;
        let reader = wait::interruptible(py, || {
            self.open_handle()?.listener(from).map_err(Failure::from)
        })?;
        Ok(Reader::new(self.handles.opened(reader), timeout))
    }

    /// The current record of each key, in byte order and marked `replay`; then new records, in
    /// order, until none arrives for `timeout` seconds: an iterator of records.
    #[pyo3(signature = (*, timeout=Some(0.0)), text_signature = "($self, *, timeout=0.0)")]
    fn latest(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Latest> {
        timeout.map(|time| seconds("timeout", time)).transpose()?;
        let latest = wait::interruptible(py, || {
            self.open_handle()?
                .latest(crate::wait::SLICE)
                .map_err(Failure::from)
        })?;
        Ok(Latest::new(self.handles.opened(latest), timeout))
    }

    /// Joins a group as a member. Creates the group if it does not exist. The topic must exist.
    ///
    /// `mode` is "shared" (one member gets a record), "keyed" (one member at a time gets the
    /// records of a key, in order) or "exclusive" (one member reads). Options of a new group: the
    /// start position, as for `pages`, by default the first record; `lease` in seconds; `attempts`,
    /// the number of deliveries after which a record is moved to the topic `dead_letters` (0:
    /// never); `pending`, the limit of claimed records. `member` is the name of the member; a
    /// member that rejoins under its name is the same member. With `existing`, the call fails if
    /// the group does not exist.
    #[pyo3(signature = (name, mode="shared", *, position=None, after=None, last=None, time_ms=None, end=false, lease=None, attempts=0, pending=None, dead_letters="", member=None, existing=false))]
    fn group(
        &self,
        py: Python<'_>,
        name: &str,
        mode: &str,
        position: Option<Position>,
        after: Option<u64>,
        last: Option<u64>,
        time_ms: Option<u64>,
        end: bool,
        lease: Option<f64>,
        attempts: u32,
        pending: Option<u32>,
        dead_letters: &str,
        member: Option<Data>,
        existing: bool,
    ) -> PyResult<Group> {
        let mut setup = weir::GroupSetup::new(options::mode(mode)?);
        let from = start(position, after, last, time_ms, end, ReadFrom::Start)?;
        setup.attempts_max = attempts;
        setup.dead_letters = dead_letters;
        if let Some(lease) = lease {
            let ms = seconds("lease", lease)?.as_millis();
            setup.lease_ms = u64::try_from(ms).unwrap_or(u64::MAX);
        }
        if let Some(pending) = pending {
            setup.pending_max = pending;
        }
        let group = wait::interruptible(py, || -> Result<weir::Group> {
            if existing && self.open_handle()?.group_info(name)?.is_none() {
                let text = format!("topic {} has no group {name}", self.name());
                return Err(Failure::new(ErrorCode::GroupUnknown, text));
            }
            let topic = self.open_handle()?;
            setup.start = topic.offset_before(from)?.0;
            Ok(topic.group_with(name, &setup)?)
        })?;
        let group = match &member {
            Some(member) => group.member(member),
            None => group,
        };
        let exclusive = setup.mode == weir::GroupMode::Exclusive;
        Ok(Group::new(name, self.handles.opened(group), exclusive))
    }

    /// The groups of the topic, by name.
    fn groups(&self, py: Python<'_>) -> PyResult<Vec<GroupInfo>> {
        let groups =
            wait::interruptible(py, || self.open_handle()?.groups().map_err(Failure::from))?;
        Ok(groups.into_iter().map(GroupInfo::from).collect())
    }

    fn __repr__(&self) -> String {
        format!("<weir.Topic {}>", self.name())
    }
}

/// Keys of a topic, in order: an iterator of key and offset.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Keys {
    topic: StoreHandle<weir::Topic>,
    prefix: Vec<u8>,
    state: Mutex<KeysState>,
}

struct KeysState {
    ready: VecDeque<weir::KeyEntry>,
    after: Option<Vec<u8>>,
    remaining: usize,
    ended: bool,
}

#[pymethods]
impl Keys {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyBytes>, u64)>> {
        let found = wait::interruptible(py, || -> Result<Option<weir::KeyEntry>> {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.ready.is_empty() && !state.ended && state.remaining > 0 {
                let limit = state.remaining.min(SCAN_KEYS);
                let found = self
                    .topic
                    .get()?
                    .scan(&self.prefix, state.after.as_deref(), limit)?;
                state.ended = found.len() < limit;
                state.remaining -= found.len();
                state.after = found.last().map(|entry| entry.key.to_vec());
                state.ready = found.into();
            }
            Ok(state.ready.pop_front())
        })?;
        Ok(found.map(|entry| (PyBytes::new(py, &entry.key), entry.offset.0)))
    }
}

/// The state of a topic at the time of the call.
#[pyclass(module = "weir", frozen, get_all)]
pub(crate) struct TopicInfo {
    /// The name of the topic.
    name: String,
    /// Whether the topic exists.
    live: bool,
    /// Offset of the intention that created the topic, if the topic exists.
    incarnation: Option<u64>,
    /// Offset of the oldest retained record; 0 if there is none.
    first: u64,
    /// Offset of the newest record.
    last: u64,
    /// Number of keys with a value.
    keys: u64,
    /// Size of the stored records in bytes.
    bytes: u64,
}

impl From<weir::TopicInfo> for TopicInfo {
    fn from(info: weir::TopicInfo) -> Self {
        Self {
            name: info.name,
            live: info.live,
            incarnation: info.incarnation.map(|offset| offset.0),
            first: info.first.0,
            last: info.last.0,
            keys: info.keys,
            bytes: info.bytes,
        }
    }
}

#[pymethods]
impl TopicInfo {
    fn __repr__(&self) -> String {
        let suffix = if self.live { "" } else { ", destroyed" };
        format!(
            "<weir.TopicInfo {}: {} to {}{suffix}>",
            self.name, self.first, self.last
        )
    }
}

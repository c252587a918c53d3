//! Topics: writing, reading by key, and the ways to read in order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use weir::{CodeHash, Intention, Operation, ReadFrom, Weir};

use crate::data::{Content, Data};
use crate::error::{Answer, Failure};
use crate::group::{Group, GroupInfo};
use crate::intention::{self, Expect, Op};
use crate::options;
use crate::pending::Pending;
use crate::reader::{Latest, Reader, start};
use crate::record::Record;
use crate::verdict::Verdict;
use crate::wait::{self, seconds};

/// Keys asked for at a time by a scan.
const SCAN_KEYS: usize = 1000;

/// A handle on a topic. Writing waits for the verdict; `send` does not.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Topic {
    weir: Weir,
    handle: weir::Topic,
    /// Whether the store was closed here.
    closed: Arc<AtomicBool>,
}

impl Topic {
    pub(crate) fn new(weir: Weir, handle: weir::Topic, closed: Arc<AtomicBool>) -> Self {
        Self {
            weir,
            handle,
            closed,
        }
    }

    /// The topic, unless the store was closed.
    fn live(&self) -> Answer<&weir::Topic> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Failure::closed());
        }
        Ok(&self.handle)
    }

    fn name(&self) -> &str {
        self.handle.name().as_str()
    }

    /// One intention, to its verdict.
    fn one(
        &self,
        py: Python<'_>,
        operation: Operation<'_>,
        expect: &[weir::Expect<'_>],
        meta: &[u8],
    ) -> PyResult<Verdict> {
        let intention = Intention::new(self.name(), operation).expecting(expect);
        let intention = Intention { meta, ..intention };
        let pending = wait::heard(py, || -> Answer<Pending> {
            Ok(Pending::new(self.weir.propose(&[intention])?))
        })?;
        Self::first(py, &pending)
    }

    fn first(py: Python<'_>, pending: &Pending) -> PyResult<Verdict> {
        let verdicts = pending.verdicts(py, None)?;
        let verdict = verdicts.and_then(|verdicts| verdicts.into_iter().next());
        verdict.ok_or_else(|| Failure::closed().into())
    }
}

#[pymethods]
impl Topic {
    /// The name.
    #[getter(name)]
    fn name_of(&self) -> &str {
        self.name()
    }

    /// Makes the topic live; INVALID with TOPIC_EXISTS when it does already.
    ///
    /// Options: compaction ("off", "latest"), tombstone_ttl_ms, compaction_lag_ms, key_bytes_max,
    /// value_bytes_max, keys_max, retention_age_ms, retention_bytes, retention_records,
    /// hold_for_groups. With `program`, the bytes of a WebAssembly module, each write is judged by
    /// it; then also fuel_max, memory_bytes_max, emits_max, emit_bytes_max, state_entries_max,
    /// state_bytes_max.
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
        self.one(py, operation, &[], b"")
    }

    /// Creates the topic if it does not exist. Returns whether this call created it.
    fn ensure(&self, py: Python<'_>) -> PyResult<bool> {
        wait::heard(py, || self.live()?.ensure().map_err(Failure::from))
    }

    /// Replaces the options; see `create`.
    #[pyo3(signature = (**options))]
    fn alter(&self, py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Verdict> {
        let options = &options::topic(options)?;
        self.one(py, Operation::Alter { options }, &[], b"")
    }

    /// Puts another program in the place of the topic's; with `expected`, the SHA-256 of the code,
    /// only in the place of that one.
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
        self.one(
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

    /// Ends the topic: its keys are gone, its offsets go on if it is created again.
    fn destroy(&self, py: Python<'_>) -> PyResult<Verdict> {
        self.one(py, Operation::Destroy, &[], b"")
    }

    /// What the topic is now; None when it never was created.
    fn info(&self, py: Python<'_>) -> PyResult<Option<TopicInfo>> {
        let info = wait::heard(py, || self.live()?.try_info().map_err(Failure::from))?;
        Ok(info.map(TopicInfo::from))
    }

    /// Appends a record without key.
    #[pyo3(signature = (value, *, meta=Data::Copy(Vec::new())))]
    fn append(&self, py: Python<'_>, value: Content, meta: Data) -> PyResult<Verdict> {
        let operation = Operation::Put {
            key: b"",
            value: value.as_ref(),
        };
        self.one(py, operation, &[], meta.as_ref())
    }

    /// Appends a record and sets its key. Ctrl-C ends the wait, not the write.
    #[pyo3(signature = (key, value, *, meta=Data::Copy(Vec::new())))]
    fn put(&self, py: Python<'_>, key: Data, value: Content, meta: Data) -> PyResult<Verdict> {
        let operation = Operation::Put {
            key: key.as_ref(),
            value: value.as_ref(),
        };
        self.one(py, operation, &[], meta.as_ref())
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
        self.one(
            py,
            operation,
            &intention::borrowed(&conditions),
            meta.as_ref(),
        )
    }

    /// Removes a key. VALID even if it has no value.
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
        self.one(
            py,
            operation,
            &intention::borrowed(&conditions),
            meta.as_ref(),
        )
    }

    /// Many intentions in one call: one verdict for each, in order. They are independent of each
    /// other; see `transaction`.
    fn batch(&self, py: Python<'_>, ops: Vec<Op<'_>>) -> PyResult<Vec<Verdict>> {
        let pending = self.send(py, ops)?;
        Ok(pending.verdicts(py, None)?.unwrap_or_default())
    }

    /// Sends the operations as a batch and returns without waiting for the verdicts.
    fn send(&self, py: Python<'_>, ops: Vec<Op<'_>>) -> PyResult<Pending> {
        let name = self.name();
        let steps: Vec<_> = ops.iter().map(|op| (name, op.get())).collect();
        wait::heard(py, || -> Answer<Pending> {
            let lent = intention::lend(&steps);
            let intentions = intention::intentions(&lent);
            Ok(Pending::new(self.weir.propose(&intentions)?))
        })
    }

    /// All steps or none, in order. Conditions are given for the whole, with keys of their own.
    #[pyo3(signature = (ops, *, expect=Vec::new()))]
    fn transaction(
        &self,
        py: Python<'_>,
        ops: Vec<Bound<'_, PyAny>>,
        expect: Vec<Bound<'_, Expect>>,
    ) -> PyResult<Verdict> {
        let whole = intention::Transaction::new(ops, expect)?;
        let lent = intention::Step::Transaction(&whole).lend();
        let pending = wait::heard(py, || -> Answer<Pending> {
            Ok(Pending::new(
                self.weir.propose(&[lent.intention(self.name())])?,
            ))
        })?;
        Self::first(py, &pending)
    }

    /// The record with the key's current value; None without one.
    fn get(&self, py: Python<'_>, key: Data) -> PyResult<Option<Record>> {
        let found = wait::heard(py, || self.live()?.get(&key).map_err(Failure::from))?;
        Ok(found.map(Record::of_value))
    }

    /// The record at an offset, if it is there.
    fn at(&self, py: Python<'_>, offset: u64) -> PyResult<Option<Record>> {
        let offset = weir::ConsequenceOffset(offset);
        let found = wait::heard(py, || self.live()?.at(offset).map_err(Failure::from))?;
        Ok(found.map(Record::of_value))
    }

    /// Keys with a value, in byte order, each with the offset of its record: an iterator. `after`
    /// is left out.
    #[pyo3(signature = (prefix=Data::Copy(Vec::new()), *, after=None, limit=None))]
    fn keys(&self, prefix: Data, after: Option<Data>, limit: Option<usize>) -> PyResult<Keys> {
        Ok(Keys {
            topic: self.live()?.clone(),
            prefix: prefix.as_ref().to_vec(),
            state: Mutex::new(KeysState {
                ready: VecDeque::new(),
                after: after.map(|after| after.as_ref().to_vec()),
                left: limit.unwrap_or(usize::MAX),
                over: false,
            }),
        })
    }

    /// Pages of records up to the newest: an iterator.
    ///
    /// Reading begins at the first record; or at `position`, a text as the command `weir` takes it:
    /// `start`, `end`, an offset (the first record), `-N` (the last N records), a time ago such as
    /// `10m`, a date or a time; or after the offset `after`, at the `last` n records, at `time_ms`
    /// (milliseconds since 1970), or after the newest with `end`.
    #[pyo3(signature = (position=None, *, after=None, last=None, time_ms=None, end=false))]
    fn pages(
        &self,
        py: Python<'_>,
        position: Option<&str>,
        after: Option<u64>,
        last: Option<u64>,
        time_ms: Option<u64>,
        end: bool,
    ) -> PyResult<Reader> {
        let from = start(position, after, last, time_ms, end, ReadFrom::Start)?;
        let reader = wait::heard(py, || self.live()?.reader(from).map_err(Failure::from))?;
        Ok(Reader::new(reader, Some(0.0), Arc::clone(&self.closed)))
    }

    /// Records up to the newest: an iterator. Where it begins is told as for `pages`.
    #[pyo3(signature = (position=None, *, after=None, last=None, time_ms=None))]
    fn records(
        &self,
        py: Python<'_>,
        position: Option<&str>,
        after: Option<u64>,
        last: Option<u64>,
        time_ms: Option<u64>,
    ) -> PyResult<Py<PyAny>> {
        let reader = self.pages(py, position, after, last, time_ms, false)?;
        Reader::records(Py::new(py, reader)?, py)
    }

    /// Records as they come: an iterator that waits, as `listen` does.
    #[pyo3(signature = (position=None, *, after=None, last=None, time_ms=None, start=false, timeout=None))]
    fn tail(
        &self,
        py: Python<'_>,
        position: Option<&str>,
        after: Option<u64>,
        last: Option<u64>,
        time_ms: Option<u64>,
        start: bool,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let reader = self.listen(py, position, after, last, time_ms, start, timeout)?;
        Reader::records(Py::new(py, reader)?, py)
    }

    /// Pages of records as they come: an iterator that waits. It begins after the newest record
    /// unless told otherwise, and ends when none came for `timeout` seconds; None: never. The topic
    /// need not be there yet. Ctrl-C ends the wait.
    #[pyo3(signature = (position=None, *, after=None, last=None, time_ms=None, start=false, timeout=None))]
    fn listen(
        &self,
        py: Python<'_>,
        position: Option<&str>,
        after: Option<u64>,
        last: Option<u64>,
        time_ms: Option<u64>,
        start: bool,
        timeout: Option<f64>,
    ) -> PyResult<Reader> {
        let usual = if start {
            ReadFrom::Start
        } else {
            ReadFrom::End
        };
        let from = crate::reader::start(position, after, last, time_ms, false, usual)?;
        timeout.map(|time| seconds("timeout", time)).transpose()?;
        let reader = wait::heard(py, || self.live()?.listener(from).map_err(Failure::from))?;
        Ok(Reader::new(reader, timeout, Arc::clone(&self.closed)))
    }

    /// The current value of each key, in byte order and marked `replay`; then new records, in
    /// order, until none came for `timeout` seconds: an iterator of records.
    #[pyo3(signature = (*, timeout=Some(0.0)))]
    fn latest(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Latest> {
        timeout.map(|time| seconds("timeout", time)).transpose()?;
        let latest = wait::heard(py, || {
            self.live()?
                .latest(crate::wait::SLICE)
                .map_err(Failure::from)
        })?;
        Ok(Latest::new(latest, timeout))
    }

    /// A member of the group of this name, which is made if it is not there. The topic must live.
    ///
    /// `mode` is "shared" (each record to one member), "keyed" (each key with one member at a time,
    /// in order) or "exclusive" (one member reads). For a new group: the position at which it starts,
    /// as for `pages`, by default the first record; `lease` in seconds; `attempts`, after which a record
    /// goes to the topic `dead_letters` (0: never); `pending`, records that may be with members. `member`
    /// is a name that comes back as the same member. With `existing` the group is not made.
    #[pyo3(signature = (name, mode="shared", *, position=None, after=None, last=None, time_ms=None, end=false, lease=None, attempts=0, pending=None, dead_letters="", member=None, existing=false))]
    fn group(
        &self,
        py: Python<'_>,
        name: &str,
        mode: &str,
        position: Option<&str>,
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
        let group = wait::heard(py, || -> Answer<weir::Group> {
            if existing && self.live()?.group_info(name)?.is_none() {
                let text = format!("topic {} has no group {name}", self.name());
                return Err(Failure::new(weir::ErrorCode::GroupUnknown, text));
            }
            let topic = self.live()?;
            setup.start = topic.offset_before(from)?.0;
            Ok(topic.group_with(name, &setup)?)
        })?;
        let group = match &member {
            Some(member) => group.member(member),
            None => group,
        };
        let exclusive = setup.mode == weir::GroupMode::Exclusive;
        Ok(Group::new(name, group, exclusive))
    }

    /// The groups of the topic, by name.
    fn groups(&self, py: Python<'_>) -> PyResult<Vec<GroupInfo>> {
        let groups = wait::heard(py, || self.live()?.groups().map_err(Failure::from))?;
        Ok(groups.into_iter().map(GroupInfo::from).collect())
    }

    fn __repr__(&self) -> String {
        format!("<weir.Topic {}>", self.name())
    }
}

/// Keys of a topic, in order: an iterator of key and offset.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Keys {
    topic: weir::Topic,
    prefix: Vec<u8>,
    state: Mutex<KeysState>,
}

struct KeysState {
    ready: VecDeque<weir::KeyEntry>,
    after: Option<Vec<u8>>,
    left: usize,
    over: bool,
}

#[pymethods]
impl Keys {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyBytes>, u64)>> {
        let found = wait::heard(py, || -> Answer<Option<weir::KeyEntry>> {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.ready.is_empty() && !state.over && state.left > 0 {
                let limit = state.left.min(SCAN_KEYS);
                let found = self
                    .topic
                    .scan(&self.prefix, state.after.as_deref(), limit)?;
                state.over = found.len() < limit;
                state.left -= found.len();
                state.after = found.last().map(|entry| entry.key.to_vec());
                state.ready = found.into();
            }
            Ok(state.ready.pop_front())
        })?;
        Ok(found.map(|entry| (PyBytes::new(py, &entry.key), entry.offset.0)))
    }
}

/// A topic as it was when it was asked for.
#[pyclass(module = "weir", frozen, get_all)]
pub(crate) struct TopicInfo {
    /// Name.
    name: String,
    /// Whether it lives.
    live: bool,
    /// Intention offset of its CREATE, when it lives.
    incarnation: Option<u64>,
    /// Offset of the oldest record that is still there; 0 for none.
    first: u64,
    /// Offset of the newest record.
    last: u64,
    /// Keys with a value.
    keys: u64,
    /// Bytes of its records, as stored.
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
        let life = if self.live { "" } else { ", dead" };
        format!(
            "<weir.TopicInfo {}: {} to {}{life}>",
            self.name, self.first, self.last
        )
    }
}

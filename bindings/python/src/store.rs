//! Stores, in this process and at a server.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use weir::{ClientId, ConnectOptions, OpenOptions, Weir};

use crate::error::{Failure, Result};
use crate::intention::{self, Op};
use crate::options;
use crate::pending::Pending;
use crate::reader::{Position, start};
use crate::session::Session;
use crate::store_handle::StoreHandle;
use crate::topic::{Topic, TopicInfo};
use crate::topic_query::{self, TopicQuery};
use crate::verdict::Verdict;
use crate::wait::{self, seconds};

/// An event store, in a directory that this process has open or at a server. Threads may share it.
/// A context manager that closes the store.
#[pyclass(module = "weir", frozen)]
pub(crate) struct Store {
    weir: Mutex<Option<StoreHandle<Weir>>>,
    /// Whether the store was closed here; all its handles check it.
    closed: Arc<AtomicBool>,
    /// The handle whose `with_consistency` returned this one. It keeps the store open after this
    /// handle is closed.
    parent: Option<Py<Store>>,
}

impl Store {
    fn new(weir: Weir) -> Self {
        let closed = Arc::default();
        Self {
            weir: Mutex::new(Some(StoreHandle::new(weir, &closed))),
            closed,
            parent: None,
        }
    }

    /// The store, or an error if it was closed here.
    pub(crate) fn weir(&self) -> Result<Weir> {
        let weir = self.weir.lock().unwrap_or_else(PoisonError::into_inner);
        let weir = weir.as_ref().ok_or_else(Failure::closed)?;
        weir.get().cloned()
    }

    /// Proposes intentions of any topics.
    fn propose(&self, py: Python<'_>, ops: &[(String, Op<'_>)]) -> PyResult<Pending> {
        let weir = self.weir()?;
        let steps: Vec<_> = ops.iter().map(|(topic, op)| (&**topic, op.get())).collect();
        wait::interruptible(py, || -> Result<Pending> {
            let borrowed = intention::borrow(&steps);
            let intentions = intention::intentions(&borrowed);
            Ok(Pending::new(weir.propose(&intentions)?))
        })
    }
}

/// Opens the store in a directory, or creates one.
///
/// `durability` is when a write is acknowledged: "group" (after a sync that several writes share),
/// "each" (after a sync of its own), "interval" (after the write; there is a sync every
/// `interval_ms`), "memory" (after the write). Without `create`, a directory without a store is an
/// error. `key_bytes_max` and `value_bytes_max` limit keys (default 1 KiB) and values (default 1
/// MiB) in bytes. With `or_connect`, connects to the server that has the directory open, if there
/// is one, through its socket.
///
/// Raises StoreError: LOCKED if another process has the store open, DAMAGED, FORMAT_NEWER, and
/// others.
#[pyfunction]
#[pyo3(signature = (path, *, durability="group", interval_ms=1000, create=true, program=None, snapshot_log_bytes=None, log_segment_bytes=None, key_bytes_max=None, value_bytes_max=None, or_connect=false))]
pub(crate) fn open(
    py: Python<'_>,
    path: PathBuf,
    durability: &str,
    interval_ms: u64,
    create: bool,
    program: Option<String>,
    snapshot_log_bytes: Option<u64>,
    log_segment_bytes: Option<u64>,
    key_bytes_max: Option<usize>,
    value_bytes_max: Option<usize>,
    or_connect: bool,
) -> PyResult<Store> {
    let mut options = OpenOptions {
        durability: options::durability(durability, interval_ms)?,
        create,
        ..OpenOptions::default()
    };
    if let Some(program) = program {
        options.program = program;
    }
    if let Some(bytes) = snapshot_log_bytes {
        options.snapshot_log_bytes = bytes;
    }
    if let Some(bytes) = log_segment_bytes {
        options.log_segment_bytes = bytes;
    }
    if let Some(bytes) = key_bytes_max {
        options.limits.key_bytes_max = bytes;
    }
    if let Some(bytes) = value_bytes_max {
        options.limits.value_bytes_max = bytes;
    }
    let opened = wait::interruptible(py, || {
        let opened = if or_connect {
            Weir::open_or_connect(path, &options, &ConnectOptions::default())
        } else {
            Weir::open_with(path, &options)
        };
        opened.map_err(Failure::from)
    })?;
    Ok(Store::new(opened))
}

/// Connects to a server: "weir://HOST[:PORT]", "weirs://HOST[:PORT]" (TLS) or "unix:PATH".
///
/// `token` authenticates the client. `authority` is a PEM file with the authority of the server's
/// certificate. `identity` is two PEM files: the client certificate and its key. Times are in
/// seconds: `connect_timeout` limits the first connection; `patience` limits the wait for an
/// answer, and the time without any connection. With `received`, the server reports when a write is
/// queued for its log (`Pending.wait_received`), which costs one more packet for each write.
///
/// Raises ClientError: BAD_ADDRESS, UNREACHABLE; or the error that the server returned.
#[pyfunction]
#[pyo3(signature = (url, *, token=None, authority=None, identity=None, agent=None, connect_timeout=5.0, patience=30.0, received=false))]
pub(crate) fn connect(
    py: Python<'_>,
    url: &str,
    token: Option<String>,
    authority: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    agent: Option<String>,
    connect_timeout: f64,
    patience: f64,
    received: bool,
) -> PyResult<Store> {
    let mut options = ConnectOptions::default();
    options.token = token;
    options.received = received;
    options.authority = authority;
    options.identity = identity;
    options.agent =
        agent.unwrap_or_else(|| concat!("weir-python/", env!("CARGO_PKG_VERSION")).into());
    options.connect_timeout = seconds("connect_timeout", connect_timeout)?;
    options.patience = seconds("patience", patience)?.max(Duration::from_millis(1));
    let connected = wait::interruptible(py, || {
        Weir::connect_with(url, &options).map_err(Failure::from)
    })?;
    Ok(Store::new(connected))
}

#[pymethods]
impl Store {
    /// A handle of a topic, which need not exist. Costs nothing.
    ///
    /// Raises RefusalError BAD_NAME if the text is not a name.
    fn topic(&self, name: &str) -> PyResult<Topic> {
        let weir = self.weir()?;
        let topic = weir.topic(name).map_err(Failure::from)?;
        Ok(Topic::new(
            StoreHandle::new((weir, topic), &self.closed),
            name,
        ))
    }

    /// A second handle of the store whose reads at a cluster have this consistency.
    ///
    /// "local" reads see the writes that the node has applied. "leader" reads see the writes that
    /// the leader has applied, while its lease is valid. "linear" reads see all writes that were
    /// acknowledged anywhere before. The consistency also applies to readers, groups and queries of
    /// the handle. Without it, reads of keys are linear and all other reads are local. For a
    /// directory or a single server, all values are equivalent. Closing the handle leaves the store
    /// open.
    ///
    /// Raises StoreError BAD_OPTION for any other word.
    fn with_consistency(slf: Py<Self>, consistency: &str) -> PyResult<Self> {
        let consistency = options::consistency(consistency)?;
        let store = slf.get();
        let weir = store.weir()?.with_consistency(consistency);
        Ok(Self {
            weir: Mutex::new(Some(StoreHandle::new(weir, &store.closed))),
            closed: Arc::clone(&store.closed),
            parent: Some(slf),
        })
    }

    /// All existing topics, or with `destroyed` also the destroyed ones, by name.
    #[pyo3(signature = (*, destroyed=false))]
    fn topics(&self, py: Python<'_>, destroyed: bool) -> PyResult<Vec<TopicInfo>> {
        let weir = self.weir()?;
        let found = wait::interruptible(py, || weir.topics(destroyed).map_err(Failure::from))?;
        Ok(found.into_iter().map(TopicInfo::from).collect())
    }

    /// Executes several intentions independently, in one call. Each is a topic and a `Put` or
    /// `Delete`. Returns one verdict for each, in order.
    fn batch(&self, py: Python<'_>, intentions: Vec<(String, Op<'_>)>) -> PyResult<Vec<Verdict>> {
        let pending = self.propose(py, &intentions)?;
        Ok(pending.verdicts(py, None)?.unwrap_or_default())
    }

    /// Sends the intentions as a batch and returns without waiting for the verdicts.
    fn send(slf: Bound<'_, Self>, intentions: Vec<(String, Op<'_>)>) -> PyResult<Pending> {
        let pending = slf.get().propose(slf.py(), &intentions)?;
        Ok(pending.sent_by(slf.into_any().unbind()))
    }

    /// A writer whose intentions are executed exactly once. `client` is 16 bytes that nobody else
    /// uses; the caller must store them for its next session.
    fn session(&self, py: Python<'_>, client: &[u8]) -> PyResult<Session> {
        let id = <[u8; 16]>::try_from(client).ok().map(ClientId);
        let Some(id) = id.filter(|id| !id.is_none()) else {
            let text = "client is 16 bytes, not all of them zero";
            return Err(Failure::new(weir::ErrorCode::BadOption, text).into());
        };
        let weir = self.weir()?;
        let session = py.detach(|| weir.session(id));
        Ok(Session::new(StoreHandle::new(session, &self.closed)))
    }

    /// Starts a query over topics: names, or patterns like "orders.*" (one more part of a name) and
    /// "orders.**" (any number of parts). An iterator of pages.
    ///
    /// The fields are those of `Query`; properties of records are `meta.topic`, `meta.offset`,
    /// `meta.intention`, `meta.time_ms`, `meta.key`, `meta.type`, `meta.client_id`. `view` is "log"
    /// (all records) or "latest" (the current record of each key). `position` is the first record of
    /// each topic, as for `Topic.pages`; not with "latest". The query ends after the records
    /// that exist at its start, or after the intention `as_of`, or never with `follow`. `kinds` are
    /// the kinds of records that are items. `token` resumes the query that returned it; with
    /// `reset_earliest` also if retention has removed the next record. At a server, `push_down`
    /// lets the server execute its part of the query.
    #[pyo3(signature = (*topics, position=None, view="log", as_of=None, follow=false, kinds=None, reset_earliest=false, push_down=true, patience=30.0, budgets=None, token=None, **fields))]
    fn query(
        &self,
        py: Python<'_>,
        topics: Vec<String>,
        position: Option<Position>,
        view: &str,
        as_of: Option<u64>,
        follow: bool,
        kinds: Option<Vec<String>>,
        reset_earliest: bool,
        push_down: bool,
        patience: f64,
        budgets: Option<&Bound<'_, PyDict>>,
        token: Option<crate::data::Data>,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<TopicQuery> {
        let mut options = weir::TopicQueryOptions::new(topics);
        options.text = crate::query::text(fields)?;
        options.budgets = crate::query::budgets(options.budgets, budgets)?;
        options.from = start(position, None, None, None, false, options.from)?;
        options.view = topic_query::view(view)?;
        options.end = topic_query::end(as_of, follow)?;
        if let Some(kinds) = kinds {
            options.kinds = topic_query::kinds(&kinds)?;
        }
        options.reset_earliest = reset_earliest;
        options.push_down = push_down;
        options.patience = seconds("patience", patience)?;
        options.token = token.map(|token| token.as_ref().to_vec());
        let weir = self.weir()?;
        let query = wait::interruptible(py, || weir.query(options).map_err(Failure::from))?;
        Ok(TopicQuery::new(query, &self.closed))
    }

    /// Makes every acknowledged write durable, at any level.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let weir = self.weir()?;
        wait::interruptible(py, || weir.sync().map_err(Failure::from))
    }

    /// The durability of an acknowledged write.
    #[getter]
    fn durability(&self, py: Python<'_>) -> PyResult<&'static str> {
        let weir = self.weir()?;
        Ok(wait::interruptible(py, || weir.durability().map_err(Failure::from))?.name())
    }

    /// The id of the store, 32 hexadecimal digits.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<String> {
        let weir = self.weir()?;
        let id = wait::interruptible(py, || weir.store_id().map_err(Failure::from))?;
        // A client id has the same text form.
        Ok(ClientId(id).to_string())
    }

    /// Counters since the store was opened, by name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let weir = self.weir()?;
        let stats = wait::interruptible(py, || weir.stats().map_err(Failure::from))?;
        let dict = PyDict::new(py);
        for (name, value) in [
            ("batches", stats.batches),
            ("intentions", stats.intentions),
            ("syncs", stats.syncs),
            ("sync_ns", stats.sync_ns),
            ("valid", stats.valid),
            ("invalid", stats.invalid),
            ("errors", stats.errors),
            ("replayed", stats.replayed),
            ("refused", stats.refused),
            ("snapshots", stats.snapshots),
            ("applied_index", stats.applied_index),
            ("durable_index", stats.durable_index),
        ] {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }

    /// Completes queued writes and closes the store. A connection is closed after all requests are
    /// answered. Pages and records stay valid. A second call is a no-op, and so is a call in a forked
    /// process.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let handle = self
            .weir
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(handle) = handle else { return Ok(()) };
        if self.parent.is_some() || handle.is_inherited() {
            return Ok(());
        }
        let weir = handle.get()?.clone();
        self.closed.store(true, Ordering::Release);
        wait::interruptible(py, || weir.close().map_err(Failure::from))
    }

    /// Whether the store was closed here.
    #[getter]
    fn closed(&self) -> bool {
        self.weir().is_err()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> &'static str {
        match self.weir() {
            Ok(weir) if weir.local().is_some() => "<weir.Store>",
            Ok(_) => "<weir.Store behind a server>",
            Err(_) => "<weir.Store, closed>",
        }
    }
}

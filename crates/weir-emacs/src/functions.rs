//! The functions of the module. Each name gets the prefix `weir--`.
#![allow(unsafe_code, reason = "the macro registers functions by initialisers")]
#![allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "the macro converts arguments into owned values and wants a Result"
)]

use std::sync::{Mutex, PoisonError};

use emacs::{Env, IntoLisp, Result, Value, defun};
use weir::{ConsequenceOffset, ReadFrom, Topic, Verdict, Weir};

use crate::failure::Failure;
use crate::work::{self, Done, Row};

/// Results of one call of `weir--drain`.
const DRAIN_MAX: usize = 64;

/// A store as Lisp holds it: `None` after it was closed.
struct Handle(Mutex<Option<Weir>>);

impl Handle {
    fn new(weir: Weir) -> Self {
        work::count_store(true);
        Self(Mutex::new(Some(weir)))
    }

    fn take(&self) -> Option<Weir> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if taken.is_some() {
            work::count_store(false);
        }
        taken
    }

    fn with<T>(
        &self,
        call: impl FnOnce(&Weir) -> std::result::Result<T, Failure>,
    ) -> std::result::Result<T, Failure> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        call(held.as_ref().ok_or_else(Failure::closed)?)
    }

    fn topic(&self, name: &str) -> std::result::Result<Topic, Failure> {
        self.with(|weir| Ok(weir.topic(name)?))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The finalizer must not wait: closing may sync.
        if let Some(weir) = self.take() {
            let _ = std::thread::Builder::new().spawn(move || drop(weir));
        }
    }
}

/// Signals a failure, or returns what there is.
fn lisp<T>(env: &Env, result: std::result::Result<T, Failure>) -> Result<T> {
    match result {
        Ok(value) => Ok(value),
        Err(failure) => {
            let (symbol, code) = (env.intern(failure.symbol)?, env.intern(":code")?);
            env.signal(symbol, (failure.text, code, failure.code))
        }
    }
}

/// `(MESSAGE :code CODE)`.
fn failure_data<'e>(env: &'e Env, failure: &Failure) -> Result<Value<'e>> {
    let code = env.intern(":code")?;
    env.list((failure.text.as_str(), code, failure.code.as_str()))
}

/// Text where the bytes are text, else the bytes.
fn string<'e>(env: &'e Env, bytes: &[u8]) -> Result<Value<'e>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into_lisp(env),
        Err(_) => bytes.into_lisp(env),
    }
}

fn list<'e>(env: &'e Env, items: Vec<Value<'e>>) -> Result<Value<'e>> {
    let mut list = ().into_lisp(env)?;
    for item in items.into_iter().rev() {
        list = env.cons(item, list)?;
    }
    Ok(list)
}

/// `[OFFSET TIME-MS KIND KEY VALUE]`.
fn row<'e>(env: &'e Env, row: &Row) -> Result<Value<'e>> {
    let kind = env.intern(row.kind)?;
    let (key, value) = (string(env, &row.key)?, string(env, &row.value)?);
    env.call("vector", (row.offset, row.time_ms, kind, key, value))
}

fn rows<'e>(env: &'e Env, all: &[Row]) -> Result<Value<'e>> {
    let items: Result<Vec<_>> = all.iter().map(|one| row(env, one)).collect();
    list(env, items?)
}

/// Returns the version of the module.
#[defun(name = "-module-version")]
fn module_version() -> Result<&'static str> {
    Ok(env!("CARGO_PKG_VERSION"))
}

/// Rings at PIPE, a pipe process, when results are there.
#[defun(name = "-start")]
fn start(pipe: Value<'_>) -> Result<()> {
    let bell = pipe.env.open_channel(pipe)?;
    work::ring_at(Box::new(bell));
    Ok(())
}

/// Opens the store in DIRECTORY in this process.
#[defun(user_ptr, name = "-open")]
fn open(env: &Env, directory: String) -> Result<Handle> {
    lisp(env, Weir::open(directory).map_err(Failure::from)).map(Handle::new)
}

/// Connects to the server at URL.
#[defun(user_ptr, name = "-connect")]
fn connect(env: &Env, url: String) -> Result<Handle> {
    let connected =
        Weir::connect(&url).map_err(|error| Failure::new("weir-network", error.to_string()));
    lisp(env, connected).map(Handle::new)
}

/// Closes STORE. Returns t if it was open.
#[defun(name = "-close")]
fn close(env: &Env, store: &Handle) -> Result<bool> {
    match store.take() {
        Some(weir) => lisp(env, weir.close().map_err(Failure::from)).map(|()| true),
        None => Ok(false),
    }
}

/// Returns the live topics of STORE as vectors [NAME FIRST LAST KEYS BYTES].
#[defun(name = "-topics")]
fn topics<'e>(env: &'e Env, store: &Handle) -> Result<Value<'e>> {
    let topics = lisp(env, store.with(|weir| Ok(weir.topics(false)?)))?;
    let mut items = Vec::new();
    for topic in &topics {
        let parts = (
            topic.name.as_str(),
            topic.first.0,
            topic.last.0,
            topic.keys,
            topic.bytes,
        );
        items.push(env.call("vector", parts)?);
    }
    list(env, items)
}

/// Returns the value of KEY in TOPIC of STORE, or nil.
#[defun(name = "-get")]
fn get<'e>(env: &'e Env, store: &Handle, topic: String, key: String) -> Result<Value<'e>> {
    let found = store.topic(&topic).and_then(|topic| Ok(topic.get(&key)?));
    match lisp(env, found)? {
        Some(value) => string(env, value.value()),
        None => ().into_lisp(env),
    }
}

/// Returns up to LIMIT pairs (KEY . VALUE) of TOPIC whose keys begin with PREFIX.
#[defun(name = "-scan")]
fn scan<'e>(
    env: &'e Env,
    store: &Handle,
    topic: String,
    prefix: String,
    limit: usize,
) -> Result<Value<'e>> {
    let topic = lisp(env, store.topic(&topic))?;
    let entries = topic.scan(prefix.as_bytes(), None, limit.min(weir::SCAN_KEYS_MAX));
    let mut items = Vec::new();
    for entry in lisp(env, entries.map_err(Failure::from))? {
        let value = lisp(env, topic.value(&entry).map_err(Failure::from))?;
        if let Some(value) = value {
            items.push(env.cons(string(env, &entry.key)?, string(env, value.value())?)?);
        }
    }
    list(env, items)
}

/// Returns up to LIMIT records of TOPIC after offset AFTER, as [OFFSET TIME-MS KIND KEY VALUE].
#[defun(name = "-read")]
fn read<'e>(
    env: &'e Env,
    store: &Handle,
    topic: String,
    after: u64,
    limit: usize,
) -> Result<Value<'e>> {
    let found = store.topic(&topic).and_then(|topic| {
        let mut reader = topic.reader(ReadFrom::After(ConsequenceOffset(after)))?;
        let mut rows = Vec::new();
        while rows.len() < limit {
            let Some(page) = reader.next_page()? else {
                break;
            };
            for record in page.iter().take(limit - rows.len()) {
                rows.push(work::row(&record?));
            }
        }
        Ok(rows)
    });
    rows(env, &lisp(env, found)?)
}

fn outcome(verdict: &Verdict) -> std::result::Result<Option<u64>, Failure> {
    match verdict.reason() {
        Some(code) if !verdict.is_valid() => Err(Failure::verdict(code)),
        _ => Ok(verdict.offset().map(|offset| offset.0)),
    }
}

/// Queues a write to TOPIC of STORE: KIND is create, put, append or delete. Returns its number.
#[defun(name = "-submit")]
fn submit(
    env: &Env,
    store: &Handle,
    kind: Value<'_>,
    topic: String,
    key: Option<String>,
    value: Option<Vec<u8>>,
) -> Result<u64> {
    let topic = lisp(env, store.topic(&topic))?;
    let kind: String = env.call("symbol-name", (kind,))?.into_rust()?;
    let (key, value) = (key.unwrap_or_default(), value.unwrap_or_default());
    let queued = work::write(move || match kind.as_str() {
        "create" => Ok(topic.ensure().map(|_| None)?),
        "put" => outcome(&topic.put(&key, &value)?),
        "append" => outcome(&topic.append(&value)?),
        "delete" => outcome(&topic.delete(&key)?),
        _ => Err(Failure::new("weir-usage", "no such kind of write")),
    });
    lisp(env, queued)
}

/// Follows TOPIC of STORE after offset AFTER. Returns the number of the follower.
#[defun(name = "-follow")]
fn follow(env: &Env, store: &Handle, topic: String, after: u64) -> Result<u64> {
    let from = ReadFrom::After(ConsequenceOffset(after));
    lisp(
        env,
        store
            .topic(&topic)
            .and_then(|topic| work::follow(topic, from)),
    )
}

/// Ends the follower with number ID. Returns t if it ran.
#[defun(name = "-stop")]
fn stop(id: u64) -> Result<bool> {
    Ok(work::cancel(id))
}

/// Returns (MORE . RESULTS): up to 64 results (ID STATUS VALUE), STATUS done, rows or failed.
#[defun(name = "-drain")]
fn drain(env: &Env) -> Result<Value<'_>> {
    let (results, more) = work::drain(DRAIN_MAX);
    let mut items = Vec::new();
    for (id, done) in results {
        let (status, value) = match done {
            Done::Offset(offset) => ("done", offset.into_lisp(env)?),
            Done::Rows(all) => ("rows", rows(env, &all)?),
            Done::Failed(failure) => {
                let symbol = env.intern(failure.symbol)?;
                ("failed", env.cons(symbol, failure_data(env, &failure)?)?)
            }
        };
        items.push(env.list((id, env.intern(status)?, value))?);
    }
    env.cons(more, list(env, items)?)
}

/// Returns (STORES FOLLOWERS RESULTS): what the module holds.
#[defun(name = "-debug-counts")]
fn debug_counts(env: &Env) -> Result<Value<'_>> {
    let (stores, followers, results) = work::counts();
    env.list((stores, followers, results))
}

/// Panics, to test that a panic becomes a signal.
#[defun(name = "-debug-panic")]
fn debug_panic() -> Result<()> {
    std::panic::panic_any("asked for")
}

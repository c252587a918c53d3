//! The functions of the module. Each name gets the prefix `weir--`.
#![allow(unsafe_code, reason = "the macro registers functions by initialisers")]
#![allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "the macro converts arguments into owned values and wants a Result"
)]

use std::path::Path;

use emacs::{Env, IntoLisp, Result, Value, defun};
use weir::query::QueryText;
use weir::{ConnectOptions, ConsequenceOffset, Expect, ReadFrom, Verdict, Weir, WeirError};

use crate::answer::{Answer, Row, failure, list, or_signal};
use crate::failure::Failure;
use crate::query::{self, QueryRequest};
use crate::quit::QuitCheck;
use crate::store::{self, Handle};
use crate::text;
use crate::work::{self, JobResult};

/// Limit on the results of one call of `weir--drain`.
const DRAIN_MAX: usize = 64;

/// Returns the version of the module.
#[defun(name = "-module-version")]
fn module_version() -> Result<&'static str> {
    Ok(env!("CARGO_PKG_VERSION"))
}

/// Writes to PIPE, a pipe process, when results are ready.
#[defun(name = "-start")]
fn start(pipe: Value<'_>) -> Result<()> {
    let pipe_out = pipe.env.open_channel(pipe)?;
    work::set_pipe(Box::new(pipe_out));
    Ok(())
}

/// Opens the store in DIRECTORY in this process; read-only if READONLY is non-nil.
#[defun(user_ptr, name = "-open")]
fn open(env: &Env, directory: Value<'_>, readonly: Value<'_>) -> Result<Handle> {
    let directory = text::text(directory)?;
    let opened = if readonly.is_not_nil() {
        Weir::open_read_only(&directory)
    } else {
        Weir::open(&directory)
    };
    let opened = opened.map_err(|error| match error {
        WeirError::Store(error) => Failure::open(Path::new(&directory), error),
        error => error.into(),
    });
    or_signal(env, opened).map(Handle::new)
}

/// Connects to the server at URL with TOKEN, or nil. Returns the number of the operation.
#[defun(name = "-connect")]
fn connect(env: &Env, url: Value<'_>, token: Value<'_>) -> Result<u64> {
    let (url, token) = (text::text(url)?, text::maybe(token)?);
    let started = work::task("weir-connect", move |_| {
        let mut options = ConnectOptions::default();
        options.token = token;
        let connected = Weir::connect_with(&url, &options);
        let weir = connected.map_err(Failure::network)?;
        Ok(Answer::Handle(Box::new(Handle::new(weir))))
    });
    or_signal(env, started)
}

/// Closes STORE. Returns t if it was open.
#[defun(name = "-close")]
fn close(env: &Env, store: &Handle) -> Result<bool> {
    match store.take() {
        Some(weir) => or_signal(env, weir.close().map_err(Failure::from)).map(|()| true),
        None => Ok(false),
    }
}

/// Cancels all work and closes all stores. Returns t if all ended within half a second.
#[defun(name = "-shutdown")]
fn shutdown() -> Result<bool> {
    Ok(query::shut_down())
}

/// Executes a read: directly in a store of this process, as a task at a server.
fn read_of<'e>(
    env: &'e Env,
    store: &Handle,
    read: impl FnOnce(&Weir, &mut dyn FnMut() -> bool) -> std::result::Result<Answer, Failure>
    + Send
    + 'static,
) -> Result<Value<'e>> {
    let weir = or_signal(env, store.weir())?;
    if weir.local().is_some() {
        let mut quit = QuitCheck::new(env);
        let answer = read(&weir, &mut || quit.may_continue());
        return or_signal(env, answer)?.into_value(env);
    }
    let started = work::task("weir-read", move |parts| {
        read(&weir, &mut || !parts.cancel.is_requested())
    });
    or_signal(env, started)?.into_lisp(env)
}

/// Returns the live topics of STORE as vectors [NAME FIRST LAST KEYS BYTES], or the number of an
/// operation.
#[defun(name = "-topics")]
fn topics<'e>(env: &'e Env, store: &Handle) -> Result<Value<'e>> {
    read_of(env, store, |weir, _| {
        Ok(Answer::Topics(weir.topics(false)?))
    })
}

/// Returns the value of KEY in TOPIC of STORE, or nil; or the number of an operation.
#[defun(name = "-get")]
fn get<'e>(env: &'e Env, store: &Handle, topic: Value<'e>, key: Value<'e>) -> Result<Value<'e>> {
    let (topic, key) = (text::text(topic)?, text::owned(key)?);
    read_of(env, store, move |weir, _| {
        let value = weir.topic(&topic)?.get(&key)?;
        Ok(Answer::Bytes(value.map(|value| value.value().to_vec())))
    })
}

/// Returns up to LIMIT pairs (KEY . VALUE) of TOPIC whose keys begin with PREFIX; or the number of
/// an operation.
#[defun(name = "-scan")]
fn scan<'e>(
    env: &'e Env,
    store: &Handle,
    topic: Value<'e>,
    prefix: Value<'e>,
    limit: usize,
) -> Result<Value<'e>> {
    let (topic, prefix) = (text::text(topic)?, text::owned(prefix)?);
    read_of(env, store, move |weir, may_continue| {
        let topic = weir.topic(&topic)?;
        let mut pairs = Vec::new();
        let mut after: Option<Box<[u8]>> = None;
        while pairs.len() < limit {
            let most = (limit - pairs.len()).min(weir::SCAN_KEYS_MAX);
            let entries = topic.scan(&prefix, after.as_deref(), most)?;
            for entry in &entries {
                if !may_continue() {
                    return Err(Failure::quit());
                }
                if let Some(value) = topic.value(entry)? {
                    pairs.push((entry.key.to_vec(), value.value().to_vec()));
                }
            }
            match entries.into_iter().next_back() {
                Some(last) => after = Some(last.key),
                None => break,
            }
        }
        Ok(Answer::Pairs(pairs))
    })
}

/// Returns up to LIMIT records of TOPIC after offset AFTER, as [OFFSET TIME-MS KIND KEY VALUE]; or
/// the number of an operation.
#[defun(name = "-read")]
fn read<'e>(
    env: &'e Env,
    store: &Handle,
    topic: Value<'e>,
    after: u64,
    limit: usize,
) -> Result<Value<'e>> {
    let topic = text::text(topic)?;
    read_of(env, store, move |weir, may_continue| {
        let from = ReadFrom::After(ConsequenceOffset(after));
        let mut reader = weir.topic(&topic)?.reader(from)?;
        let mut rows = Vec::new();
        while rows.len() < limit {
            let Some(page) = reader.next_page()? else {
                break;
            };
            for record in page.iter().take(limit - rows.len()) {
                if !may_continue() {
                    return Err(Failure::quit());
                }
                rows.push(Row::of(&record.map_err(Failure::from)?));
            }
        }
        Ok(Answer::Rows(rows))
    })
}

/// Runs a query over the topics FROM of STORE, a list of names and patterns. WHERE, ORDER-BY,
/// SELECT and GROUP-BY are texts, LIMIT is a number or nil. With LATEST, only the current value of
/// each key is read. Returns the number of the operation, whose parts are lists of results.
#[defun(name = "-query")]
#[allow(clippy::too_many_arguments, reason = "Lisp has keywords for them")]
fn query(
    env: &Env,
    store: &Handle,
    from: Value<'_>,
    filter: Value<'_>,
    order: Value<'_>,
    select: Value<'_>,
    group: Value<'_>,
    limit: Option<u64>,
    latest: Value<'_>,
) -> Result<u64> {
    let words = |value| text::maybe(value).map(Option::unwrap_or_default);
    let request = QueryRequest {
        from: text::list(from)?,
        text: QueryText {
            filter: words(filter)?,
            order: words(order)?,
            select: words(select)?,
            group: words(group)?,
            limit,
            ..QueryText::default()
        },
        latest: latest.is_not_nil(),
    };
    let started = store.weir().and_then(|weir| query::start(weir, request));
    or_signal(env, started)
}

/// Creates TOPIC of STORE with the program in the WebAssembly FILE and its ARGUMENTS, or replaces
/// the program of TOPIC. Returns the number of the operation.
#[defun(name = "-deploy")]
fn deploy(
    env: &Env,
    store: &Handle,
    topic: Value<'_>,
    file: Value<'_>,
    arguments: Value<'_>,
) -> Result<u64> {
    let (topic, file) = (text::text(topic)?, text::text(file)?);
    let arguments = text::owned(arguments)?;
    let weir = or_signal(env, store.weir())?;
    let queued = work::write(move || {
        let code = std::fs::read(&file).map_err(|error| {
            Failure::new("weir-not-found", format!("cannot read {file}: {error}"))
        })?;
        query::deploy(&weir, &topic, &code, &arguments)
    });
    or_signal(env, queued)
}

/// The result of a write to the topic with this name.
fn outcome(topic: &str, verdict: &Verdict) -> std::result::Result<Answer, Failure> {
    match Failure::of_verdict(topic, verdict) {
        Some(failure) => Err(failure),
        None => Ok(Answer::Offset(verdict.offset().map(|offset| offset.0))),
    }
}

/// Queues a write to TOPIC of STORE: KIND is create, put, append or delete. EXPECT is nil, or for a
/// put the offset at which the current value of KEY must have been written; 0 if KEY must have no
/// value. Returns the number of the write.
#[defun(name = "-submit")]
fn submit(
    env: &Env,
    store: &Handle,
    kind: Value<'_>,
    topic: Value<'_>,
    key: Value<'_>,
    value: Value<'_>,
    expect: Option<u64>,
) -> Result<u64> {
    let name = text::text(topic)?;
    let topic = or_signal(env, store.topic(&name))?;
    let kind: String = env.call("symbol-name", (kind,))?.into_rust()?;
    let bytes = |value: Value<'_>| {
        let given = value.is_not_nil().then(|| text::owned(value));
        given.transpose().map(Option::unwrap_or_default)
    };
    let (key, value) = (bytes(key)?, bytes(value)?);
    let queued = work::write(move || match kind.as_str() {
        "create" => Ok(topic.ensure().map(|_| Answer::Nothing)?),
        "put" => {
            let condition = expect.map(|offset| match offset {
                0 => Expect::KeyAbsent(Some(key.as_slice())),
                offset => Expect::KeyOffset(Some(key.as_slice()), offset),
            });
            let verdict = topic.put_if(&key, &value, condition.as_slice())?;
            outcome(&name, &verdict).map_err(|failure| match expect {
                Some(offset) if failure.symbol == "weir-conflict" => failure
                    .with(":key", key.as_slice())
                    .with(":expected", offset),
                _ => failure,
            })
        }
        "append" => outcome(&name, &topic.append(&value)?),
        "delete" => outcome(&name, &topic.delete(&key)?),
        _ => Err(Failure::new("weir-usage", "no such kind of write")),
    });
    or_signal(env, queued)
}

/// Follows TOPIC of STORE after offset AFTER. Returns the number of the follower.
#[defun(name = "-follow")]
fn follow(env: &Env, store: &Handle, topic: Value<'_>, after: u64) -> Result<u64> {
    let from = ReadFrom::After(ConsequenceOffset(after));
    let topic = store.topic(&text::text(topic)?);
    or_signal(env, topic.and_then(|topic| work::follow(topic, from)))
}

/// Cancels the operation with number ID. Returns t if the operation can still be cancelled.
#[defun(name = "-cancel")]
fn cancel(id: u64) -> Result<bool> {
    Ok(work::cancel(id))
}

/// Returns (MORE . RESULTS): up to 64 results (ID STATUS VALUE). STATUS is part, done or failed.
#[defun(name = "-drain")]
fn drain(env: &Env) -> Result<Value<'_>> {
    let (results, more) = work::drain(DRAIN_MAX);
    let mut items = Vec::new();
    for (id, done) in results {
        let converted = match done {
            JobResult::Part(answer) => answer.into_value(env).map(|value| ("part", value)),
            JobResult::End(Ok(answer)) => answer.into_value(env).map(|value| ("done", value)),
            JobResult::End(Err(error)) => failure(env, &error).map(|value| ("failed", value)),
        };
        // The results are already removed from the queue, so each of them must be returned.
        let (status, value) = match converted {
            Ok(converted) => converted,
            Err(error) => {
                let text = format!("the result cannot be converted to a Lisp value: {error}");
                let error = Failure::new("weir-error", text);
                ("failed", failure(env, &error)?)
            }
        };
        items.push(env.list((id, env.intern(status)?, value))?);
    }
    env.cons(more, list(env, &items)?)
}

/// Returns (STORES TASKS RESULTS), the counts of objects in the module.
#[defun(name = "-debug-counts")]
fn debug_counts(env: &Env) -> Result<Value<'_>> {
    let (tasks, results) = work::counts();
    env.list((store::count(), tasks, results))
}

/// Panics, to test that a panic becomes a signal.
#[defun(name = "-debug-panic")]
fn debug_panic() -> Result<()> {
    std::panic::panic_any("asked for")
}

/// Starts a task that panics, to test that its failure is reported. Returns its number.
#[defun(name = "-debug-panic-task")]
fn debug_panic_task(env: &Env) -> Result<u64> {
    let started = work::task("weir-debug", |_| std::panic::panic_any("asked for"));
    or_signal(env, started)
}

/// Runs for SECONDS unless the user quits; tests that a long call checks for C-g.
#[defun(name = "-debug-spin")]
fn debug_spin(env: &Env, seconds: u64) -> Result<()> {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    let mut quit = QuitCheck::new(env);
    while std::time::Instant::now() < end {
        if !quit.may_continue() {
            return or_signal(env, Err(Failure::quit()));
        }
        std::hint::spin_loop();
    }
    Ok(())
}

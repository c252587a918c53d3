//! Work beside the thread of Emacs: a queue of writes, followers, and what they gave.
//!
//! Invariant: every queue has a bound. A follower waits while Lisp has not taken its batches.

use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir::{ReadFrom, Topic};

use crate::failure::Failure;

/// Writes that wait; one more is refused.
const WRITES_MAX: usize = 1024;
/// Results that wait for Lisp before followers pause.
const RESULTS_MAX: usize = 256;
/// Records that a follower hands over at once.
const BATCH_RECORDS_MAX: usize = 256;
/// Longest time until a follower sees that it was cancelled.
const LOOK: Duration = Duration::from_millis(100);

/// A record as Lisp gets it.
pub(crate) struct Row {
    pub(crate) offset: u64,
    pub(crate) time_ms: u64,
    pub(crate) kind: &'static str,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// What became of a piece of work.
pub(crate) enum Done {
    /// The offset of the first record of a write.
    Offset(Option<u64>),
    /// Records of a follower.
    Rows(Vec<Row>),
    /// An error.
    Failed(Failure),
}

/// The writing end of the pipe of Emacs.
type Bell = Box<dyn Write + Send>;

type Job = Box<dyn FnOnce() -> Result<Option<u64>, Failure> + Send>;

struct Shared {
    next: AtomicU64,
    /// Whether a byte is on its way to Emacs.
    rung: AtomicBool,
    bell: Mutex<Option<Bell>>,
    results: Mutex<VecDeque<(u64, Done)>>,
    taken: Condvar,
    followers: Mutex<HashMap<u64, Arc<AtomicBool>>>,
    writer: Mutex<Option<SyncSender<(u64, Job)>>>,
    /// Stores that are open.
    stores: AtomicUsize,
}

static SHARED: LazyLock<Shared> = LazyLock::new(|| Shared {
    next: AtomicU64::new(1),
    rung: AtomicBool::new(false),
    bell: Mutex::new(None),
    results: Mutex::new(VecDeque::new()),
    taken: Condvar::new(),
    followers: Mutex::new(HashMap::new()),
    writer: Mutex::new(None),
    stores: AtomicUsize::new(0),
});

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread that no signal reaches: a broken pipe must not end Emacs.
fn thread(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let start = move || {
        let blocked = nix::sys::signal::SigSet::all().thread_block();
        if blocked.is_ok() {
            body();
        }
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(start)
        .map(drop)
        .map_err(|error| Failure::new("weir-error", format!("no thread: {error}")))
}

/// Writes to this pipe when there are results.
pub(crate) fn ring_at(bell: Bell) {
    *locked(&SHARED.bell) = Some(bell);
    SHARED.rung.store(false, Ordering::SeqCst);
}

fn push(id: u64, done: Done) {
    locked(&SHARED.results).push_back((id, done));
    if !SHARED.rung.swap(true, Ordering::SeqCst)
        && let Some(bell) = locked(&SHARED.bell).as_mut()
    {
        // Emacs deleted the pipe: results are taken by the next call.
        let _ = bell.write_all(b"!");
    }
}

/// Up to `max` results, and whether more are left.
pub(crate) fn drain(max: usize) -> (Vec<(u64, Done)>, bool) {
    SHARED.rung.store(false, Ordering::SeqCst);
    let mut results = locked(&SHARED.results);
    let count = results.len().min(max);
    let taken = results.drain(..count).collect();
    let more = !results.is_empty();
    drop(results);
    SHARED.taken.notify_all();
    (taken, more)
}

fn id() -> u64 {
    SHARED.next.fetch_add(1, Ordering::SeqCst)
}

/// Queues a write; its result comes under the number that is returned.
pub(crate) fn write(
    job: impl FnOnce() -> Result<Option<u64>, Failure> + Send + 'static,
) -> Result<u64, Failure> {
    let mut writer = locked(&SHARED.writer);
    if writer.is_none() {
        let (sender, jobs) = sync_channel::<(u64, Job)>(WRITES_MAX);
        thread("weir-write", move || {
            for (id, job) in jobs {
                push(id, job().map_or_else(Done::Failed, Done::Offset));
            }
        })?;
        *writer = Some(sender);
    }
    let id = id();
    let queued = writer
        .as_ref()
        .map(|writer| writer.try_send((id, Box::new(job))));
    match queued {
        Some(Ok(())) => Ok(id),
        _ => Err(Failure::new(
            "weir-error",
            "too many writes wait; try again",
        )),
    }
}

/// Follows a topic on a thread of its own until it is cancelled.
pub(crate) fn follow(topic: Topic, from: ReadFrom) -> Result<u64, Failure> {
    let (id, stop) = (id(), Arc::new(AtomicBool::new(false)));
    locked(&SHARED.followers).insert(id, stop.clone());
    thread("weir-follow", move || {
        if let Err(failure) = follow_until(&topic, from, &stop, id) {
            push(id, Done::Failed(failure));
        }
        locked(&SHARED.followers).remove(&id);
    })?;
    Ok(id)
}

fn follow_until(topic: &Topic, from: ReadFrom, stop: &AtomicBool, id: u64) -> Result<(), Failure> {
    let mut reader = topic.listener(from)?;
    while !stop.load(Ordering::SeqCst) {
        let Some(page) = reader.next_page()? else {
            let _ = reader.wait(Some(Instant::now() + LOOK));
            continue;
        };
        let mut rows = Vec::new();
        for record in &page {
            rows.push(row(&record.map_err(Failure::from)?));
        }
        while !rows.is_empty() {
            let rest = rows.split_off(rows.len().min(BATCH_RECORDS_MAX));
            room(stop);
            if stop.load(Ordering::SeqCst) {
                return Ok(());
            }
            push(id, Done::Rows(rows));
            rows = rest;
        }
    }
    Ok(())
}

/// Waits until Lisp has taken results.
fn room(stop: &AtomicBool) {
    let mut results = locked(&SHARED.results);
    while results.len() >= RESULTS_MAX && !stop.load(Ordering::SeqCst) {
        let waited = SHARED.taken.wait_timeout(results, LOOK);
        results = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// A record as Lisp gets it.
pub(crate) fn row(record: &weir::Record<'_>) -> Row {
    Row {
        offset: record.offset.0,
        time_ms: record.time_ms,
        kind: record.kind.name(),
        key: record.key.to_vec(),
        value: record.value.to_vec(),
    }
}

/// Ends a follower. Returns whether it ran.
pub(crate) fn cancel(id: u64) -> bool {
    let follower = locked(&SHARED.followers).get(&id).cloned();
    follower.is_some_and(|stop| !stop.swap(true, Ordering::SeqCst))
}

/// Counts a store that was opened or closed.
pub(crate) fn count_store(opened: bool) {
    if opened {
        SHARED.stores.fetch_add(1, Ordering::SeqCst);
    } else {
        SHARED.stores.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Open stores, followers, and results that wait.
pub(crate) fn counts() -> (usize, usize, usize) {
    (
        SHARED.stores.load(Ordering::SeqCst),
        locked(&SHARED.followers).len(),
        locked(&SHARED.results).len(),
    )
}

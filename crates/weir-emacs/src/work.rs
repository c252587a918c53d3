//! Work outside of the thread of Emacs: a queue of writes, tasks, followers, and their results.
//!
//! Invariants:
//! - Every queue is bounded.
//! - A task with partial results waits while 256 results were not read by Lisp.
//! - Work that is cancelled before its start is not executed.

use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir::{ReadFrom, Topic};

use crate::answer::{Answer, Row};
use crate::failure::Failure;
use crate::threads::{locked, thread};

/// Limit on queued writes; one more is rejected.
const WRITES_MAX: usize = 1024;
/// Limit on concurrent tasks and followers, each with a thread; one more is rejected.
const TASKS_MAX: usize = 64;
/// Limit on results that wait for Lisp; at the limit, tasks pause.
const RESULTS_MAX: usize = 256;
/// Limit on the records that a follower passes on at once.
pub(crate) const BATCH_RECORDS_MAX: usize = 256;
/// Limit on the time until a task reads its cancellation.
pub(crate) const CANCEL_POLL: Duration = Duration::from_millis(100);

/// A result of a write or task.
pub(crate) enum JobResult {
    /// More results will follow.
    Part(Answer),
    End(Result<Answer, Failure>),
}

/// The writing end of the pipe of Emacs.
type WakePipe = Box<dyn Write + Send>;
/// A queued write, with its number.
type QueuedWrite = (u64, Arc<Cancel>, Job);
type Job = Box<dyn FnOnce() -> Result<Answer, Failure> + Send>;
type Hook = Box<dyn Fn() + Send>;

/// A write that has not begun.
const QUEUED: u8 = 0;
/// Work that has begun.
const RUNNING: u8 = 1;
/// Work that was cancelled.
const CANCELLED: u8 = 2;

/// The cancellation state of a piece of work.
pub(crate) struct Cancel {
    state: AtomicU8,
    stop: AtomicBool,
    hook: Mutex<Option<Hook>>,
}

impl Cancel {
    fn new(state: u8) -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU8::new(state),
            stop: AtomicBool::new(false),
            hook: Mutex::new(None),
        })
    }

    /// Whether the work was cancelled.
    pub(crate) fn is_requested(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Calls `hook` when the work is cancelled; immediately if it already was.
    pub(crate) fn on_cancel(&self, hook: impl Fn() + Send + 'static) {
        let mut slot = locked(&self.hook);
        if self.is_requested() {
            hook();
        }
        *slot = Some(Box::new(hook));
    }

    fn begin(&self) -> bool {
        let begun =
            self.state
                .compare_exchange(QUEUED, RUNNING, Ordering::SeqCst, Ordering::SeqCst);
        begun.is_ok()
    }

    /// Cancels the work. Returns `false` for a write that has begun, which cannot be cancelled.
    fn cancel(&self, is_write: bool) -> bool {
        if is_write {
            let stopped =
                self.state
                    .compare_exchange(QUEUED, CANCELLED, Ordering::SeqCst, Ordering::SeqCst);
            return stopped.is_ok();
        }
        let slot = locked(&self.hook);
        let first = !self.stop.swap(true, Ordering::SeqCst);
        if let Some(hook) = slot.as_ref().filter(|_| first) {
            hook();
        }
        first
    }
}

/// Work that has not ended.
struct RunningJob {
    cancel: Arc<Cancel>,
    is_write: bool,
}

struct Shared {
    next: AtomicU64,
    /// Whether a byte was written to the pipe and not read yet.
    wake_pending: AtomicBool,
    pipe_out: Mutex<Option<WakePipe>>,
    results: Mutex<VecDeque<(u64, JobResult)>>,
    results_read: Condvar,
    running: Mutex<HashMap<u64, RunningJob>>,
    ended: Condvar,
    writer: Mutex<Option<SyncSender<QueuedWrite>>>,
}

static SHARED: LazyLock<Shared> = LazyLock::new(|| Shared {
    next: AtomicU64::new(1),
    wake_pending: AtomicBool::new(false),
    pipe_out: Mutex::new(None),
    results: Mutex::new(VecDeque::new()),
    results_read: Condvar::new(),
    running: Mutex::new(HashMap::new()),
    ended: Condvar::new(),
    writer: Mutex::new(None),
});

/// Sets the pipe to which a byte is written when there are results. Writes at once if results are
/// waiting.
pub(crate) fn set_pipe(pipe_out: WakePipe) {
    let mut slot = locked(&SHARED.pipe_out);
    *slot = Some(pipe_out);
    let waits = !locked(&SHARED.results).is_empty();
    SHARED.wake_pending.store(waits, Ordering::SeqCst);
    if let Some(pipe_out) = slot.as_mut().filter(|_| waits) {
        let _ = pipe_out.write_all(b"!");
    }
}

fn push(id: u64, done: JobResult) {
    locked(&SHARED.results).push_back((id, done));
    if !SHARED.wake_pending.swap(true, Ordering::SeqCst)
        && let Some(pipe_out) = locked(&SHARED.pipe_out).as_mut()
    {
        // If Emacs has deleted the pipe, the next call reads the results.
        let _ = pipe_out.write_all(b"!");
    }
}

/// Up to `max` results, and whether more remain.
pub(crate) fn drain(max: usize) -> (Vec<(u64, JobResult)>, bool) {
    SHARED.wake_pending.store(false, Ordering::SeqCst);
    let mut results = locked(&SHARED.results);
    let count = results.len().min(max);
    let taken = results.drain(..count).collect();
    let more = !results.is_empty();
    drop(results);
    SHARED.results_read.notify_all();
    (taken, more)
}

/// Registers a piece of work. Returns its number.
fn register(is_write: bool) -> Result<(u64, Arc<Cancel>), Failure> {
    let mut running = locked(&SHARED.running);
    let tasks = running.values().filter(|one| !one.is_write).count();
    if !is_write && tasks >= TASKS_MAX {
        let text = format!("{TASKS_MAX} tasks are running; wait for one, or cancel one");
        return Err(Failure::new("weir-error", text));
    }
    let id = SHARED.next.fetch_add(1, Ordering::SeqCst);
    let cancel = Cancel::new(if is_write { QUEUED } else { RUNNING });
    let job = RunningJob {
        cancel: Arc::clone(&cancel),
        is_write,
    };
    running.insert(id, job);
    Ok((id, cancel))
}

fn unregister(id: u64) {
    locked(&SHARED.running).remove(&id);
    SHARED.ended.notify_all();
}

/// Runs `body`, and converts a panic to a failure.
fn guarded(body: impl FnOnce() -> Result<Answer, Failure>) -> Result<Answer, Failure> {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    caught.unwrap_or_else(|panic| {
        let why = panic.downcast_ref::<&str>().copied();
        let why = why.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let why = why.unwrap_or("it has no message");
        let text = format!("a task of the module panicked; please report it: {why}");
        Err(Failure::new("weir-panic", text))
    })
}

/// Queues a write. Returns its number, which its result also has.
pub(crate) fn write(
    job: impl FnOnce() -> Result<Answer, Failure> + Send + 'static,
) -> Result<u64, Failure> {
    let mut writer = locked(&SHARED.writer);
    if writer.is_none() {
        let (sender, jobs) = sync_channel::<QueuedWrite>(WRITES_MAX);
        thread("weir-write", move || {
            for (id, cancel, job) in jobs {
                let end = if cancel.begin() {
                    guarded(job)
                } else {
                    Err(Failure::cancelled())
                };
                push(id, JobResult::End(end));
                unregister(id);
            }
        })?;
        *writer = Some(sender);
    }
    let (id, cancel) = register(true)?;
    let queued = writer
        .as_ref()
        .map(|writer| writer.try_send((id, cancel, Box::new(job))));
    if let Some(Ok(())) = queued {
        return Ok(id);
    }
    unregister(id);
    Err(Failure::new(
        "weir-error",
        "too many writes wait; try again",
    ))
}

/// Sends partial results of a task.
pub(crate) struct Parts {
    id: u64,
    pub(crate) cancel: Arc<Cancel>,
}

impl Parts {
    /// Sends a partial result; blocks while 256 results were not read by Lisp. Returns `false` if
    /// the task was cancelled.
    pub(crate) fn send(&self, part: Answer) -> bool {
        let mut results = locked(&SHARED.results);
        while results.len() >= RESULTS_MAX && !self.cancel.is_requested() {
            let waited = SHARED.results_read.wait_timeout(results, CANCEL_POLL);
            results = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(results);
        if self.cancel.is_requested() {
            return false;
        }
        push(self.id, JobResult::Part(part));
        true
    }
}

/// Runs a task on a separate thread. Returns its number.
pub(crate) fn task(
    name: &str,
    body: impl FnOnce(&Parts) -> Result<Answer, Failure> + Send + 'static,
) -> Result<u64, Failure> {
    let (id, cancel) = register(false)?;
    let parts = Parts { id, cancel };
    let started = thread(name, move || {
        let mut end = guarded(|| body(&parts));
        if parts.cancel.is_requested() {
            end = Err(Failure::cancelled());
        }
        push(id, JobResult::End(end));
        unregister(id);
    });
    if let Err(failure) = started {
        unregister(id);
        return Err(failure);
    }
    Ok(id)
}

/// Follows a topic until it is cancelled.
pub(crate) fn follow(topic: Topic, from: ReadFrom) -> Result<u64, Failure> {
    task("weir-follow", move |parts| {
        let mut reader = topic.listener(from)?;
        while !parts.cancel.is_requested() {
            let Some(page) = reader.next_page()? else {
                let _ = reader.wait(Some(Instant::now() + CANCEL_POLL));
                continue;
            };
            let mut rows = Vec::new();
            for record in &page {
                rows.push(Row::of(&record.map_err(Failure::from)?));
            }
            while !rows.is_empty() {
                let rest = rows.split_off(rows.len().min(BATCH_RECORDS_MAX));
                if !parts.send(Answer::Rows(rows)) {
                    break;
                }
                rows = rest;
            }
        }
        Ok(Answer::Nothing)
    })
}

/// Cancels a piece of work. Returns whether it could be cancelled.
pub(crate) fn cancel(id: u64) -> bool {
    let running = locked(&SHARED.running);
    let one = running
        .get(&id)
        .map(|one| (Arc::clone(&one.cancel), one.is_write));
    drop(running);
    one.is_some_and(|(cancel, is_write)| cancel.cancel(is_write))
}

/// Cancels all tasks, and waits until `deadline` for them and for queued writes. Returns whether
/// all ended in time.
pub(crate) fn end_all(deadline: Instant) -> bool {
    let running = locked(&SHARED.running);
    let tasks: Vec<_> = running
        .values()
        .filter(|one| !one.is_write)
        .map(|one| Arc::clone(&one.cancel))
        .collect();
    drop(running);
    for task in tasks {
        task.cancel(false);
    }
    let left = deadline.saturating_duration_since(Instant::now());
    let running = locked(&SHARED.running);
    let waited = SHARED
        .ended
        .wait_timeout_while(running, left, |running| !running.is_empty());
    waited.unwrap_or_else(PoisonError::into_inner).0.is_empty()
}

/// The numbers of unfinished pieces of work, and of waiting results.
pub(crate) fn counts() -> (usize, usize) {
    (locked(&SHARED.running).len(), locked(&SHARED.results).len())
}

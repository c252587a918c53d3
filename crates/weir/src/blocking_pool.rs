//! A small pool of threads that read from disk, so that tasks do not block.
//!
//! Invariants: a job waits only for a disk; the queue of jobs is bounded.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use weir_store::StoreError;
use weir_store::error::IoVerb;

/// Threads of the pool, for the whole process.
const THREADS_MAX: usize = 4;
/// Jobs that may wait for a thread.
const JOBS_MAX: usize = 65_536;

type Job = Box<dyn FnOnce() + Send>;

struct JobQueue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static QUEUE: Mutex<JobQueue> = Mutex::new(JobQueue {
    jobs: VecDeque::new(),
    threads: 0,
    idle: 0,
});
static JOB_ADDED: Condvar = Condvar::new();

/// The result of a job.
struct Slot<T> {
    found: Option<T>,
    waker: Option<Waker>,
    /// The job has ended, with or without a result.
    over: bool,
}

/// A job that a thread of the pool executes.
pub(crate) struct Submitted<T>(Arc<Mutex<Slot<T>>>);

/// Marks the job as ended and wakes the task, even after a panic.
struct CompletionGuard<T>(Arc<Mutex<Slot<T>>>);

impl<T> Drop for CompletionGuard<T> {
    fn drop(&mut self) {
        let waker = {
            let mut slot = self.0.lock();
            slot.over = true;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Submitted<T> {
    /// `None` if the job panicked.
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = self.0.lock();
        if slot.found.is_some() || slot.over {
            return Poll::Ready(slot.found.take());
        }
        slot.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Runs work on a thread that may block on the disk.
///
/// # Errors
/// `LimitExceeded` if too many jobs wait already; `Io` if no thread can be started; `Panicked` if
/// the job panicked.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    let submitted = submit((), |()| work()).map_err(|((), error)| error)?;
    submitted.await.ok_or(StoreError::Panicked {
        thread: "a thread that reads",
    })
}

/// Starts work on a thread that may block on the disk. The caller awaits the result.
///
/// # Errors
/// `LimitExceeded` if too many jobs wait already; `Io` if no thread can be started. Both with the
/// unused state.
pub(crate) fn submit<S: Send + 'static, T: Send + 'static>(
    state: S,
    work: impl FnOnce(S) -> T + Send + 'static,
) -> Result<Submitted<T>, (S, StoreError)> {
    let start = || {
        let thread = std::thread::Builder::new().name("weir-blocking".into());
        thread.spawn(run_jobs).map(drop)
    };
    let submitted = enqueue(&mut QUEUE.lock(), start, state, work)?;
    JOB_ADDED.notify_one();
    Ok(submitted)
}

/// Adds a job to the queue, and starts a thread with `start` if the job needs one.
fn enqueue<S: Send + 'static, T: Send + 'static>(
    queue: &mut JobQueue,
    start: impl FnOnce() -> io::Result<()>,
    state: S,
    work: impl FnOnce(S) -> T + Send + 'static,
) -> Result<Submitted<T>, (S, StoreError)> {
    if let Err(error) = prepare(queue, start) {
        return Err((state, error));
    }
    let slot = Arc::new(Mutex::new(Slot {
        found: None,
        waker: None,
        over: false,
    }));
    let guard = CompletionGuard(Arc::clone(&slot));
    queue.jobs.push_back(Box::new(move || {
        let guard = guard;
        let found = work(state);
        let mut slot = guard.0.lock();
        slot.found = Some(found);
    }));
    Ok(Submitted(slot))
}

/// Starts a thread for one more job with `start`, if the job needs one.
///
/// # Errors
/// As for [`submit`]. If another thread runs, it takes the job later.
fn prepare(queue: &mut JobQueue, start: impl FnOnce() -> io::Result<()>) -> Result<(), StoreError> {
    if queue.jobs.len() >= JOBS_MAX {
        return Err(StoreError::LimitExceeded {
            what: "reads that wait for the disk",
            limit: JOBS_MAX as u64,
            value: queue.jobs.len() as u64 + 1,
        });
    }
    if queue.idle <= queue.jobs.len() && queue.threads < THREADS_MAX {
        match start() {
            Ok(()) => queue.threads += 1,
            Err(error) if queue.threads == 0 => {
                return Err(StoreError::io(IoVerb::Open, "a thread that reads")(error));
            }
            Err(_) => {}
        }
    }
    Ok(())
}

fn run_jobs() {
    let mut queue = QUEUE.lock();
    loop {
        if let Some(job) = queue.jobs.pop_front() {
            drop(queue);
            // The panic was already printed. The waiting caller gets an error.
            drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)));
            queue = QUEUE.lock();
            continue;
        }
        queue.idle += 1;
        JOB_ADDED.wait(&mut queue);
        queue.idle -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;

    use weir_core::ErrorCode;

    use super::{JobQueue, enqueue};

    #[test]
    fn a_job_fails_if_no_thread_can_run_it() {
        let mut queue = JobQueue {
            jobs: VecDeque::new(),
            threads: 0,
            idle: 0,
        };
        let no_thread = || -> io::Result<()> { Err(io::ErrorKind::WouldBlock.into()) };
        let mut add = |start: fn() -> io::Result<()>| enqueue(&mut queue, start, "state", |_| ());
        // The caller can retry with the state.
        let refused = add(no_thread).err();
        let refused = refused.map(|(state, error)| (state, error.code()));
        assert_eq!(refused, Some(("state", ErrorCode::Io)));
        assert!(add(|| Ok(())).is_ok());
        // The running thread takes the next job.
        assert!(add(no_thread).is_ok());
        assert_eq!((queue.threads, queue.jobs.len()), (1, 2));
    }
}

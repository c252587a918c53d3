//! A small pool of threads that read from disk, so that tasks do not block.
//!
//! Invariants: a job waits only for a disk; the queue of jobs is bounded.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use weir_store::StoreError;

/// Threads of the pool, for the whole process.
const THREADS_MAX: usize = 4;
/// Jobs that may wait for a thread.
const JOBS_MAX: usize = 65_536;

type Job = Box<dyn FnOnce() + Send>;

struct Line {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static LINE: Mutex<Line> = Mutex::new(Line {
    jobs: VecDeque::new(),
    threads: 0,
    idle: 0,
});
static MORE: Condvar = Condvar::new();

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
struct Done<T>(Arc<Mutex<Slot<T>>>);

impl<T> Drop for Done<T> {
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
/// `LimitExceeded` if too many jobs wait already; `Panicked` if the job panicked.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    submit(work)?.await.ok_or(StoreError::Panicked {
        thread: "a thread that reads",
    })
}

/// Starts work on a thread that may block on the disk. The caller awaits the result.
///
/// # Errors
/// `LimitExceeded` if too many jobs wait already.
pub(crate) fn submit<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Submitted<T>, StoreError> {
    let slot = Arc::new(Mutex::new(Slot {
        found: None,
        waker: None,
        over: false,
    }));
    let done = Done(Arc::clone(&slot));
    let job = move || {
        let done = done;
        let found = work();
        let mut slot = done.0.lock();
        slot.found = Some(found);
    };
    let mut line = LINE.lock();
    if line.jobs.len() >= JOBS_MAX {
        return Err(StoreError::LimitExceeded {
            what: "reads that wait for the disk",
            limit: JOBS_MAX as u64,
            value: line.jobs.len() as u64 + 1,
        });
    }
    line.jobs.push_back(Box::new(job));
    if line.idle < line.jobs.len() && line.threads < THREADS_MAX {
        let thread = std::thread::Builder::new().name("weir-hand".into());
        if thread.spawn(work_off).is_ok() {
            line.threads += 1;
        }
    }
    drop(line);
    MORE.notify_one();
    Ok(Submitted(slot))
}

fn work_off() {
    let mut line = LINE.lock();
    loop {
        if let Some(job) = line.jobs.pop_front() {
            drop(line);
            // The panic was already printed. The waiting caller gets an error.
            drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)));
            line = LINE.lock();
            continue;
        }
        line.idle += 1;
        MORE.wait(&mut line);
        line.idle -= 1;
    }
}

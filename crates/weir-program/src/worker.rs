//! The thread on which modules are compiled.
//!
//! A compiler goes deep into what it compiles, and nobody knows how much stack
//! the thread of a caller has. So there is one thread whose stack has a fixed
//! size. It is made when it is first needed and stays, because to make it and
//! to warm its memory takes longer than to compile a small module; it ends when
//! it had nothing to do for a while, or with its owner.
//!
//! It holds one job; a caller with another job waits. A job is never
//! cancelled: what it may cost is bounded before it is handed over (`limits`),
//! and nobody is left to be told when its owner is gone. A job that panics is
//! lost, and the thread goes on.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of its stack.
const STACK_BYTES: usize = 16 << 20;
/// How long it stays without work.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// The thread, or what is needed to make it.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    idle: Duration,
}

/// Why a job has no result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// There is no thread for it; with the answer of the system.
    NoThread(String),
    /// It panicked.
    Panicked,
}

#[derive(Debug, Default)]
struct Shared {
    bench: Mutex<Bench>,
    changed: Condvar,
}

#[derive(Default)]
struct Bench {
    job: Option<Job>,
    thread: Option<JoinHandle<()>>,
    /// The thread will look here once more before it ends.
    runs: bool,
    ends: bool,
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench")
            .field("runs", &self.runs)
            .finish_non_exhaustive()
    }
}

impl Default for Worker {
    fn default() -> Self {
        Self::new(IDLE)
    }
}

impl Shared {
    fn bench(&self) -> MutexGuard<'_, Bench> {
        // Jobs run outside of the lock, so a panic leaves its data whole.
        self.bench.lock()
    }

    fn run(&self, idle: Duration) {
        let mut bench = self.bench();
        loop {
            if let Some(job) = bench.job.take() {
                drop(bench);
                self.changed.notify_all();
                // Its caller notices that there is no result.
                drop(catch_unwind(AssertUnwindSafe(job)));
                bench = self.bench();
                continue;
            }
            if bench.ends {
                break;
            }
            let waits = |bench: &mut Bench| bench.job.is_none() && !bench.ends;
            let timeout = self.changed.wait_while_for(&mut bench, waits, idle);
            if timeout.timed_out() && bench.job.is_none() {
                break;
            }
        }
        bench.runs = false;
    }
}

impl Worker {
    fn new(idle: Duration) -> Self {
        Self {
            shared: Arc::default(),
            idle,
        }
    }

    /// Runs a job on the thread and waits for its result.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Lost> {
        let (sender, result) = mpsc::sync_channel(1);
        let mut bench = self.shared.bench();
        while bench.job.is_some() {
            self.shared.changed.wait(&mut bench);
        }
        if !bench.runs {
            let (shared, idle) = (Arc::clone(&self.shared), self.idle);
            let thread = std::thread::Builder::new()
                .name("weir-compile".to_owned())
                .stack_size(STACK_BYTES)
                .spawn(move || shared.run(idle))
                .map_err(|error| Lost::NoThread(error.to_string()))?;
            bench.thread = Some(thread);
            bench.runs = true;
        }
        bench.job = Some(Box::new(move || drop(sender.send(job()))));
        drop(bench);
        self.shared.changed.notify_all();
        result.recv().map_err(|_| Lost::Panicked)
    }
}

impl Drop for Worker {
    /// Waits for the thread, which has nothing in hand: callers wait for their
    /// jobs.
    fn drop(&mut self) {
        let mut bench = self.shared.bench();
        bench.ends = true;
        let thread = bench.thread.take();
        drop(bench);
        self.shared.changed.notify_all();
        if let Some(thread) = thread {
            // What it ran was caught.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{self, ThreadId};

    use super::*;

    fn id(worker: &Worker) -> Option<ThreadId> {
        worker.run(|| thread::current().id()).ok()
    }

    #[test]
    fn one_thread_does_all_and_ends_with_its_owner() {
        let worker = Worker::new(Duration::MAX);
        let first = id(&worker);
        assert!(first.is_some() && first != Some(thread::current().id()));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(id(&worker), first));
            }
        });
        let shared = Arc::downgrade(&worker.shared);
        drop(worker);
        assert!(shared.upgrade().is_none(), "the thread has ended");
    }

    #[test]
    fn an_idle_thread_ends_and_another_one_comes() {
        let worker = Worker::new(Duration::ZERO);
        let first = id(&worker);
        while worker.shared.bench().runs {
            thread::yield_now();
        }
        let second = id(&worker);
        assert!(first.is_some() && second.is_some());
        assert_ne!(first, second);
    }

    #[test]
    fn a_job_that_panics_is_lost_and_the_next_one_is_not() {
        let worker = Worker::default();
        assert_eq!(
            worker.run(|| std::panic::resume_unwind(Box::new("no"))),
            Err::<(), _>(Lost::Panicked)
        );
        assert_eq!(worker.run(|| 7), Ok(7));
    }
}

//! The thread on which modules are compiled.
//!
//! A compiler uses deep recursion, and the stack of the caller's thread has an unknown size. So one
//! thread with a stack of fixed size compiles. It is created when it is first needed and then kept,
//! because creating it and warming its memory takes longer than compiling a small module. It ends
//! after ten seconds without a job, or with its owner.
//!
//! The thread has one job at a time; a caller with another job waits. A job is never cancelled: its
//! cost is bounded before it starts (`limits`). If a job panics, its result is lost and the thread
//! continues.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Size of its stack in bytes.
const STACK_BYTES: usize = 16 << 20;
/// How long it stays without a job.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// The thread, or what is needed to create it.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    idle: Duration,
}

/// Why a job has no result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum JobError {
    /// The thread could not be created; with the error of the system.
    NoThread(String),
    /// The job panicked.
    Panicked,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<WorkerState>,
    changed: Condvar,
}

#[derive(Default)]
struct WorkerState {
    job: Option<Job>,
    thread: Option<JoinHandle<()>>,
    /// Whether the thread will check for a job once more before it ends.
    runs: bool,
    ends: bool,
}

impl std::fmt::Debug for WorkerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerState")
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
    fn state(&self) -> MutexGuard<'_, WorkerState> {
        // Jobs run without the lock, so a panic leaves its data consistent.
        self.state.lock()
    }

    fn run(&self, idle: Duration) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.job.take() {
                drop(state);
                self.changed.notify_all();
                // The caller detects that there is no result.
                drop(catch_unwind(AssertUnwindSafe(job)));
                state = self.state();
                continue;
            }
            if state.ends {
                break;
            }
            let waits = |state: &mut WorkerState| state.job.is_none() && !state.ends;
            let timeout = self.changed.wait_while_for(&mut state, waits, idle);
            if timeout.timed_out() && state.job.is_none() {
                break;
            }
        }
        state.runs = false;
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
    ) -> Result<T, JobError> {
        let (sender, result) = mpsc::sync_channel(1);
        let mut state = self.shared.state();
        while state.job.is_some() {
            self.shared.changed.wait(&mut state);
        }
        if !state.runs {
            let (shared, idle) = (Arc::clone(&self.shared), self.idle);
            let thread = std::thread::Builder::new()
                .name("weir-compile".to_owned())
                .stack_size(STACK_BYTES)
                .spawn(move || shared.run(idle))
                .map_err(|error| JobError::NoThread(error.to_string()))?;
            state.thread = Some(thread);
            state.runs = true;
        }
        state.job = Some(Box::new(move || drop(sender.send(job()))));
        drop(state);
        self.shared.changed.notify_all();
        result.recv().map_err(|_| JobError::Panicked)
    }
}

impl Drop for Worker {
    /// Waits for the thread, which has no job at this time: callers wait for their jobs.
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.ends = true;
        let thread = state.thread.take();
        drop(state);
        self.shared.changed.notify_all();
        if let Some(thread) = thread {
            // A panic of a job was caught before.
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
    fn one_thread_runs_all_jobs_and_ends_with_its_owner() {
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
    fn an_idle_thread_ends_and_a_new_one_starts() {
        let worker = Worker::new(Duration::ZERO);
        let first = id(&worker);
        while worker.shared.state().runs {
            thread::yield_now();
        }
        let second = id(&worker);
        assert!(first.is_some() && second.is_some());
        assert_ne!(first, second);
    }

    #[test]
    fn a_job_after_a_panic_runs() {
        let worker = Worker::default();
        assert_eq!(
            worker.run(|| std::panic::resume_unwind(Box::new("no"))),
            Err::<(), _>(JobError::Panicked)
        );
        assert_eq!(worker.run(|| 7), Ok(7));
    }
}

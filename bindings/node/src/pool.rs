//! Threads for calls that may wait, and promises of their results.
//!
//! At most [`THREADS_MAX`] threads run at a time. A wait for records runs in short steps, which
//! JavaScript repeats, so that there can be more listeners than threads.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use napi::Env;
use napi::bindgen_prelude::{Object, ToNapiValue};
use weir::ErrorCode;

use crate::error::{Failure, Result};

/// Largest number of threads.
const THREADS_MAX: usize = 32;

type Job = Box<dyn FnOnce() + Send>;

/// The queued jobs, and the threads.
struct Pool {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    jobs: VecDeque::new(),
    threads: 0,
    idle: 0,
});
static WORK: Condvar = Condvar::new();

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve() {
    let mut pool = pool();
    loop {
        if let Some(job) = pool.jobs.pop_front() {
            drop(pool);
            job();
            pool = self::pool();
            continue;
        }
        pool.idle += 1;
        pool = WORK.wait(pool).unwrap_or_else(PoisonError::into_inner);
        pool.idle -= 1;
    }
}

/// Runs a job in a thread, or in this one if the system cannot start a thread.
fn run(job: Job) {
    let mut pool = pool();
    pool.jobs.push_back(job);
    if pool.idle < pool.jobs.len() && pool.threads < THREADS_MAX {
        let spawned = std::thread::Builder::new()
            .name("weir".to_owned())
            .spawn(serve);
        if spawned.is_ok() {
            pool.threads += 1;
        } else if pool.threads == 0
            && let Some(job) = pool.jobs.pop_back()
        {
            drop(pool);
            job();
            return;
        }
    }
    drop(pool);
    WORK.notify_one();
}

/// Creates the value of a promise, on the thread of the event loop.
pub(crate) type Resolver<T> = Box<dyn FnOnce(Env) -> napi::Result<T> + Send>;

/// Returns a promise of the result of a job in a thread.
///
/// # Errors
/// If the runtime cannot create a promise.
pub(crate) fn promise<T: ToNapiValue + Send + 'static>(
    env: &Env,
    job: impl FnOnce() -> Result<T> + Send + 'static,
) -> napi::Result<Object<'_>> {
    let (deferred, promise) = env.create_deferred::<T, Resolver<T>>()?;
    run(Box::new(move || {
        // A promise must be settled, even after a panic.
        let found = catch_unwind(AssertUnwindSafe(job));
        match found {
            Ok(Ok(value)) => deferred.resolve(Box::new(move |_| Ok(value))),
            Ok(Err(failure)) => deferred.reject(failure.into()),
            Err(_) => {
                let failure = Failure::new(ErrorCode::Panic, "a call panicked");
                deferred.reject(failure.into());
            }
        }
    }));
    Ok(promise)
}

//! Threads for what may wait, and promises for what they find.
//!
//! At most [`THREADS_MAX`] run at a time; what waits for records does so in short turns, which
//! JavaScript repeats, so that more listeners than threads are heard.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use napi::Env;
use napi::bindgen_prelude::{Object, ToNapiValue};
use weir::ErrorCode;

use crate::error::{Answer, Failure};

/// Threads that wait at a time.
const THREADS_MAX: usize = 32;

type Job = Box<dyn FnOnce() + Send>;

/// What waits for a thread, and the threads.
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

/// Runs a job in a thread; here when the system has none to give.
fn run(job: Job) {
    let mut pool = pool();
    pool.jobs.push_back(job);
    if pool.idle < pool.jobs.len() && pool.threads < THREADS_MAX {
        let made = std::thread::Builder::new()
            .name("weir".to_owned())
            .spawn(serve);
        if made.is_ok() {
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

/// How a promise gets its value, on the thread of the event loop.
pub(crate) type Resolver<T> = Box<dyn FnOnce(Env) -> napi::Result<T> + Send>;

/// A promise for what a job finds in a thread.
///
/// # Errors
/// When the runtime makes no promise.
pub(crate) fn promise<T: ToNapiValue + Send + 'static>(
    env: &Env,
    job: impl FnOnce() -> Answer<T> + Send + 'static,
) -> napi::Result<Object<'_>> {
    let (deferred, promise) = env.create_deferred::<T, Resolver<T>>()?;
    run(Box::new(move || {
        // A promise is settled whatever happens.
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

//! Threads that read and render records for responses, and their permits.
//!
//! Reading and rendering a page uses processor time. Permits bound how many requests do so at once,
//! in the order of arrival. On Linux, these threads have a lower priority than those that serve
//! sockets and commit. So a thousand readers do not delay writes.
//!
//! Invariants:
//! - A thread that holds a permit waits only for the disk.
//! - Every request's wait for a permit has a deadline.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;

use crate::limits::budget::BudgetExhausted;

/// Increment of the nice value of the reader threads.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;
/// Longest wait of a request for a permit.
const WAIT: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 2000 });

/// Name of a reader thread in the error after a panic.
pub(crate) const READER_THREAD: &str = "a thread that reads";

/// The threads and their permits. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Readers(Arc<Threads>);

#[derive(Debug)]
struct Threads {
    permits: Arc<Semaphore>,
    count: usize,
    handle: Handle,
    /// Runs only blocking work. `None` while it is dropped.
    runtime: Option<Runtime>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A runtime must not be dropped inside a task, so its threads end in the background.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Readers {
    /// Creates `count` permits and up to `count` threads, which start when they are first needed.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot create a runtime.
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(count)
            .thread_name("weir-read")
            .on_thread_start(lower_priority)
            .build()?;
        Ok(Self(Arc::new(Threads {
            permits: Arc::new(Semaphore::new(count)),
            count,
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        })))
    }

    /// Waits for a permit.
    ///
    /// # Errors
    ///
    /// [`BudgetExhausted`] if none is free within two seconds.
    pub(crate) async fn permit(&self) -> Result<OwnedSemaphorePermit, BudgetExhausted> {
        let permit = tokio::time::timeout(WAIT, self.permit_without_deadline()).await;
        permit.unwrap_or(Err(self.exhausted()))
    }

    /// As `permit`, without a deadline: for requests that wait for records anyway. The semaphore is
    /// never closed, so there is no error.
    pub(crate) async fn permit_without_deadline(
        &self,
    ) -> Result<OwnedSemaphorePermit, BudgetExhausted> {
        let permits = Arc::clone(&self.0.permits);
        let permit = permits.acquire_owned().await;
        permit.map_err(|_| self.exhausted())
    }

    fn exhausted(&self) -> BudgetExhausted {
        BudgetExhausted {
            text: "too many reads of other requests are in progress",
            limit: self.0.count,
        }
    }

    /// Runs `work` on one of the threads. It starts at once if the caller holds a permit.
    ///
    /// # Errors
    ///
    /// A [`JoinError`] if `work` panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        self.0.handle.spawn_blocking(work).await
    }
}

/// Lowers the priority of this thread. Other systems than Linux have a priority per process only.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    {
        // If the system refuses the call (a seccomp filter), the priority is unchanged: many
        // readers then slow down writes, but nothing fails.
        let _ = rustix::process::nice(NICE);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::Readers;

    #[tokio::test]
    async fn a_wait_for_a_permit_times_out_and_later_work_runs() {
        let readers = Readers::new(1).unwrap();
        let first = readers.permit().await.unwrap();
        assert_eq!(readers.permit().await.unwrap_err().limit, 1);
        drop(first);
        let _second = readers.permit().await.unwrap();
        assert_eq!(readers.run(|| 7).await.unwrap(), 7);
        assert!(readers.run(|| panic!("as a test")).await.is_err());
        assert_eq!(readers.run(|| 8).await.unwrap(), 8);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn reader_threads_have_a_lower_priority_than_their_caller() {
        let own = rustix::process::getpriority_process(None).unwrap();
        let readers = Readers::new(1).unwrap();
        let theirs = readers.run(|| rustix::process::getpriority_process(None).unwrap());
        assert_eq!(theirs.await.unwrap(), (own + super::NICE).min(19));
        assert_eq!(rustix::process::getpriority_process(None).unwrap(), own);
    }
}

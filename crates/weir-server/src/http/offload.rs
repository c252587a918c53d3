//! Work that would block the reactor.

use super::problem::{Kind, Problem};
use crate::limits::INLINE_WORK_BYTES;

/// Runs blocking work that borrows data. On a runtime with several threads, the other threads
/// serve the reactor meanwhile. On a runtime with one thread, the reactor waits for the work.
pub(crate) fn inline<T>(work: impl FnOnce() -> T) -> T {
    let flavor = tokio::runtime::Handle::current().runtime_flavor();
    if flavor == tokio::runtime::RuntimeFlavor::MultiThread {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

/// Runs work that borrows a body of `bytes` bytes: as other code up to `INLINE_WORK_BYTES`,
/// otherwise as [`inline`].
pub(crate) fn inline_by_size<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes <= INLINE_WORK_BYTES {
        work()
    } else {
        inline(work)
    }
}

/// Runs work on a body of `bytes` bytes: inline up to `INLINE_WORK_BYTES`, otherwise on a thread
/// that may block.
pub(crate) async fn run_by_size<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    if bytes <= INLINE_WORK_BYTES {
        work()
    } else {
        run(work).await
    }
}

/// Runs work on a thread that may block.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(panicked()))
}

/// The problem of a request whose work panicked.
pub(crate) fn panicked() -> Problem {
    Problem::new(Kind::Internal, "a worker panicked")
}

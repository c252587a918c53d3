//! Work that would block the reactor.

use super::problem::{Kind, Problem};
use crate::limits::INLINE_WORK_BYTES;

/// Runs work that borrows. On a runtime with several threads, the others serve the reactor
/// meanwhile; a single thread runs the work itself.
pub(crate) fn inline<T>(work: impl FnOnce() -> T) -> T {
    let flavor = tokio::runtime::Handle::current().runtime_flavor();
    if flavor == tokio::runtime::RuntimeFlavor::MultiThread {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

/// Runs work on a body of `bytes` bytes: inline up to `INLINE_WORK_BYTES`, otherwise on a thread
/// that may block.
pub(crate) async fn sized<T: Send + 'static>(
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
    done.unwrap_or_else(|_| Err(ended()))
}

/// The problem of a request whose work panicked.
pub(crate) fn ended() -> Problem {
    Problem::new(Kind::Internal, "a worker ended")
}

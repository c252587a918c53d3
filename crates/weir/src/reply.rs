//! Results that can be awaited or waited for.
//!
//! The only mechanism is a future that needs no runtime. A blocking wait polls it on the thread of
//! the caller, which sleeps between polls. Invariants: no call needs a particular executor; no call
//! blocks a thread of an executor on a disk or a server.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use weir_core::ErrorCode;
use weir_store::StoreError;

use crate::error::WeirError;
use crate::error::remote_error;

/// The result of a read. Await it with any runtime, or [`wait`](Self::wait) for it. The request is
/// sent at the first poll. Dropping the reply cancels the request.
#[must_use = "the request is sent only when the reply is awaited or waited for"]
pub struct Reply<T> {
    future: Pin<Box<dyn Future<Output = Result<T, WeirError>> + Send>>,
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

impl<T> Reply<T> {
    pub(crate) fn new(future: impl Future<Output = Result<T, WeirError>> + Send + 'static) -> Self {
        Self {
            future: Box::pin(future),
        }
    }

    /// Waits for the result on this thread.
    ///
    /// # Errors
    /// Errors of the call that created the reply.
    pub fn wait(self) -> Result<T, WeirError> {
        block_on(self)
    }
}

impl<T> Future for Reply<T> {
    type Output = Result<T, WeirError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(context)
    }
}

/// Wakes a sleeping thread.
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// How a thread checks whether its wait was cancelled.
#[derive(Clone)]
struct CancelCheck {
    every: Duration,
    is_cancelled: Arc<dyn Fn() -> bool>,
}

thread_local! {
    static CANCEL_CHECK: RefCell<Option<(CancelCheck, Instant)>> = const { RefCell::new(None) };
}

/// Runs calls whose waits for a server can be cancelled. While this thread waits in such a call, or
/// reads records for a query over topics, it calls `is_cancelled` about once per `every`. When
/// `is_cancelled` returns `true`, the call fails with `Remote` and `Cancelled`. A read is then
/// abandoned, and a query can continue; a write may still be executed.
pub fn interruptible<T>(
    every: Duration,
    is_cancelled: Arc<dyn Fn() -> bool>,
    calls: impl FnOnce() -> T,
) -> T {
    /// Restores the previous setting, even after a panic.
    struct Restore(Option<(CancelCheck, Instant)>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let before = self.0.take();
            CANCEL_CHECK.with(|cell| *cell.borrow_mut() = before);
        }
    }
    let new = (
        CancelCheck {
            every,
            is_cancelled,
        },
        Instant::now(),
    );
    let _before = Restore(CANCEL_CHECK.with(|cell| cell.borrow_mut().replace(new)));
    calls()
}

/// When this thread checks next whether its wait was cancelled; `None`: never.
pub(crate) fn next_check() -> Option<Instant> {
    CANCEL_CHECK.with(|cell| {
        let check = cell.borrow();
        let (check, last) = check.as_ref()?;
        last.checked_add(check.every)
    })
}

/// Calls `is_cancelled` if it is due. No lock is held, because it is foreign code.
///
/// # Errors
/// `Cancelled` if the wait of this thread was cancelled.
pub(crate) fn check_cancelled() -> Result<(), StoreError> {
    let check = CANCEL_CHECK.with(|cell| cell.borrow().clone());
    let Some((check, last)) = check else {
        return Ok(());
    };
    if last.elapsed() < check.every {
        return Ok(());
    }
    // No borrow is active, because `is_cancelled` may use this module.
    let over = (check.is_cancelled)();
    CANCEL_CHECK.with(|cell| {
        if let Some((_, last)) = &mut *cell.borrow_mut() {
            *last = Instant::now();
        }
    });
    if over {
        return Err(remote_error(ErrorCode::Cancelled, "the wait was cancelled"));
    }
    Ok(())
}

/// Runs a future on this thread, which sleeps between polls.
pub(crate) fn block_on<T, E: From<StoreError>>(
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(ThreadWaker(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        match next_check() {
            None => std::thread::park(),
            Some(next) => {
                std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
            }
        }
        check_cancelled()?;
    }
}

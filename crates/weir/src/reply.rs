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
#[must_use = "nothing is asked before it is awaited or waited for"]
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
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// How a thread checks whether its wait was cancelled.
#[derive(Clone)]
struct Look {
    every: Duration,
    look: Arc<dyn Fn() -> bool>,
}

thread_local! {
    static LOOK: RefCell<Option<(Look, Instant)>> = const { RefCell::new(None) };
}

/// Runs calls whose waits for a server can be cancelled. While this thread waits in such a call, it
/// calls `look` about once per `every`. When `look` returns `true`, the call fails with `Remote`
/// and `Cancelled`. A read is then abandoned; a write may still be executed.
pub fn interruptible<T>(
    every: Duration,
    look: Arc<dyn Fn() -> bool>,
    calls: impl FnOnce() -> T,
) -> T {
    /// Restores the previous setting, even after a panic.
    struct Before(Option<(Look, Instant)>);
    impl Drop for Before {
        fn drop(&mut self) {
            let before = self.0.take();
            LOOK.with(|one| *one.borrow_mut() = before);
        }
    }
    let new = (Look { every, look }, Instant::now());
    let _before = Before(LOOK.with(|one| one.borrow_mut().replace(new)));
    calls()
}

/// When this thread checks next whether its wait was cancelled; `None`: never.
pub(crate) fn next_look() -> Option<Instant> {
    LOOK.with(|one| {
        let look = one.borrow();
        let (look, last) = look.as_ref()?;
        last.checked_add(look.every)
    })
}

/// Calls `look` if it is due. No lock is held, because it is foreign code.
///
/// # Errors
/// `Cancelled` if the wait of this thread was cancelled.
pub(crate) fn look() -> Result<(), StoreError> {
    let look = LOOK.with(|one| one.borrow().clone());
    let Some((look, last)) = look else {
        return Ok(());
    };
    if last.elapsed() < look.every {
        return Ok(());
    }
    // No borrow is active, because `look` may use this module.
    let over = (look.look)();
    LOOK.with(|one| {
        if let Some((_, last)) = &mut *one.borrow_mut() {
            *last = Instant::now();
        }
    });
    if over {
        return Err(remote_error(
            ErrorCode::Cancelled,
            "the wait was broken off",
        ));
    }
    Ok(())
}

/// Runs a future on this thread, which sleeps between polls.
pub(crate) fn block_on<T, E: From<StoreError>>(
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Sleeper(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        match next_look() {
            None => std::thread::park(),
            Some(next) => {
                std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
            }
        }
        look()?;
    }
}

//! Answers that can be awaited or waited for.
//!
//! There is one mechanism: a future that needs no runtime. A blocking wait
//! polls it on the thread of the caller, which sleeps in between. Invariants:
//! no call needs a certain executor, or makes a thread of an executor wait for
//! a disk or a server.

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

/// The answer to a read that is on its way. Await it with any runtime, or
/// [`wait`](Self::wait) for it. Nothing is asked before the first poll; dropping
/// it takes the question back.
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

    /// Waits for the answer on this thread.
    ///
    /// # Errors
    /// Those of the call that made it.
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

/// Wakes a thread that sleeps.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// How a thread hears that it shall wait no longer.
#[derive(Clone)]
struct Look {
    every: Duration,
    look: Arc<dyn Fn() -> bool>,
}

thread_local! {
    static LOOK: RefCell<Option<(Look, Instant)>> = const { RefCell::new(None) };
}

/// Runs calls that wait for a server so that they can be broken off: while this
/// thread waits in one of them, `look` is called about as often as said, and
/// when it returns true that call fails with `Remote` and `Cancelled`. What was
/// asked is taken back; what was written may still come about.
pub fn interruptible<T>(
    every: Duration,
    look: Arc<dyn Fn() -> bool>,
    calls: impl FnOnce() -> T,
) -> T {
    /// What was there before comes back, even after a panic.
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

/// When this thread looks next whether it shall wait no longer; none: never.
pub(crate) fn next_look() -> Option<Instant> {
    LOOK.with(|one| {
        let look = one.borrow();
        let (look, last) = look.as_ref()?;
        last.checked_add(look.every)
    })
}

/// Looks, if it is time to. No lock is held: it is foreign code.
///
/// # Errors
/// `Cancelled` when this thread shall wait no longer.
pub(crate) fn look() -> Result<(), StoreError> {
    let look = LOOK.with(|one| one.borrow().clone());
    let Some((look, last)) = look else {
        return Ok(());
    };
    if last.elapsed() < look.every {
        return Ok(());
    }
    // Nothing is borrowed meanwhile.
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

/// Runs a future on this thread, which sleeps while there is nothing to do.
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

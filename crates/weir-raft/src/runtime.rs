//! The runtime of openraft in builds with the feature `sim`: tokio, with two changes on
//! threads that have a seed (docs/decisions/0079). Other builds use openraft's own.
//!
//! tokio wakes the waiters of a watch channel in random order, and openraft draws election
//! timeouts from the random source of the thread. Each would make two runs of one seed
//! different.
//!
//! Invariants:
//! - On a thread with a seed, waiters of a channel wake in the order in which they began to
//!   wait, and every random number of openraft follows from the seed.
//! - On a thread without a seed, every call is tokio's.
//! - The value of a channel, its version and its end are always tokio's.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use openraft::async_runtime::watch::{SendError, Watch, WatchReceiver, WatchSender};
use openraft::async_runtime::{AsyncRuntime, RecvError};
use openraft::{OptionalSend, OptionalSync, TokioRuntime};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::Notify;
use tokio::task::unconstrained;

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From now on, the random numbers of this thread follow from `seed`.
pub(crate) fn seed_thread(seed: u64) {
    SEED.set(Some(seed));
}

/// Whether this thread has a seed: a simulation runs on it.
pub(crate) fn is_seeded() -> bool {
    SEED.get().is_some()
}

/// The runtime of tokio.
pub struct Runtime(TokioRuntime);

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Runtime")
    }
}

impl AsyncRuntime for Runtime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> =
        <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = SmallRng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = OrderedWatch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }

    fn thread_rng() -> SmallRng {
        match SEED.get() {
            Some(seed) => {
                SEED.set(Some(seed.wrapping_add(1)));
                SmallRng::seed_from_u64(seed)
            }
            None => rand::make_rng(),
        }
    }

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }

    fn spawn_blocking<F, T>(f: F) -> impl Future<Output = Result<T, io::Error>> + Send
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        TokioRuntime::spawn_blocking(f)
    }
}

type TokioWatch = <TokioRuntime as AsyncRuntime>::Watch;

/// Watch channels of tokio that wake in order on threads with a seed.
#[derive(Debug)]
pub struct OrderedWatch;

/// Wakes the waiters when a sender ends: the channel may be closed then.
struct Waiters(Arc<Notify>);

impl Drop for Waiters {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

/// The sender of a channel.
pub struct Sender<T: OptionalSend + OptionalSync> {
    inner: <TokioWatch as Watch>::Sender<T>,
    // After `inner`: the channel is closed before its waiters check it.
    waiters: Option<Waiters>,
}

impl<T: OptionalSend + OptionalSync> Sender<T> {
    fn wake(&self) {
        if let Some(Waiters(changed)) = &self.waiters {
            changed.notify_waiters();
        }
    }
}

impl<T: OptionalSend + OptionalSync> Clone for Sender<T> {
    fn clone(&self) -> Self {
        let waiters = self.waiters.as_ref();
        Self {
            inner: self.inner.clone(),
            waiters: waiters.map(|Waiters(changed)| Waiters(Arc::clone(changed))),
        }
    }
}

/// A receiver of a channel.
pub struct Receiver<T: OptionalSend + OptionalSync> {
    inner: <TokioWatch as Watch>::Receiver<T>,
    changed: Option<Arc<Notify>>,
}

impl<T: OptionalSend + OptionalSync> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            changed: self.changed.clone(),
        }
    }
}

impl Watch for OrderedWatch {
    type Sender<T: OptionalSend + OptionalSync> = Sender<T>;
    type Receiver<T: OptionalSend + OptionalSync> = Receiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = <TokioWatch as Watch>::Ref<'a, T>;

    fn channel<T: OptionalSend + OptionalSync>(init: T) -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = TokioWatch::channel(init);
        let changed = is_seeded().then(Arc::<Notify>::default);
        let sender = Sender {
            inner: sender,
            waiters: changed.clone().map(Waiters),
        };
        let receiver = Receiver {
            inner: receiver,
            changed,
        };
        (sender, receiver)
    }
}

impl<T: OptionalSend + OptionalSync> WatchSender<OrderedWatch, T> for Sender<T> {
    fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.inner.send(value)?;
        self.wake();
        Ok(())
    }

    fn send_if_modified<F>(&self, modify: F) -> bool
    where
        F: FnOnce(&mut T) -> bool,
    {
        let is_modified = self.inner.send_if_modified(modify);
        if is_modified {
            self.wake();
        }
        is_modified
    }

    fn borrow_watched(&self) -> <OrderedWatch as Watch>::Ref<'_, T> {
        self.inner.borrow_watched()
    }

    fn subscribe(&self) -> Receiver<T> {
        let waiters = self.waiters.as_ref();
        Receiver {
            inner: self.inner.subscribe(),
            changed: waiters.map(|Waiters(changed)| Arc::clone(changed)),
        }
    }
}

impl<T: OptionalSend + OptionalSync> WatchReceiver<OrderedWatch, T> for Receiver<T> {
    async fn changed(&mut self) -> Result<(), RecvError> {
        let Some(changed) = self.changed.clone() else {
            return self.inner.changed().await;
        };
        loop {
            let mut notified = pin!(changed.notified());
            // A change after this line wakes this waiter.
            notified.as_mut().enable();
            // The budget of the task must not hide a change: no later change would wake it.
            if let Some(result) = unconstrained(self.inner.changed()).now_or_never() {
                return result;
            }
            notified.await;
        }
    }

    fn borrow_watched(&self) -> <OrderedWatch as Watch>::Ref<'_, T> {
        self.inner.borrow_watched()
    }

    fn borrow_and_update(&mut self) -> <OrderedWatch as Watch>::Ref<'_, T> {
        self.inner.borrow_and_update()
    }
}

//! Batches the wake-ups between the reactor and the commit thread of the store.
//!
//! Waking a thread takes a system call and a context switch, which cost more than the write itself.
//! Writes that start in one turn of the reactor wake the commit thread once, after all tasks that
//! were ready in that turn. Verdicts of the commit thread wake the reactor once, until it has
//! processed them. No write waits for others: a single write wakes the commit thread when its task
//! returns.
//!
//! Invariants:
//! - The commit thread is woken after every write.
//! - Every stored waker is called.

use parking_lot::Mutex;
use std::sync::Arc;
use std::task::{Wake, Waker};

use tokio::sync::Notify;
use weir_store::Store;

/// Shared by all code that writes.
#[derive(Debug, Default)]
pub(crate) struct WakeBatches {
    queued: Notify,
    completed: Notify,
    wakers: Mutex<Vec<Waker>>,
}

impl WakeBatches {
    /// Records that the store has a write and was not woken for it.
    pub(crate) fn write_queued(&self) {
        self.queued.notify_one();
    }

    /// Returns a waker for a proposal, which calls `waker` on the reactor.
    pub(crate) fn waker(self: &Arc<Self>, waker: &Waker) -> Waker {
        Waker::from(Arc::new(BatchedWaker {
            wake_batches: Arc::clone(self),
            waker: waker.clone(),
        }))
    }

    fn add_waker(&self, waker: Waker) {
        let mut wakers = self.lock();
        let is_first = wakers.is_empty();
        wakers.push(waker);
        drop(wakers);
        if is_first {
            self.completed.notify_one();
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Vec<Waker>> {
        self.wakers.lock()
    }

    /// Forwards wake-ups in both directions; never returns.
    pub(crate) async fn run(&self, store: &Store) {
        let mut wakers = Vec::new();
        loop {
            tokio::select! {
                () = self.queued.notified() => store.wake(),
                () = self.completed.notified() => {
                    std::mem::swap(&mut *self.lock(), &mut wakers);
                    wakers.drain(..).for_each(Waker::wake);
                }
            }
        }
    }
}

struct BatchedWaker {
    wake_batches: Arc<WakeBatches>,
    waker: Waker,
}

impl Wake for BatchedWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_batches.add_waker(self.waker.clone());
    }
}

//! One wake for many: between the reactor and the commit thread of the store.
//!
//! Waking a thread is a system call and a switch, which cost more than the
//! write that is handed over. So writes that are begun in one turn of the
//! reactor wake the store once, after the tasks that were ready with them;
//! and answers that the store gives before the reactor has looked wake it
//! once. Nobody waits for company: a write alone is handed over as soon as its
//! task has returned.
//!
//! What must never happen here: a write handed over of which the store is not
//! told, or a waker that is kept and not called.

use parking_lot::Mutex;
use std::sync::Arc;
use std::task::{Wake, Waker};

use tokio::sync::Notify;
use weir_store::Store;

/// Shared by everything that writes.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    handed: Notify,
    answered: Notify,
    wakers: Mutex<Vec<Waker>>,
}

impl Turns {
    /// The store has a write of which it was not told.
    pub(crate) fn handed_over(&self) {
        self.handed.notify_one();
    }

    /// A waker for a proposal: it has `waker` called on the reactor.
    pub(crate) fn waker(self: &Arc<Self>, waker: &Waker) -> Waker {
        Waker::from(Arc::new(Answered {
            turns: Arc::clone(self),
            waker: waker.clone(),
        }))
    }

    fn answer(&self, waker: Waker) {
        let mut wakers = self.lock();
        let first = wakers.is_empty();
        wakers.push(waker);
        drop(wakers);
        if first {
            self.answered.notify_one();
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Vec<Waker>> {
        self.wakers.lock()
    }

    /// Passes on what is handed over and answered, for ever.
    pub(crate) async fn run(&self, store: &Store) {
        let mut wakers = Vec::new();
        loop {
            tokio::select! {
                () = self.handed.notified() => store.wake(),
                () = self.answered.notified() => {
                    std::mem::swap(&mut *self.lock(), &mut wakers);
                    wakers.drain(..).for_each(Waker::wake);
                }
            }
        }
    }
}

struct Answered {
    turns: Arc<Turns>,
    waker: Waker,
}

impl Wake for Answered {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.turns.answer(self.waker.clone());
    }
}

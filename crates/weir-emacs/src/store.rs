//! Stores that Lisp owns, and the list of open stores.

use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use weir::{Topic, Weir};

use crate::failure::Failure;
use crate::threads::{locked, thread};

/// An open store; `None` after it was closed.
type OpenStore = Mutex<Option<Weir>>;
type Shared = Arc<OpenStore>;

/// A store that Lisp owns: `None` after it was closed.
pub(crate) struct Handle(Shared);

/// Stores that were opened and not finalized.
static OPEN: LazyLock<Mutex<Vec<Weak<OpenStore>>>> = LazyLock::new(Mutex::default);

impl Handle {
    pub(crate) fn new(weir: Weir) -> Self {
        let shared: Shared = Arc::new(Mutex::new(Some(weir)));
        let mut open = locked(&OPEN);
        open.retain(|one| one.strong_count() > 0);
        open.push(Arc::downgrade(&shared));
        Self(shared)
    }

    pub(crate) fn take(&self) -> Option<Weir> {
        locked(&self.0).take()
    }

    /// The store. The caller gets a clone, so no call holds the lock.
    pub(crate) fn weir(&self) -> Result<Weir, Failure> {
        locked(&self.0).clone().ok_or_else(Failure::closed)
    }

    pub(crate) fn topic(&self, name: &str) -> Result<Topic, Failure> {
        Ok(self.weir()?.topic(name)?)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The finalizer must not wait: closing may sync.
        if let Some(weir) = self.take() {
            // Without a thread, the store is closed here.
            let _ = thread("weir-drop", move || drop(weir));
        }
    }
}

/// Stores that are open.
pub(crate) fn count() -> usize {
    let open = locked(&OPEN);
    let alive = open.iter().filter_map(Weak::upgrade);
    alive.filter(|store| locked(store).is_some()).count()
}

/// Closes all stores, and waits until `deadline`. Returns whether all were closed in time.
pub(crate) fn close_all(deadline: Instant) -> bool {
    let open: Vec<Shared> = locked(&OPEN).iter().filter_map(Weak::upgrade).collect();
    let stores: Vec<Weir> = open.iter().filter_map(|one| locked(one).take()).collect();
    if stores.is_empty() {
        return true;
    }
    let state = Arc::new((Mutex::new(false), Condvar::new()));
    let ended = Arc::clone(&state);
    let started = thread("weir-close", move || {
        for store in stores {
            drop(store.close());
        }
        *locked(&ended.0) = true;
        ended.1.notify_all();
    });
    if started.is_err() {
        return false;
    }
    let left = deadline.saturating_duration_since(Instant::now());
    let (lock, changed) = &*state;
    let waited =
        changed.wait_timeout_while(locked(lock), left.max(Duration::from_millis(1)), |done| {
            !*done
        });
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

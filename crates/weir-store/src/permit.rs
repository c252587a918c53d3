//! The permit to write or remove snapshots and segments: one holder at a time,
//! and unlike a lock's guard it can go to another thread.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::lock_ext::LockExt;

#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    busy: Mutex<bool>,
    free: Condvar,
}

/// Held while maintenance runs.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Maintenance>);

impl Maintenance {
    /// Waits until nobody else holds the permit.
    pub(crate) fn acquire(self: &Arc<Self>) -> Permit {
        let mut busy = self.busy.lock_ok();
        while *busy {
            busy = self.free.wait(busy).unwrap_or_else(PoisonError::into_inner);
        }
        *busy = true;
        Permit(Arc::clone(self))
    }

    /// The permit, if it is free now.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        let mut busy = self.busy.lock_ok();
        if std::mem::replace(&mut *busy, true) {
            None
        } else {
            Some(Permit(Arc::clone(self)))
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.0.busy.lock_ok() = false;
        self.0.free.notify_one();
    }
}

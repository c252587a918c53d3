//! A permit that one holder has at a time. Unlike the guard of a lock, the permit can move to
//! another thread. Maintenance (tasks that write or remove snapshots and segments) and claims
//! of a group use it.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

/// Grants a permit to one holder at a time.
#[derive(Debug, Default)]
pub(crate) struct Exclusive {
    busy: Mutex<bool>,
    free: Condvar,
}

/// The permit. Dropping this value releases the permit.
#[derive(Debug)]
pub(crate) struct ExclusivePermit(Arc<Exclusive>);

impl Exclusive {
    /// Blocks until the permit is free, and acquires it.
    pub(crate) fn acquire(self: &Arc<Self>) -> ExclusivePermit {
        let mut busy = self.busy.lock();
        while *busy {
            self.free.wait(&mut busy);
        }
        *busy = true;
        ExclusivePermit(Arc::clone(self))
    }

    /// Acquires the permit if it is free now.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<ExclusivePermit> {
        let mut busy = self.busy.lock();
        if std::mem::replace(&mut *busy, true) {
            None
        } else {
            Some(ExclusivePermit(Arc::clone(self)))
        }
    }
}

impl Drop for ExclusivePermit {
    fn drop(&mut self) {
        *self.0.busy.lock() = false;
        self.0.free.notify_one();
    }
}

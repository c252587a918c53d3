//! State that requests for streams share. It can be rebuilt from the store.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{MutexGuard, OwnedMutexGuard};
use tokio::time::{Instant, timeout};

use super::config::{Config, Expiry};
use super::terms::KEYED_LOCKS_MIN;
use crate::http::problem::{Kind, Problem};

/// Locks that serialize requests by name. Each name has its own lock, because a request holds its
/// lock until a verdict, which may take long.
#[derive(Debug, Default)]
pub(crate) struct KeyedLocks(Mutex<LockTable>);

/// A topic, and a name within it.
type LockName = (String, Vec<u8>);

#[derive(Debug, Default)]
struct LockTable {
    locks: HashMap<LockName, Weak<tokio::sync::Mutex<()>>>,
    /// Number of locks at which unused locks are removed.
    remove_at: usize,
}

impl KeyedLocks {
    /// Acquires the lock of a name; waits at most `limit`.
    pub(crate) async fn acquire(
        &self,
        limit: Duration,
        (topic, name): (&str, &[u8]),
    ) -> Result<OwnedMutexGuard<()>, Problem> {
        let lock = self.0.lock().lock_of((topic.to_owned(), name.to_owned()));
        let guard = timeout(limit, lock.lock_owned()).await;
        guard.map_err(|_| busy())
    }
}

impl LockTable {
    fn lock_of(&mut self, name: LockName) -> Arc<tokio::sync::Mutex<()>> {
        if self.locks.len() >= self.remove_at {
            self.locks.retain(|_, lock| lock.strong_count() > 0);
            self.remove_at = KEYED_LOCKS_MIN.max(2 * self.locks.len());
        }
        let entry = self.locks.entry(name).or_default();
        entry.upgrade().unwrap_or_else(|| {
            let lock = Arc::default();
            *entry = Arc::downgrade(&lock);
            lock
        })
    }
}

/// Acquires a lock; waits at most `limit`, the time limit of the store.
pub(crate) async fn lock(
    limit: Duration,
    mutex: &tokio::sync::Mutex<()>,
) -> Result<MutexGuard<'_, ()>, Problem> {
    let guard = timeout(limit, mutex.lock()).await;
    guard.map_err(|_| busy())
}

fn busy() -> Problem {
    Problem::new(Kind::Busy, "other changes of the topic take too long")
}

/// State that requests for streams share.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// The time of the last use of each stream that expires when idle.
    pub(crate) leases: Mutex<Leases>,
    /// The term in which this server was last seen to lead; `None` if it did not lead.
    pub(crate) leading: Mutex<Option<u64>>,
    /// The description of each stream, with its incarnation.
    pub(crate) configs: Mutex<HashMap<String, (u64, Arc<Config>)>>,
    /// Locks of producers. They protect no data: conditions in the store decide whether a request
    /// succeeds. The locks only avoid attempts that would fail.
    pub(crate) producers: KeyedLocks,
    /// Locks of writes with `Stream-Seq`, for the same purpose.
    pub(crate) orders: KeyedLocks,
    /// Held while a fork or an expiring stream is created or deleted.
    pub(crate) structure: tokio::sync::Mutex<()>,
}

/// One stream that expires.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) expiry: Expiry,
    pub(crate) used: Instant,
    /// Number of readers that wait for new records.
    pub(crate) readers: usize,
}

/// The leases of all streams that expire, by topic.
#[derive(Debug, Default)]
pub(crate) struct Leases(HashMap<String, Lease>);

impl Lease {
    pub(crate) fn new(expiry: Expiry) -> Self {
        Self {
            expiry,
            used: Instant::now(),
            readers: 0,
        }
    }

    /// Whether the stream has expired at `now_ms`, a time of the store: a wall clock that
    /// jumps expires no stream (docs/operating/clocks.md).
    pub(crate) fn is_expired(&self, expiry: Expiry, now_ms: u64) -> bool {
        match expiry {
            Expiry::Never => false,
            Expiry::At(ms) => ms <= now_ms,
            Expiry::Idle(seconds) => {
                self.readers == 0 && self.used.elapsed() >= Duration::from_secs(seconds)
            }
        }
    }
}

impl Streams {
    /// Runs `work` on the leases, under their lock.
    pub(crate) fn with_leases<T>(&self, work: impl FnOnce(&mut HashMap<String, Lease>) -> T) -> T {
        work(&mut self.leases.lock().0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::time::Duration;

    use super::KeyedLocks;

    const NAMES: usize = 1_000;
    const LONG: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn each_name_has_its_own_lock() {
        let locks = KeyedLocks::default();
        let mut guards = Vec::new();
        for number in 0..NAMES {
            let topic = number.to_string();
            guards.push(locks.acquire(LONG, (&topic, b"")).await.unwrap());
        }
        assert!(locks.acquire(Duration::ZERO, ("7", b"")).await.is_err());
        drop(guards);
        assert!(locks.acquire(LONG, ("7", b"")).await.is_ok());
    }

    #[tokio::test]
    async fn unused_locks_are_removed() {
        let locks = KeyedLocks::default();
        let _held = locks.acquire(LONG, ("held", b"")).await.unwrap();
        for number in 0..NAMES {
            let topic = number.to_string();
            drop(locks.acquire(LONG, (&topic, b"")).await.unwrap());
        }
        assert!(locks.0.lock().locks.len() <= super::KEYED_LOCKS_MIN);
        assert!(locks.acquire(Duration::ZERO, ("held", b"")).await.is_err());
    }
}

//! State that requests for streams share. It can be rebuilt from the store.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{MutexGuard, OwnedMutexGuard};
use tokio::time::{Instant, timeout};

use super::config::{Config, Expiry};
use super::terms::KEYED_LOCKS;
use crate::http::problem::{Kind, Problem};

/// Locks that serialize requests by key.
#[derive(Debug)]
pub(crate) struct KeyedLocks(Vec<Arc<tokio::sync::Mutex<()>>>, RandomState);

impl Default for KeyedLocks {
    fn default() -> Self {
        let mutexes = std::iter::repeat_with(Arc::default);
        Self(mutexes.take(KEYED_LOCKS).collect(), RandomState::new())
    }
}

impl KeyedLocks {
    /// Acquires the lock of `name`; waits at most `limit`.
    pub(crate) async fn acquire(
        &self,
        limit: Duration,
        name: (&str, &[u8]),
    ) -> Result<Option<OwnedMutexGuard<()>>, Problem> {
        let index = self.1.hash_one(name) % KEYED_LOCKS as u64;
        let Some(mutex) = self.0.get(usize::try_from(index).unwrap_or(0)) else {
            return Ok(None);
        };
        let guard = timeout(limit, Arc::clone(mutex).lock_owned()).await;
        guard.map(Some).map_err(|_| busy())
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

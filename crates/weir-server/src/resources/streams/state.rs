//! State that requests for streams share. All of it can be rebuilt from the store.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::config::{Config, Expiry};
use super::terms::TURNS;
use crate::http::problem::{Kind, Problem};

/// Turns of requests that run one after the other. They guard no data and admit nobody:
/// conditions in the store decide. They only save attempts that would fail.
#[derive(Debug)]
pub(crate) struct KeyedLocks(Vec<tokio::sync::Mutex<()>>, RandomState);

impl Default for KeyedLocks {
    fn default() -> Self {
        let rows = std::iter::repeat_with(tokio::sync::Mutex::default);
        Self(rows.take(TURNS).collect(), RandomState::new())
    }
}

impl KeyedLocks {
    /// Waits for the turn of the writer of this name, at most `limit`.
    pub(crate) async fn take(
        &self,
        limit: Duration,
        name: (&str, &[u8]),
    ) -> Result<Option<MutexGuard<'_, ()>>, Problem> {
        let row = self.1.hash_one(name) % TURNS as u64;
        match self.0.get(usize::try_from(row).unwrap_or(0)) {
            Some(row) => turn(limit, row).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Waits for a turn, at most `limit`, the time for the store.
pub(crate) async fn turn(
    limit: Duration,
    row: &tokio::sync::Mutex<()>,
) -> Result<MutexGuard<'_, ()>, Problem> {
    let taken = tokio::time::timeout(limit, row.lock()).await;
    taken.map_err(|_| Problem::new(Kind::Busy, "others who change the stream take too long"))
}

/// What requests for streams share. All of it can be made again from the store.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// When streams were used that live only as long as they are.
    pub(crate) leases: Mutex<Leases>,
    /// Descriptions, with the incarnation that they are of.
    pub(crate) configs: Mutex<HashMap<String, (u64, Arc<Config>)>>,
    /// Turns of producers.
    pub(crate) producers: KeyedLocks,
    /// Turns of writes with `Stream-Seq`.
    pub(crate) orders: KeyedLocks,
    /// Held while a fork or an expiring stream is created, and while one is ended.
    pub(crate) structure: tokio::sync::Mutex<()>,
}

/// One stream that expires.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) expiry: Expiry,
    pub(crate) used: Instant,
    /// Readers that wait for more of it.
    pub(crate) readers: usize,
}

/// All of them, by topic.
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

    /// Whether the end has come at `now_ms`, a time of the store: a wall clock that
    /// jumps ends no stream (docs/operating/clocks.md).
    pub(crate) fn is_over(&self, expiry: Expiry, now_ms: u64) -> bool {
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

//! Slots of connections: how many may be open, and which one is closed for a newcomer.
//!
//! All ports share one table, because they share the descriptors of the process
//! (`descriptors`). A connection counts as authenticated after the first request on it passed
//! its checks. Before that, one more than `connections_unauthenticated_max` closes the oldest
//! such connection, so that idle sockets neither use up the slots nor keep others out.
//!
//! Invariants: every slot that was given is given back once; the lock is never held across a
//! wait.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::config::ServerConfig;
use crate::limits::descriptors::Descriptors;
use crate::metrics::Gauge;
use crate::security::Door;
use crate::shared::Shared;

/// The connections of all ports.
#[derive(Debug, Default)]
pub(crate) struct ConnectionTable {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    open: usize,
    by_address: HashMap<(Door, IpAddr), usize>,
    /// Connections that are not authenticated, oldest first.
    unauthenticated: BTreeMap<u64, Arc<Notify>>,
    /// Number of the newest connection.
    last: u64,
}

/// The slot of one connection; free again when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    shared: Arc<Shared>,
    door: Door,
    /// None for a process of this machine at the socket.
    address: Option<IpAddr>,
    number: u64,
    authenticated: AtomicBool,
    evicted: Arc<Notify>,
}

fn count(shared: &Shared, door: Door) -> &Gauge {
    match door {
        Door::Http => &shared.metrics.http_connections,
        Door::Native => &shared.metrics.native_connections,
    }
}

impl ConnectionTable {
    /// A slot for a connection from `address`, or for one of this machine's socket. `None`:
    /// there are too many connections. May evict another connection.
    pub(crate) fn slot(
        shared: &Arc<Shared>,
        door: Door,
        address: Option<IpAddr>,
    ) -> Option<Arc<Slot>> {
        let (config, limits) = (&shared.config, &shared.descriptors);
        let mut inner = shared.connections.lock();
        let of_port = count(shared, door);
        if of_port.get() >= config.connections_max as u64 {
            return None;
        }
        let evicted = Arc::new(Notify::new());
        inner.last += 1;
        let number = inner.last;
        match address {
            None if inner.open >= limits.local_connections_max => return None,
            None => {}
            Some(_) if inner.open >= limits.connections_max => return None,
            Some(address) => {
                let of_address = inner.by_address.entry((door, address)).or_default();
                if *of_address >= config.connections_per_address_max {
                    return None;
                }
                *of_address += 1;
                if inner.unauthenticated.len() >= unauthenticated_max(config, limits)
                    && let Some((_, oldest)) = inner.unauthenticated.pop_first()
                {
                    oldest.notify_one();
                    shared.metrics.evicted.add(1);
                }
                inner.unauthenticated.insert(number, Arc::clone(&evicted));
            }
        }
        inner.open += 1;
        of_port.add(1);
        Some(Arc::new(Slot {
            shared: Arc::clone(shared),
            door,
            address,
            number,
            authenticated: AtomicBool::new(address.is_none()),
            evicted,
        }))
    }

    /// Connections that are not authenticated.
    pub(crate) fn unauthenticated(&self) -> usize {
        self.lock().unauthenticated.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing that can panic is done under the lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connections that are not authenticated: at most half of what the descriptors allow.
fn unauthenticated_max(config: &ServerConfig, limits: &Descriptors) -> usize {
    let half = (limits.connections_max / 2).max(1);
    config.connections_unauthenticated_max.clamp(1, half)
}

impl Slot {
    /// A request on the connection passed its checks: it is not evicted any more.
    pub(crate) fn authenticated(&self) {
        if !self.authenticated.load(Ordering::Relaxed)
            && !self.authenticated.swap(true, Ordering::Relaxed)
        {
            let mut inner = self.shared.connections.lock();
            inner.unauthenticated.remove(&self.number);
        }
    }

    /// Waits until the connection is closed for a newer one; usually for ever.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        count(&self.shared, self.door).sub(1);
        let mut inner = self.shared.connections.lock();
        inner.open -= 1;
        inner.unauthenticated.remove(&self.number);
        let Some(address) = self.address else { return };
        let key = (self.door, address);
        if let Some(count) = inner.by_address.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                inner.by_address.remove(&key);
            }
        }
    }
}

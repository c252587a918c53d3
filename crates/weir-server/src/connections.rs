//! Slots of connections: how many may be open, and which one is closed for a newcomer.
//!
//! All ports share one table, because they share the descriptors of the process
//! (`descriptors`). A connection counts as authenticated after the first request on it passed
//! its checks. Before that, one more than `connections_unauthenticated_max` closes the oldest
//! such connection, so that idle sockets neither use up the slots nor keep others out.
//!
//! Invariants: every slot that was given is given back once; the lock is never held across a
//! wait.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::config::ServerConfig;
use crate::descriptors::Descriptors;
use crate::metrics::{Gauge, Metrics};
use crate::security::Door;

/// The connections of all ports.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    inner: Mutex<Inner>,
    metrics: Arc<Metrics>,
    /// Connections of a port.
    port_max: usize,
    /// Connections of a port and an address.
    address_max: usize,
    /// Connections that are not authenticated.
    unauthenticated_max: usize,
    descriptors: Descriptors,
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
    table: Arc<ConnectionTable>,
    door: Door,
    /// None for a process of this machine at the socket.
    address: Option<IpAddr>,
    number: u64,
    authenticated: AtomicBool,
    evicted: Arc<Notify>,
}

impl ConnectionTable {
    pub(crate) fn new(
        config: &ServerConfig,
        descriptors: Descriptors,
        metrics: Arc<Metrics>,
    ) -> Self {
        // At most half of what the descriptors allow.
        let half = (descriptors.connections_max / 2).max(1);
        Self {
            inner: Mutex::default(),
            metrics,
            port_max: config.connections_max,
            address_max: config.connections_per_address_max,
            unauthenticated_max: config.connections_unauthenticated_max.clamp(1, half),
            descriptors,
        }
    }

    fn count(&self, door: Door) -> &Gauge {
        match door {
            Door::Http => &self.metrics.http_connections,
            Door::Native => &self.metrics.native_connections,
        }
    }

    /// A slot for a connection from `address`, or for one of this machine's socket. `None`:
    /// there are too many connections. May evict another connection.
    pub(crate) fn slot(self: &Arc<Self>, door: Door, address: Option<IpAddr>) -> Option<Arc<Slot>> {
        let mut inner = self.lock();
        let of_port = self.count(door);
        if of_port.get() >= self.port_max as u64 {
            return None;
        }
        let evicted = Arc::new(Notify::new());
        inner.last += 1;
        let number = inner.last;
        match address {
            None if inner.open >= self.descriptors.local_connections_max => return None,
            None => {}
            Some(_) if inner.open >= self.descriptors.connections_max => return None,
            Some(address) => {
                let of_address = inner.by_address.entry((door, address)).or_default();
                if *of_address >= self.address_max {
                    return None;
                }
                *of_address += 1;
                if inner.unauthenticated.len() >= self.unauthenticated_max
                    && let Some((_, oldest)) = inner.unauthenticated.pop_first()
                {
                    oldest.notify_one();
                    self.metrics.evicted.add(1);
                }
                inner.unauthenticated.insert(number, Arc::clone(&evicted));
            }
        }
        inner.open += 1;
        of_port.add(1);
        Some(Arc::new(Slot {
            table: Arc::clone(self),
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
        self.inner.lock()
    }
}

impl Slot {
    /// A request on the connection passed its checks: it is not evicted any more.
    pub(crate) fn authenticated(&self) {
        if !self.authenticated.load(Ordering::Relaxed)
            && !self.authenticated.swap(true, Ordering::Relaxed)
        {
            let mut inner = self.table.lock();
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
        self.table.count(self.door).sub(1);
        let mut inner = self.table.lock();
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

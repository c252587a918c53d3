//! Slots of connections: limits the open connections, and evicts one for a new one.
//!
//! All ports share one table, because they share the descriptors of the process
//! (`descriptors`). A connection counts as authenticated after the first request on it passed its
//! checks. If more than `connections_unauthenticated_max` connections are not authenticated, the
//! oldest of them is evicted. So idle sockets neither use up the slots nor block other clients. An
//! evicted connection occupies its slot until its task ends; a new connection that finds no slot
//! waits for such slots.
//!
//! Invariants:
//! - Every slot is returned exactly once.
//! - The lock is never held across a wait.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::config::ServerConfig;
use crate::descriptors::Descriptors;
use crate::metrics::{Gauge, Metrics};
use crate::security::{Protocol, network};

/// How long a new connection waits for the slots of evicted connections.
const EVICTION_MAX: Duration = Duration::from_secs(1);

/// The connections of all ports.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    inner: Mutex<Inner>,
    /// Notified when a slot is returned.
    released: Notify,
    metrics: Arc<Metrics>,
    /// Maximum number of connections of a port.
    port_max: usize,
    /// Maximum number of connections of one IPv4 address or IPv6 /64 network at a port.
    address_max: usize,
    /// Maximum number of connections that are not authenticated.
    unauthenticated_max: usize,
    descriptors: Descriptors,
}

#[derive(Debug, Default)]
struct Inner {
    open: usize,
    by_network: HashMap<(Protocol, IpAddr), usize>,
    /// Connections that are not authenticated, oldest first.
    unauthenticated: BTreeMap<u64, Arc<Notify>>,
    /// Evicted connections that are not closed yet.
    evicted: BTreeSet<u64>,
    /// Number of the newest connection.
    last: u64,
}

/// The slot of one connection; dropping it returns the slot.
#[derive(Debug)]
pub(crate) struct Slot {
    table: Arc<ConnectionTable>,
    protocol: Protocol,
    /// The IPv4 address or IPv6 /64 network of the peer. `None` for a process on this machine that
    /// uses the Unix socket.
    network: Option<IpAddr>,
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
        // At most half of the limit that the descriptors allow.
        let half = (descriptors.connections_max / 2).max(1);
        Self {
            inner: Mutex::default(),
            released: Notify::new(),
            metrics,
            port_max: config.connections_max,
            address_max: config.connections_per_address_max,
            unauthenticated_max: config.connections_unauthenticated_max.clamp(1, half),
            descriptors,
        }
    }

    fn count(&self, protocol: Protocol) -> &Gauge {
        match protocol {
            Protocol::Http => &self.metrics.http_connections,
            Protocol::Native => &self.metrics.native_connections,
        }
    }

    /// Returns a slot for a connection from `address`, or from the Unix socket if `None`. Returns
    /// `None` if there are too many connections. May evict another connection.
    pub(crate) async fn slot(
        self: &Arc<Self>,
        protocol: Protocol,
        address: Option<IpAddr>,
    ) -> Option<Arc<Slot>> {
        let slot = async {
            loop {
                let released = self.released.notified();
                if let Some(slot) = self.try_slot(protocol, address) {
                    return Some(slot);
                }
                if !self.waits_for_evicted() {
                    // A connection may have closed since the last attempt.
                    return self.try_slot(protocol, address);
                }
                released.await;
            }
        };
        timeout(EVICTION_MAX, slot).await.ok().flatten()
    }

    /// Whether all slots are used, some of them by evicted connections that are not closed yet. A
    /// limit of an address or a port does not count here: it refuses a connection at once.
    fn waits_for_evicted(&self) -> bool {
        let inner = self.lock();
        inner.open >= self.descriptors.connections_max && !inner.evicted.is_empty()
    }

    /// As [`slot`](Self::slot), without waiting for evicted connections.
    fn try_slot(
        self: &Arc<Self>,
        protocol: Protocol,
        address: Option<IpAddr>,
    ) -> Option<Arc<Slot>> {
        let mut inner = self.lock();
        let port_count = self.count(protocol);
        // The limit of a port is for the network: other machines must not block this one.
        if address.is_some() && port_count.get() >= self.port_max as u64 {
            return None;
        }
        let evicted = Arc::new(Notify::new());
        inner.last += 1;
        let number = inner.last;
        let network = address.map(network);
        match network {
            None if inner.open >= self.descriptors.local_connections_max => return None,
            None => {}
            Some(_) if inner.open >= self.descriptors.connections_max => return None,
            Some(network) => {
                let network_count = inner.by_network.entry((protocol, network)).or_default();
                if *network_count >= self.address_max {
                    return None;
                }
                *network_count += 1;
                if inner.unauthenticated.len() >= self.unauthenticated_max
                    && let Some((number, oldest)) = inner.unauthenticated.pop_first()
                {
                    inner.evicted.insert(number);
                    oldest.notify_one();
                    self.metrics.evicted.add(1);
                }
                inner.unauthenticated.insert(number, Arc::clone(&evicted));
            }
        }
        inner.open += 1;
        port_count.add(1);
        Some(Arc::new(Slot {
            table: Arc::clone(self),
            protocol,
            network,
            number,
            authenticated: AtomicBool::new(network.is_none()),
            evicted,
        }))
    }

    /// Number of connections that are not authenticated.
    pub(crate) fn unauthenticated(&self) -> usize {
        self.lock().unauthenticated.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl Slot {
    /// Marks the connection as authenticated, because a request on it passed its checks. It can no
    /// longer be evicted.
    pub(crate) fn authenticated(&self) {
        if !self.authenticated.load(Ordering::Relaxed)
            && !self.authenticated.swap(true, Ordering::Relaxed)
        {
            let mut inner = self.table.lock();
            inner.unauthenticated.remove(&self.number);
        }
    }

    /// Waits until the connection is evicted, which usually never happens.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.table.count(self.protocol).sub(1);
        let mut inner = self.table.lock();
        inner.open -= 1;
        inner.unauthenticated.remove(&self.number);
        inner.evicted.remove(&self.number);
        self.table.released.notify_waiters();
        let Some(network) = self.network else { return };
        let key = (self.protocol, network);
        if let Some(count) = inner.by_network.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                inner.by_network.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::net::{IpAddr, Ipv4Addr};
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use super::ConnectionTable;
    use crate::config::ServerConfig;
    use crate::descriptors::Descriptors;
    use crate::metrics::Metrics;
    use crate::security::Protocol;

    const LOCALHOST: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));

    fn table(connections_max: usize) -> Arc<ConnectionTable> {
        let config = ServerConfig {
            connections_unauthenticated_max: 1,
            ..ServerConfig::default()
        };
        let descriptors = Descriptors {
            connections_max,
            local_connections_max: connections_max,
        };
        Arc::new(ConnectionTable::new(
            &config,
            descriptors,
            Arc::new(Metrics::new(Vec::new())),
        ))
    }

    #[tokio::test]
    async fn a_new_connection_waits_for_the_slot_of_an_evicted_one() {
        let table = table(2);
        let oldest = table.slot(Protocol::Http, LOCALHOST).await.unwrap();
        let second = table.slot(Protocol::Native, LOCALHOST).await.unwrap();
        oldest.evicted().await;
        // The evicted connection is not closed yet.
        let mut new = pin!(table.slot(Protocol::Http, LOCALHOST));
        let polled = new.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        drop(oldest);
        let new = new.await.unwrap();
        second.evicted().await;
        drop((second, new));
    }

    #[tokio::test]
    async fn a_new_connection_is_refused_if_none_was_evicted() {
        let table = table(2);
        let first = table.slot(Protocol::Http, LOCALHOST).await.unwrap();
        first.authenticated();
        let second = table.slot(Protocol::Http, LOCALHOST).await.unwrap();
        second.authenticated();
        assert!(table.slot(Protocol::Http, LOCALHOST).await.is_none());
        drop(first);
        assert!(table.slot(Protocol::Http, LOCALHOST).await.is_some());
    }

    #[tokio::test]
    async fn a_full_port_does_not_block_the_unix_socket() {
        let config = ServerConfig {
            connections_max: 1,
            ..ServerConfig::default()
        };
        let descriptors = Descriptors {
            connections_max: 2,
            local_connections_max: 3,
        };
        let metrics = Arc::new(Metrics::new(Vec::new()));
        let table = Arc::new(ConnectionTable::new(&config, descriptors, metrics));
        let first = table.slot(Protocol::Native, LOCALHOST).await.unwrap();
        assert!(table.slot(Protocol::Native, LOCALHOST).await.is_none());
        let local = table.slot(Protocol::Native, None).await;
        assert!(local.is_some());
        drop((first, local));
    }

    #[tokio::test]
    async fn an_ipv6_network_has_the_limit_of_one_address() {
        let config = ServerConfig {
            connections_per_address_max: 2,
            ..ServerConfig::default()
        };
        let descriptors = Descriptors {
            connections_max: 100,
            local_connections_max: 100,
        };
        let metrics = Arc::new(Metrics::new(Vec::new()));
        let table = Arc::new(ConnectionTable::new(&config, descriptors, metrics));
        let open = async |address: &str| {
            let address: IpAddr = address.parse().unwrap();
            table.slot(Protocol::Http, Some(address)).await
        };
        let first = open("2001:db8::1").await.unwrap();
        let second = open("2001:db8::2").await.unwrap();
        assert!(open("2001:db8::3").await.is_none());
        assert!(open("2001:db8:0:1::3").await.is_some());
        drop(first);
        assert!(open("2001:db8::3").await.is_some());
        drop(second);
    }

    /// Load generators open all connections of their pool before they send a request.
    #[tokio::test]
    async fn one_address_may_open_all_its_connections_before_a_request() {
        let config = ServerConfig::default();
        let descriptors = Descriptors {
            connections_max: 4096,
            local_connections_max: 4096,
        };
        let metrics = Arc::new(Metrics::new(Vec::new()));
        let table = ConnectionTable::new(&config, descriptors, Arc::clone(&metrics));
        let table = Arc::new(table);
        let mut slots = Vec::new();
        for _ in 0..config.connections_per_address_max {
            slots.push(table.slot(Protocol::Http, LOCALHOST).await.unwrap());
        }
        assert_eq!(metrics.evicted.get(), 0);
        let other = Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
        slots.push(table.slot(Protocol::Http, other).await.unwrap());
        slots[0].evicted().await;
        assert_eq!(metrics.evicted.get(), 1);
    }
}

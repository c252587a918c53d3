//! Places for connections of a port: so many in all, so many for an address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::ServerConfig;
use crate::metrics::Gauge;
use crate::shared::Shared;

/// Where the connections of a port are counted.
type Count = fn(&Shared) -> &Gauge;

/// Connections of a port by address.
#[derive(Clone, Debug)]
pub(crate) struct Guests {
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    shared: Arc<Shared>,
    count: Count,
}

/// A place among the connections; free again when dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    guests: Guests,
    /// None for a process of the same machine at a socket.
    address: Option<IpAddr>,
}

impl Guests {
    pub(crate) fn new(shared: &Arc<Shared>, count: Count) -> Self {
        Self {
            by_address: Arc::default(),
            shared: Arc::clone(shared),
            count,
        }
    }

    /// A place, if there is one.
    pub(crate) fn seat(&self, config: &ServerConfig, address: Option<IpAddr>) -> Option<Seat> {
        let mut guests = self.lock();
        let count = (self.count)(&self.shared);
        if count.get() >= config.connections_max as u64 {
            return None;
        }
        if let Some(address) = address {
            let of_address = guests.get(&address).copied().unwrap_or(0);
            if of_address >= config.connections_per_address_max {
                return None;
            }
            guests.insert(address, of_address + 1);
        }
        count.add(1);
        Some(Seat {
            guests: self.clone(),
            address,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, usize>> {
        // Nothing that can panic is done under the lock.
        let guests = self.by_address.lock();
        guests.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        (self.guests.count)(&self.guests.shared).sub(1);
        let Some(address) = self.address else { return };
        let mut guests = self.guests.lock();
        if let Some(count) = guests.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                guests.remove(&address);
            }
        }
    }
}

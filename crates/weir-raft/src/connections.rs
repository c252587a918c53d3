//! The connections to the peer port, and which of them is closed when there are too many.
//!
//! Invariants: a connection without a completed greeting never prevents another connection; the
//! number of connections is bounded.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// Limit on connections without a completed greeting. At one more, the oldest connection from the
/// address that has the most is closed.
const PENDING_MAX: usize = 64;
/// Limit on connections of nodes: seven nodes need about forty. At one more, the oldest is closed:
/// mostly one whose other end has lost power. A node that still uses the connection reconnects.
const ADMITTED_MAX: usize = 256;

#[derive(Debug)]
struct Entry {
    number: u64,
    from: IpAddr,
    task: Option<AbortHandle>,
}

/// Both lists are in the order of arrival.
#[derive(Debug, Default)]
struct Table {
    next: u64,
    pending: Vec<Entry>,
    admitted: Vec<Entry>,
}

/// The open connections. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections(Arc<Mutex<Table>>);

/// The slot of a connection, freed on drop.
#[derive(Debug)]
pub(crate) struct Slot {
    number: u64,
    connections: Connections,
}

/// The oldest connection from the address that has the most.
fn first_of_most(pending: &[Entry]) -> Option<usize> {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for entry in pending {
        *counts.entry(entry.from).or_default() += 1;
    }
    let most = counts.values().max().copied()?;
    pending
        .iter()
        .position(|entry| counts.get(&entry.from) == Some(&most))
}

fn end(entry: &Entry) {
    if let Some(task) = &entry.task {
        task.abort();
    }
}

impl Connections {
    /// Registers a connection from this address, which has not completed the greeting.
    pub(crate) fn register(&self, from: IpAddr) -> Slot {
        let mut table = self.0.lock();
        table.next += 1;
        let number = table.next;
        table.pending.push(Entry {
            number,
            from,
            task: None,
        });
        if table.pending.len() > PENDING_MAX
            && let Some(first) = first_of_most(&table.pending)
        {
            end(&table.pending.remove(first));
        }
        Slot {
            number,
            connections: self.clone(),
        }
    }

    /// Records the task of a registered connection.
    pub(crate) fn started(&self, number: u64, task: AbortHandle) {
        let mut table = self.0.lock();
        let Table {
            pending, admitted, ..
        } = &mut *table;
        let mut all = pending.iter_mut().chain(admitted);
        // The connection may have ended already.
        if let Some(entry) = all.find(|entry| entry.number == number) {
            entry.task = Some(task);
        }
    }
}

impl Slot {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Records that the connection has completed the greeting, and belongs to a node.
    pub(crate) fn admitted(&self) {
        let mut table = self.connections.0.lock();
        let is_this = |entry: &Entry| entry.number == self.number;
        let Some(at) = table.pending.iter().position(is_this) else {
            return;
        };
        let entry = table.pending.remove(at);
        table.admitted.push(entry);
        if table.admitted.len() > ADMITTED_MAX {
            end(&table.admitted.remove(0));
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut table = self.connections.0.lock();
        table.pending.retain(|entry| entry.number != self.number);
        table.admitted.retain(|entry| entry.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn counts(connections: &Connections) -> (usize, usize) {
        let table = connections.0.lock();
        (table.pending.len(), table.admitted.len())
    }

    #[test]
    fn above_a_limit_the_oldest_connection_of_the_busiest_address_or_of_a_node_is_closed() {
        let connections = Connections::default();
        let from = |last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
        let alone = connections.register(from(2));
        let many: Vec<_> = (0..1_000).map(|_| connections.register(from(1))).collect();
        assert_eq!(counts(&connections), (PENDING_MAX, 0));
        alone.admitted();
        assert_eq!(counts(&connections), (PENDING_MAX - 1, 1));
        // A closed connection cannot be admitted as that of a node.
        many[0].admitted();
        assert_eq!(counts(&connections), (PENDING_MAX - 1, 1));
        let nodes: Vec<_> = (0..=ADMITTED_MAX)
            .map(|_| {
                let slot = connections.register(from(3));
                slot.admitted();
                slot
            })
            .collect();
        assert_eq!(counts(&connections).1, ADMITTED_MAX);
        drop((alone, many, nodes));
        assert_eq!(counts(&connections), (0, 0));
    }
}

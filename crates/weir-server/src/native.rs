//! The native port: `weir/1` (docs/formats/native.md).
//!
//! One task a connection. It reads packets, hands writes to the store, and
//! sends what is answered, in the order of the writes. It holds at most one
//! unfinished packet, `OUT_BYTES_HIGH` and one page of bytes to be sent, and
//! the writes that its credit allows.
//!
//! Invariants:
//! - Answers are in order.
//! - A read never waits for a peer.
//! - Bytes that have not arrived use no memory.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use weir_core::ClientId;

use crate::connections::Slot;
use crate::local::LocalSocket;
use crate::phase::Phase;
use crate::security::Principal;
use crate::security::Protocol;
use crate::shared::Shared;

mod answers;
mod buffer;
mod connection;
mod fetch;
#[cfg(test)]
mod late;
mod listeners;
mod marks;
mod pushdown;
mod refuse;

use connection::Connection;

/// Bytes of writes of one connection that may be unanswered.
const WINDOW_BYTES: usize = 16 << 20;
/// Looks through pages for queries at the same moment, of all connections.
const FILTERS_MAX: usize = 8;
/// Pause after a failed accept, so that a lack of descriptors is no busy loop.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// What the connections of the native port share.
#[derive(Debug)]
pub(crate) struct Port {
    shared: Arc<Shared>,
    /// Who has which session open, by the id that the store knows.
    sessions: Mutex<HashMap<ClientId, Owner>>,
    /// Number of the newest connection.
    last: AtomicU64,
    /// Looks through pages for queries.
    filters: Arc<Semaphore>,
}

/// The connection that has a session open.
#[derive(Debug)]
struct Owner {
    connection: u64,
    superseded: Arc<Notify>,
}

impl Port {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            sessions: Mutex::default(),
            last: AtomicU64::new(0),
            filters: Arc::new(Semaphore::new(FILTERS_MAX)),
        }
    }

    /// Makes the connection the owner of the session; the owner before hears
    /// of it.
    fn claim(&self, client: ClientId, owner: Owner) {
        let mut sessions = self.lock();
        if let Some(before) = sessions.insert(client, owner) {
            before.superseded.notify_one();
        }
    }

    /// The connection has ended.
    fn release(&self, client: ClientId, connection: u64) {
        let mut sessions = self.lock();
        if sessions
            .get(&client)
            .is_some_and(|owner| owner.connection == connection)
        {
            sessions.remove(&client);
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, HashMap<ClientId, Owner>> {
        self.sessions.lock()
    }
}

/// Serves connections of these listeners until the server drains; returns when
/// the last one has ended. In `Phase::Cut` it ends at once.
pub(crate) async fn serve(
    listener: Option<TcpListener>,
    local: Option<LocalSocket>,
    shared: Arc<Shared>,
    mut shutdown: watch::Receiver<Phase>,
) {
    let port = Arc::new(Port::new(shared));
    let mut connections = JoinSet::new();
    let slot = async |address| {
        let slot = port
            .shared
            .connections
            .slot(Protocol::Native, address)
            .await;
        if slot.is_none() {
            port.shared.metrics.native_refused.add(1);
        }
        slot
    };
    loop {
        tokio::select! {
            accepted = of_other(listener.as_ref()) => match accepted {
                Ok((stream, peer)) => if let Some(slot) = slot(Some(peer.ip())).await {
                    // Answers are whole when they are written: nothing to wait for.
                    drop(stream.set_nodelay(true));
                    connections.spawn(accept(Arc::clone(&port), stream, peer, slot));
                },
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            accepted = of_this(local.as_ref()) => match accepted {
                Ok(stream) => if let Some(slot) = slot(None).await {
                    let principal = port.shared.security.owner();
                    connections.spawn(welcome(Arc::clone(&port), stream, principal, slot));
                },
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            () = reached(&mut shutdown, Phase::Draining) => break,
        }
    }
    drop((listener, local));
    while connections.join_next().await.is_some() {}
}

/// The next connection of the port; never without one.
async fn of_other(listener: Option<&TcpListener>) -> std::io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// The next connection of the socket of this machine; never without one.
async fn of_this(local: Option<&LocalSocket>) -> std::io::Result<UnixStream> {
    match local {
        Some(local) => local.accept().await,
        None => std::future::pending().await,
    }
}

/// Makes the connection, encrypted if the server has TLS, and serves it.
async fn accept(port: Arc<Port>, socket: TcpStream, peer: SocketAddr, slot: Arc<Slot>) {
    let served = async {
        let security = &port.shared.security;
        // Boxed, so that its room is given back before the connection is served.
        let accepted = Box::pin(security.accept(socket, Some(peer), Protocol::Native)).await;
        if let Ok((stream, principal)) = accepted {
            connect(&port, stream, principal, Some(&slot)).await;
        }
    };
    tokio::select! {
        () = served => {}
        () = slot.evicted() => {}
    }
}

/// Serves a connection from this machine.
async fn welcome(port: Arc<Port>, stream: UnixStream, principal: Principal, slot: Arc<Slot>) {
    connect(&port, stream, principal, None).await;
    drop(slot);
}

/// Waits until the end of the server has come so far.
async fn reached(phase: &mut watch::Receiver<Phase>, least: Phase) {
    // The sender lives as long as the connections.
    drop(phase.wait_for(|phase| *phase >= least).await);
}

/// Serves one connection; also for sockets that others have accepted.
pub(crate) async fn connect<S>(
    port: &Arc<Port>,
    stream: S,
    principal: Principal,
    slot: Option<&Arc<Slot>>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let number = port.last.fetch_add(1, Ordering::Relaxed) + 1;
    let mut connection = Connection::new(Arc::clone(port), number, stream, principal);
    connection.slot = slot.map(Arc::clone);
    // Boxed, or the layout of this future nests deeper than the compiler follows in a release build.
    Box::pin(connection.run()).await;
}

#[cfg(test)]
mod tests {
    use super::{Connection, TcpStream};

    /// Bytes of what `make` makes.
    fn size<A, B, C, D, F>(_make: impl Fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    fn boxed<'c, C: 'c, F>(_make: impl Fn(&'c mut C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_that_waits_is_small() {
        // Its buffers are given back; this is what there is besides.
        let bytes = size(super::accept) + boxed(Connection::<TcpStream>::run);
        assert!(bytes <= 5_000, "{bytes}");
    }
}

//! The native port: `weir/1` (docs/formats/native.md).
//!
//! Each connection is one task. It reads packets, proposes writes to the store, and sends the
//! outcomes in the order of the writes. It holds at most one unfinished packet, `OUT_BYTES_HIGH`
//! and one page of bytes to be sent, and the writes that its credit allows.
//!
//! Invariants:
//! - Outcomes are sent in order.
//! - A read from the store never waits for a peer.
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

/// Bytes of writes of one connection that may wait for their outcomes.
const WINDOW_BYTES: usize = 16 << 20;
/// Maximum number of filter tasks for queries at a time, over all connections.
const FILTERS_MAX: usize = 8;
/// Pause after a failed accept, so that a lack of file descriptors does not cause a busy loop.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// State that the connections of the native port share.
#[derive(Debug)]
pub(crate) struct Port {
    shared: Arc<Shared>,
    /// The connection that has each session open, by the client id of the store.
    sessions: Mutex<HashMap<ClientId, SessionOwner>>,
    /// Number of the newest connection.
    last: AtomicU64,
    /// Permits to filter pages for queries.
    filters: Arc<Semaphore>,
}

/// The connection that has a session open.
#[derive(Debug)]
struct SessionOwner {
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

    /// Makes the connection the owner of the session, and notifies the previous owner.
    fn claim(&self, client: ClientId, owner: SessionOwner) {
        let mut sessions = self.lock();
        if let Some(previous) = sessions.insert(client, owner) {
            previous.superseded.notify_one();
        }
    }

    /// Releases the session of a connection that has ended.
    fn release(&self, client: ClientId, connection: u64) {
        let mut sessions = self.lock();
        if sessions
            .get(&client)
            .is_some_and(|owner| owner.connection == connection)
        {
            sessions.remove(&client);
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, HashMap<ClientId, SessionOwner>> {
        self.sessions.lock()
    }
}

/// Serves connections of these listeners until the server drains. Returns after the last connection
/// has ended; in `Phase::Cut`, at once.
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
            accepted = accept_remote(listener.as_ref()) => match accepted {
                Ok((stream, peer)) => if let Some(slot) = slot(Some(peer.ip())).await {
                    // Each write contains complete packets, so delaying it gains nothing.
                    drop(stream.set_nodelay(true));
                    connections.spawn(accept(Arc::clone(&port), stream, peer, slot));
                },
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            accepted = accept_local(local.as_ref()) => match accepted {
                Ok(stream) => if let Some(slot) = slot(None).await {
                    let principal = port.shared.security.owner();
                    connections.spawn(serve_local(Arc::clone(&port), stream, principal, slot));
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

/// Returns the next connection of the port; waits forever if there is no port.
async fn accept_remote(listener: Option<&TcpListener>) -> std::io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// Returns the next connection of the Unix socket; waits forever if there is no socket.
async fn accept_local(local: Option<&LocalSocket>) -> std::io::Result<UnixStream> {
    match local {
        Some(local) => local.accept().await,
        None => std::future::pending().await,
    }
}

/// Completes the handshake, with TLS if the server has it, and serves the connection.
async fn accept(port: Arc<Port>, socket: TcpStream, peer: SocketAddr, slot: Arc<Slot>) {
    let connection = async {
        let security = &port.shared.security;
        // Boxed, so that its memory is freed before the connection is served.
        let accepted = Box::pin(security.accept(socket, Some(peer), Protocol::Native)).await;
        if let Ok((stream, principal)) = accepted {
            connect(&port, stream, principal, Some(&slot)).await;
        }
    };
    tokio::select! {
        () = connection => {}
        () = slot.evicted() => {}
    }
}

/// Serves a connection from the Unix socket.
async fn serve_local(port: Arc<Port>, stream: UnixStream, principal: Principal, slot: Arc<Slot>) {
    connect(&port, stream, principal, None).await;
    drop(slot);
}

/// Waits until the shutdown has reached this phase.
async fn reached(phase: &mut watch::Receiver<Phase>, least: Phase) {
    // The sender lives as long as the connections.
    drop(phase.wait_for(|phase| *phase >= least).await);
}

/// Serves one connection; also used for sockets that another module has accepted.
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
    // Boxed, because the layout of this future would nest too deeply for the compiler in a release
    // build.
    Box::pin(connection.run()).await;
}

#[cfg(test)]
mod tests {
    use super::{Connection, TcpStream};

    /// Size in bytes of the future that `make` returns.
    fn size<A, B, C, D, F>(_make: impl Fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    fn boxed<'c, C: 'c, F>(_make: impl Fn(&'c mut C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_that_waits_is_small() {
        // The buffers of an idle connection are freed; this is the rest.
        let bytes = size(super::accept) + boxed(Connection::<TcpStream>::run);
        assert!(bytes <= 5_000, "{bytes}");
    }
}

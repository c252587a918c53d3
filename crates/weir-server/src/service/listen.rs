//! Accepts connections of the HTTP port and serves them until the server drains.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connections::Slot;
use crate::http::{h1, h2};
use crate::phase::Phase;
use crate::resources::context::{Edge, Peer};
use crate::resources::ds;
use crate::security::Protocol;
use crate::service::{self, HttpConnection};
use crate::shared::Shared;

/// Pause after a failed accept, so that a lack of file descriptors does not cause a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves connections of this listener until the server drains. Returns after the last connection
/// has ended.
pub(crate) async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut phase: watch::Receiver<Phase>,
) {
    let edge = Arc::new(Edge::new(Arc::clone(&shared), service::description));
    let sweeper = tokio::spawn(ds::sweep(Arc::clone(&edge), phase.clone()));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = phase.wait_for(|phase| *phase >= Phase::Draining) => break,
        };
        let Ok((stream, address)) = accepted else {
            // Probably no file descriptor is free.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let slot = shared.connections.slot(Protocol::Http, Some(address.ip()));
        let Some(slot) = slot.await else {
            shared.metrics.http_refused.add(1);
            continue;
        };
        connections.spawn(serve_connection(stream, Arc::clone(&edge), address, slot));
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    // The sweeper ends when the server is draining.
    drop(sweeper.await);
}

/// Serves a connection until it ends or is evicted.
async fn serve_connection(
    stream: TcpStream,
    edge: Arc<Edge>,
    address: SocketAddr,
    slot: Arc<Slot>,
) {
    tokio::select! {
        // Created in place, because a future that is moved into `select!` would need its memory
        // twice.
        () = connection(stream, edge, address, Arc::clone(&slot)) => {}
        () = slot.evicted() => {}
    }
}

async fn connection(stream: TcpStream, edge: Arc<Edge>, address: SocketAddr, slot: Arc<Slot>) {
    // Otherwise a small response waits for the acknowledgement of the previous one.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let security = &edge.shared.security;
    let Ok((stream, principal)) = security.accept(stream, Some(address), Protocol::Http).await
    else {
        return;
    };
    let phase = edge.shared.phase.subscribe();
    let peer = Peer {
        principal: Arc::new(principal),
        slot,
    };
    let responder = HttpConnection {
        edge: Arc::clone(&edge),
        peer,
    };
    let http2 = h1::serve(stream, responder.clone(), phase.clone()).await;
    if let Some((io, first)) = http2 {
        h2::serve(io, first, responder, phase).await;
    }
}

#[cfg(test)]
mod tests {
    /// Size in bytes of the future that `make` returns.
    fn size<A, B, C, D, F>(_make: impl Fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_that_waits_is_small() {
        // Without the receive buffer.
        let bytes = size(super::serve_connection);
        assert!(bytes <= 3_000, "{bytes}");
    }
}

//! The HTTP edge: the store for any program with an HTTP client.
//!
//! | module | room |
//! |---|---|
//! | `head`, `h1`, `h2` | requests as they come in, answers as they go out |
//! | `route`, `query`, `accept`, `prefer`, `origin`, `condition`, `session` | what a request says |
//! | `service`, `visit` | what is checked, and what happens then |
//! | `stack` | the connections alone, for the lab |
//! | `write`, `batch`, `topics`, `program`, `groups` | writes |
//! | `propose` | to the store, and back |
//! | `read`, `records`, `tail`, `hub` | reads |
//! | `ds` | topics as Durable Streams |
//! | `meta`, `cloudevents`, `coding`, `json`, `base64`, `date` | forms |
//! | `problem`, `reply`, `ops` | answers |
//!
//! Rules in words, for users: docs/api/http.md.

mod accept;
mod base64;
mod batch;
mod cloudevents;
mod coding;
mod condition;
mod date;
mod ds;
mod groups;
mod h1;
mod h2;
mod head;
mod hub;
mod json;
mod limits;
mod meta;
mod missed;
mod offload;
mod openapi;
mod ops;
mod origin;
mod prefer;
mod problem;
mod program;
mod propose;
mod query;
mod read;
mod records;
mod reply;
mod route;
mod service;
mod session;
#[doc(hidden)]
pub mod stack;
mod tail;
mod topics;
mod visit;
mod write;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::service::{Edge, Peer};
use self::visit::Visit;
use crate::guests::{Guests, Seat};
use crate::security::Door;
use crate::shared::{Phase, Shared};

#[doc(hidden)]
pub use self::h1::pieces;
pub(crate) use self::head::Method;
pub(crate) use self::route::{RESOURCES, Resource};

/// How long nothing is accepted after the system had no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves connections of this listener until the server drains; returns when
/// the last one has ended.
pub(crate) async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut phase: watch::Receiver<Phase>,
) {
    let edge = Arc::new(Edge::new(Arc::clone(&shared)));
    let guests = Guests::new(&shared, |shared| &shared.metrics.http_connections);
    let sweeper = tokio::spawn(ds::sweep(Arc::clone(&edge), phase.clone()));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = phase.wait_for(|phase| *phase >= Phase::Draining) => break,
        };
        let Ok((stream, address)) = accepted else {
            // Most likely there are no descriptors left; some will be freed.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some(seat) = guests.seat(&shared.config, Some(address.ip())) else {
            shared.metrics.http_refused.add(1);
            continue;
        };
        connections.spawn(connection(stream, Arc::clone(&edge), address, seat));
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    // It ends by itself when the server drains.
    drop(sweeper.await);
}

async fn connection(stream: TcpStream, edge: Arc<Edge>, address: SocketAddr, seat: Seat) {
    // Without it small answers wait for the acknowledgement of the one before.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let security = &edge.shared.security;
    let Ok((stream, principal)) = security.accept(stream, Some(address), Door::Http).await else {
        return;
    };
    let phase = edge.shared.phase.subscribe();
    let peer = Peer {
        principal: Arc::new(principal),
    };
    let visit = Visit {
        edge: Arc::clone(&edge),
        peer: peer.clone(),
    };
    let other = h1::serve(stream, visit, phase.clone()).await;
    if let Some((io, first)) = other {
        h2::serve(io, first, edge, peer, phase).await;
    }
    drop(seat);
}

/// Label of the resource with this number.
pub(crate) fn label(resource: usize) -> &'static str {
    route::ROWS
        .get(resource)
        .map_or("unknown", |row| row.template)
}

#[cfg(test)]
mod tests {
    /// Bytes of what `make` makes.
    fn size<A, B, C, D, F>(_make: impl Fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_that_waits_is_small() {
        // Besides what it reads into.
        let bytes = size(super::connection);
        assert!(bytes <= 3_000, "{bytes}");
    }
}

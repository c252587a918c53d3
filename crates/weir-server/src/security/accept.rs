//! From a socket to a connection: the handshake, and who it is.
//!
//! Invariants: every handshake has a deadline; a client that sends clear text
//! to a TLS port gets an answer.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

use super::rate::network;
use super::{Principal, Security, Stream};

/// Time for a whole handshake, waiting for its turn included.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Handshakes of one address that may be under way at a time. There is no such
/// bound for all addresses together: a few of them would use it up, and what
/// connections may cost is bounded by their number.
const HANDSHAKES_PER_ADDRESS_MAX: usize = 64;
/// First byte of every connection of TLS: a record of the handshake.
const HANDSHAKE_RECORD: u8 = 0x16;
/// What a client of HTTP hears that forgot the `s`.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 37\r\nConnection: close\r\n\r\nThis port speaks TLS: use https://.\r\n";

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Protocol {
    /// HTTP/1.1 or HTTP/2.
    Http,
    /// The native protocol.
    Native,
}

/// Why a connection was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAccepted {
    /// It took too long.
    #[error("the handshake took too long")]
    Late,
    /// It did not begin as TLS does.
    #[error("the client does not speak TLS")]
    Plain,
    /// The library's or the system's answer.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Handshakes that are under way, and those that wait for them, by address.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    by_address: Mutex<HashMap<IpAddr, Under>>,
}

#[derive(Debug)]
struct Under {
    turns: Arc<Semaphore>,
    /// How many use the entry.
    users: usize,
}

/// A handshake; the next one of its address may begin when this is dropped.
struct Turn<'a> {
    all: &'a Handshakes,
    address: IpAddr,
    permit: Option<OwnedSemaphorePermit>,
}

impl Handshakes {
    /// Waits for those of the same address.
    async fn turn(&self, peer: Option<SocketAddr>) -> Option<Turn<'_>> {
        let address = network(peer?.ip());
        let turns = {
            let mut all = self.lock();
            let under = all.entry(address).or_insert_with(|| Under {
                turns: Arc::new(Semaphore::new(HANDSHAKES_PER_ADDRESS_MAX)),
                users: 0,
            });
            under.users += 1;
            Arc::clone(&under.turns)
        };
        // Made first: who gives up while waiting is no user any more.
        let mut turn = Turn {
            all: self,
            address,
            permit: None,
        };
        // The semaphore is never closed.
        turn.permit = turns.acquire_owned().await.ok();
        Some(turn)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Under>> {
        self.by_address.lock()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.permit = None;
        let mut all = self.all.lock();
        if let Some(under) = all.get_mut(&self.address) {
            under.users -= 1;
            if under.users == 0 {
                all.remove(&self.address);
            }
        }
    }
}

impl Security {
    /// Makes the connection of a socket. At most [`HANDSHAKE_MAX`].
    pub(crate) async fn accept(
        &self,
        socket: TcpStream,
        peer: Option<SocketAddr>,
        protocol: Protocol,
    ) -> Result<(Stream, Principal), NotAccepted> {
        let Some(tls) = &self.tls else {
            return Ok((Stream::Plain(socket), self.caller(peer, None)));
        };
        let served = tls.served();
        let config = match protocol {
            Protocol::Http => served.http,
            Protocol::Native => served.native,
        };
        let handshake = async {
            let mut socket = socket;
            // Who says nothing takes no turn.
            if !begins_as_tls(&socket).await? {
                if protocol == Protocol::Http {
                    // It may be gone already.
                    drop(socket.write_all(PLAIN_HTTP).await);
                    drop(socket.shutdown().await);
                }
                return Err(NotAccepted::Plain);
            }
            let _turn = self.handshakes.turn(peer).await;
            Ok(TlsAcceptor::from(config).accept(socket).await?)
        };
        let done = tokio::time::timeout(HANDSHAKE_MAX, handshake).await;
        let stream = done.map_err(|_| NotAccepted::Late)?;
        let stream = stream.inspect_err(|error| {
            tracing::debug!(?peer, %error, "no connection");
        })?;
        let principal = self.caller(peer, stream.get_ref().1.peer_certificates());
        Ok((Stream::Tls(Box::new(stream)), principal))
    }
}

async fn begins_as_tls(socket: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    let count = socket.peek(&mut first).await?;
    Ok(count == 0 || first == [HANDSHAKE_RECORD])
}

//! Accepts a connection: the TLS handshake and the principal.
//!
//! Invariants:
//! - Every handshake has a deadline.
//! - An HTTP client without TLS at a TLS port gets a response.

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

/// Deadline of a handshake, including the wait for a permit.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Maximum number of concurrent handshakes of one address. There is no bound for all addresses
/// together, because a few addresses could use it up. The number of connections bounds their cost.
const HANDSHAKES_PER_ADDRESS_MAX: usize = 64;
/// First byte of every TLS connection: a handshake record.
const HANDSHAKE_RECORD: u8 = 0x16;
/// Response to an HTTP client without TLS.
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

/// Why a connection was not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAccepted {
    /// The handshake took too long.
    #[error("the handshake took too long")]
    Late,
    /// The client does not use TLS.
    #[error("the client does not speak TLS")]
    Plain,
    /// An error of the TLS library or of the system.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Handshakes in progress and waiting ones, by address.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    by_address: Mutex<HashMap<IpAddr, Under>>,
}

#[derive(Debug)]
struct Under {
    turns: Arc<Semaphore>,
    /// Number of handshakes that use this entry.
    users: usize,
}

/// Permit of a handshake. Dropping it lets the next one of its address start.
struct Turn<'a> {
    all: &'a Handshakes,
    address: IpAddr,
    permit: Option<OwnedSemaphorePermit>,
}

impl Handshakes {
    /// Waits for a permit of this address.
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
        // Created before the wait, so that a cancelled wait also decrements `users`.
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
    /// Accepts the connection of a socket, within [`HANDSHAKE_MAX`].
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
            // A silent client uses no permit.
            if !begins_as_tls(&socket).await? {
                if protocol == Protocol::Http {
                    // The client may have disconnected already.
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

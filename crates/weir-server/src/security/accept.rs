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

use tokio::io::{AsyncReadExt, AsyncWriteExt};
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
    Timeout,
    /// The client does not use TLS.
    #[error("the client does not use TLS")]
    NoTls,
    /// An error of the TLS library or of the system.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Handshakes in progress and waiting ones, by address.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    by_address: Mutex<HashMap<IpAddr, AddressHandshakes>>,
}

#[derive(Debug)]
struct AddressHandshakes {
    permits: Arc<Semaphore>,
    /// Number of handshakes that use this entry.
    users: usize,
}

/// Permit of a handshake. Dropping it lets the next one of its address start.
struct HandshakePermit<'a> {
    all: &'a Handshakes,
    address: IpAddr,
    permit: Option<OwnedSemaphorePermit>,
}

impl Handshakes {
    /// Waits for a permit of this address.
    async fn permit(&self, peer: Option<SocketAddr>) -> Option<HandshakePermit<'_>> {
        let address = network(peer?.ip());
        let permits = {
            let mut all = self.lock();
            let entry = all.entry(address).or_insert_with(|| AddressHandshakes {
                permits: Arc::new(Semaphore::new(HANDSHAKES_PER_ADDRESS_MAX)),
                users: 0,
            });
            entry.users += 1;
            Arc::clone(&entry.permits)
        };
        // Created before the wait, so that a cancelled wait also decrements `users`.
        let mut waiting = HandshakePermit {
            all: self,
            address,
            permit: None,
        };
        // The semaphore is never closed.
        waiting.permit = permits.acquire_owned().await.ok();
        Some(waiting)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, AddressHandshakes>> {
        self.by_address.lock()
    }
}

impl Drop for HandshakePermit<'_> {
    fn drop(&mut self) {
        self.permit = None;
        let mut all = self.all.lock();
        if let Some(entry) = all.get_mut(&self.address) {
            entry.users -= 1;
            if entry.users == 0 {
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
        let configs = tls.configs();
        let config = match protocol {
            Protocol::Http => configs.http,
            Protocol::Native => configs.native,
        };
        let handshake = async {
            let mut socket = socket;
            // A silent client uses no permit.
            if !begins_as_tls(&socket).await? {
                if protocol == Protocol::Http {
                    // The client may have disconnected already.
                    drop(socket.write_all(PLAIN_HTTP).await);
                    drop(socket.shutdown().await);
                    // Closing a socket with unread bytes would discard the response.
                    let mut discarded = vec![0; 4096];
                    while matches!(socket.read(&mut discarded).await, Ok(1..)) {}
                }
                return Err(NotAccepted::NoTls);
            }
            let _permit = self.handshakes.permit(peer).await;
            Ok(TlsAcceptor::from(config).accept(socket).await?)
        };
        let result = tokio::time::timeout(HANDSHAKE_MAX, handshake).await;
        let stream = result.map_err(|_| NotAccepted::Timeout)?;
        let stream = stream.inspect_err(|error| {
            tracing::debug!(?peer, %error, "a connection was not accepted");
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

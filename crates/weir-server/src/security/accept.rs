//! From a socket to a connection: the handshake, and who it is.
//!
//! What must never happen here: a handshake without an end, or a client that
//! speaks in clear to a port of TLS and is left waiting.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::{Principal, Security, Stream};

/// Time for a whole handshake, waiting for its turn included.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// First byte of every connection of TLS: a record of the handshake.
const HANDSHAKE_RECORD: u8 = 0x16;
/// What a client of HTTP hears that forgot the `s`.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 37\r\nConnection: close\r\n\r\nThis port speaks TLS: use https://.\r\n";

/// For which protocol a connection comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
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

impl Security {
    /// Makes the connection of a socket. At most [`HANDSHAKE_MAX`].
    pub(crate) async fn accept(
        &self,
        socket: TcpStream,
        peer: Option<SocketAddr>,
        door: Door,
    ) -> Result<(Stream, Principal), NotAccepted> {
        let Some(tls) = &self.tls else {
            return Ok((Stream::Plain(socket), self.caller(peer, None)));
        };
        let served = tls.served();
        let config = match door {
            Door::Http => served.http,
            Door::Native => served.native,
        };
        let handshake = async {
            let _turn = self.handshakes.acquire().await;
            let mut socket = socket;
            if !begins_as_tls(&socket).await? {
                if door == Door::Http {
                    // It may be gone already.
                    drop(socket.write_all(PLAIN_HTTP).await);
                    drop(socket.shutdown().await);
                }
                return Err(NotAccepted::Plain);
            }
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

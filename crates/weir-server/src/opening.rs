//! A server whose store is still opening: its ports respond with this state.
//!
//! Invariants:
//! - No request that needs the store is served.
//! - A connection closes after its first response.
//! - If more than [`CONNECTIONS_MAX`] connections are open, the oldest is closed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use weir_core::ErrorCode;
use weir_protocol::{Encoder, Message, Packet, RefusalMessage};

use crate::config::ServerConfig;
use crate::phase::Phase;
use crate::security::{Protocol, Security};

mod http;

/// Maximum number of open connections. Silent connections must not block clients that request
/// `/healthz`, so the oldest is closed for a new one.
const CONNECTIONS_MAX: usize = 256;

/// Pause after a failed accept, so that a lack of file descriptors does not cause a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Milliseconds after which a client should retry.
const RETRY_MS: u64 = 1000;

/// Time for the peer to read a refusal before the connection is closed.
const LINGER: Duration = Duration::from_secs(1);

/// Bytes of a greeting that are read. Closing a socket with unread bytes would discard the refusal.
const GREETING_BYTES_MAX: usize = 64 << 10;

/// Progress of the open, in percent.
pub(crate) type Percent = Box<dyn Fn() -> u64 + Send + Sync>;

/// State of a server whose store is opening.
pub(crate) struct State {
    pub(crate) config: ServerConfig,
    pub(crate) security: Arc<Security>,
    pub(crate) percent_done: Percent,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl State {
    /// Progress of the open, in percent; at most 99, because the open is not finished.
    pub(crate) fn percent(&self) -> u64 {
        (self.percent_done)().min(99)
    }
}

/// Responds at these ports until the store is open; `None` if the open fails.
pub(crate) async fn serve<T>(
    state: Arc<State>,
    http: Option<&TcpListener>,
    native: Option<&TcpListener>,
    mut opened: oneshot::Receiver<T>,
) -> Option<T> {
    let mut connections = VecDeque::<AbortHandle>::with_capacity(CONNECTIONS_MAX);
    // Dropping the sender also ends the remaining connections.
    let (phase, _) = watch::channel(Phase::Open);
    let opened = loop {
        let (accepted, protocol) = tokio::select! {
            opened = &mut opened => break opened.ok(),
            accepted = accept(http) => (accepted, Protocol::Http),
            accepted = accept(native) => (accepted, Protocol::Native),
        };
        let Ok(stream) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if connections.len() >= CONNECTIONS_MAX {
            connections.retain(|connection| !connection.is_finished());
        }
        if connections.len() >= CONNECTIONS_MAX
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        let (state, phase) = (Arc::clone(&state), phase.subscribe());
        let connection = tokio::spawn(async move {
            let peer = stream.peer_addr().ok();
            let accepted = state.security.accept(stream, peer, protocol).await;
            if let Ok((stream, _)) = accepted {
                match protocol {
                    Protocol::Http => http::answer(stream, state, phase).await,
                    Protocol::Native => refuse(stream, &state).await,
                }
            }
        });
        connections.push_back(connection.abort_handle());
    };
    phase.send_replace(Phase::Draining);
    opened
}

/// Returns the next connection of a port; waits forever if there is no port.
async fn accept(listener: Option<&TcpListener>) -> std::io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

/// Waits for the greeting of a client and refuses it.
async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, state: &State) {
    let mut greeting = vec![0; GREETING_BYTES_MAX];
    let time = state.config.head_timeout;
    let read = tokio::time::timeout(time, stream.read(&mut greeting)).await;
    if !matches!(read, Ok(Ok(1..))) {
        return;
    }
    let mut message = RefusalMessage::new(ErrorCode::Opening);
    let text = format!(
        "the server is opening its store: {} % done",
        state.percent()
    );
    message.text = text.as_bytes();
    message.retry_ms = Some(RETRY_MS);
    message.fatal = true;
    let mut out = Vec::new();
    Encoder::default().encode(&Packet::new(Message::Refusal(message)), &mut out);
    let sent = async {
        stream.write_all(&out).await?;
        stream.shutdown().await?;
        while stream.read(&mut greeting).await? > 0 {}
        std::io::Result::Ok(())
    };
    // Whether the peer reads the reply does not affect the server.
    drop(tokio::time::timeout(LINGER, sent).await);
}

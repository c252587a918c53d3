//! A running server: its sockets, its threads, its end.
//!
//! The end has steps: [`Server::leave`] (not ready any more, still accepting),
//! [`Server::drain`] (accepting nothing, finishing what is open), [`Server::cut`]
//! (at once). None of them closes the store.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Runtime};
use weir_store::Store;

use crate::config::{Address, ServerConfig};
use crate::error::ServerError;
use crate::shared::{Phase, Shared};
use crate::{edge, native};

/// Connections that the kernel holds until they are accepted.
const BACKLOG: u32 = 4096;

/// A server that is running. Dropping it cuts it.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    http: Option<SocketAddr>,
    native: Option<SocketAddr>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Binds the addresses and starts to serve; returns when clients can
    /// connect.
    ///
    /// # Errors
    /// When an address cannot be had, or would expose the store without what
    /// protects it. Then nothing was started.
    pub fn start(config: ServerConfig, store: Arc<Store>) -> Result<Self, ServerError> {
        config.check()?;
        let runtime = runtime(config.threads)?;
        let http = bind(&runtime, config.http.as_ref())?;
        let native = bind(&runtime, config.native.as_ref())?;
        let address = |listener: &Option<TcpListener>| {
            let listener = listener.as_ref()?;
            listener.local_addr().ok()
        };
        let (http_addr, native_addr) = (address(&http), address(&native));
        let shared = Arc::new(Shared::new(config, store));
        let serving = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("weir-serve".into())
            .spawn(move || {
                runtime.block_on(run(serving, http, native));
                // Threads that are still in a store call end with it.
                runtime.shutdown_background();
            })
            .map_err(|source| ServerError::Runtime { source })?;
        Ok(Self {
            shared,
            http: http_addr,
            native: native_addr,
            thread: Some(thread),
        })
    }

    /// Where HTTP is served, with the port that the kernel chose.
    #[must_use]
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Where the native protocol is served.
    #[must_use]
    pub fn native_addr(&self) -> Option<SocketAddr> {
        self.native
    }

    /// Not ready any more, so that others are asked; still serving.
    pub fn leave(&self) {
        self.advance(Phase::Leaving);
    }

    /// Takes nothing new and ends when everything that was begun is answered.
    /// Does not wait for it; see [`wait`](Self::wait).
    pub fn drain(&self) {
        self.advance(Phase::Draining);
    }

    /// Ends at once. What the store has accepted stays accepted.
    pub fn cut(&self) {
        self.advance(Phase::Cut);
    }

    fn advance(&self, to: Phase) {
        self.shared.phase.send_if_modified(|phase| {
            let later = to > *phase;
            *phase = to.max(*phase);
            later
        });
    }

    /// Whether the server has ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until a drain has ended, or was cut short after the time that the
    /// configuration gives it.
    ///
    /// # Errors
    /// `Cut` when requests were still open at the end, `Died` after a panic of
    /// the server itself.
    pub fn wait(mut self) -> Result<(), ServerError> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(ServerError::Died),
            _ if self.shared.phase() == Phase::Cut => Err(ServerError::Cut),
            _ => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.cut();
        if let Some(thread) = self.thread.take() {
            // Its panic was printed when it happened.
            drop(thread.join());
        }
    }
}

/// As many threads as there are processors for this process; a single one
/// needs no scheduler beside it.
fn runtime(threads: usize) -> Result<Runtime, ServerError> {
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        some => some,
    };
    let mut builder = if threads == 1 {
        Builder::new_current_thread()
    } else {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(threads);
        builder
    };
    builder.thread_name("weir-serve").enable_all();
    builder
        .build()
        .map_err(|source| ServerError::Runtime { source })
}

fn bind(runtime: &Runtime, address: Option<&Address>) -> Result<Option<TcpListener>, ServerError> {
    let Some(Address(address)) = address else {
        return Ok(None);
    };
    let _entered = runtime.enter();
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    };
    let listen = |socket: TcpSocket| {
        socket.set_reuseaddr(true)?;
        socket.bind(*address)?;
        socket.listen(BACKLOG)
    };
    let listener = socket.and_then(listen);
    listener.map(Some).map_err(|source| ServerError::Listen {
        address: address.to_string(),
        source,
    })
}

async fn run(shared: Arc<Shared>, http: Option<TcpListener>, native: Option<TcpListener>) {
    let mut ports = tokio::task::JoinSet::new();
    if let Some(listener) = http {
        let phase = shared.phase.subscribe();
        ports.spawn(edge::serve(listener, Arc::clone(&shared), phase));
    }
    if let Some(listener) = native {
        let phase = shared.phase.subscribe();
        ports.spawn(native::serve(listener, Arc::clone(&shared), phase));
    }
    let mut phase = shared.phase.subscribe();
    let patience = shared.config.drain;
    let late = async {
        // The sender lives in `shared`.
        drop(phase.wait_for(|phase| *phase >= Phase::Draining).await);
        tokio::select! {
            () = tokio::time::sleep(patience) => {}
            _ = phase.wait_for(|phase| *phase >= Phase::Cut) => {}
        }
    };
    tokio::select! {
        () = async { while ports.join_next().await.is_some() {} } => {}
        () = late => {
            shared.phase.send_replace(Phase::Cut);
        }
    }
}

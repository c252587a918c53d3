//! A running server: its sockets, its threads, its shutdown.
//!
//! The shutdown has steps: [`Server::leave`] (not ready, still accepting),
//! [`Server::drain`] (accepts no requests, finishes open ones), [`Server::cut`] (ends at once).
//! None of them closes the store.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use weir_store::{Store, StoreError};

use crate::cluster::ClusterNode;
use crate::config::{Address, ServerConfig};
use crate::descriptors::{self, Descriptors};
use crate::error::ServerError;
use crate::local::LocalSocket;
use crate::phase::Phase;
use crate::security::{RELOAD_CHECK_INTERVAL, Security};
use crate::shared::Shared;
use crate::{native, opening, service};

/// Maximum number of connections that the kernel queues until they are accepted.
const BACKLOG: u32 = 4096;

/// Interval of the liveness check.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Longest wait for the last audit records when the server ends.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A running server. Dropping it cuts it.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    http: Option<SocketAddr>,
    native: Option<SocketAddr>,
    thread: Option<JoinHandle<()>>,
}

/// A server without a store yet: its settings are checked, and its ports are bound.
#[derive(Debug)]
pub struct Bound {
    config: ServerConfig,
    security: Security,
    descriptors: Descriptors,
    runtime: Runtime,
    http: Option<TcpSocket>,
    native: Option<TcpSocket>,
}

/// A server whose store is still opening. Dropping it closes its ports.
#[derive(Debug)]
pub struct Opening {
    config: ServerConfig,
    security: Arc<Security>,
    descriptors: Descriptors,
    handle: Handle,
    open: oneshot::Sender<Ready>,
    http: Option<SocketAddr>,
    native: Option<SocketAddr>,
    thread: JoinHandle<()>,
}

/// The state that exists once the store is open.
#[derive(Debug)]
struct Ready {
    shared: Arc<Shared>,
    local: Option<LocalSocket>,
    /// Notified when the ports no longer respond that the store is opening.
    serving_sender: mpsc::Sender<()>,
}

impl Server {
    /// Binds the addresses and starts to serve. Returns when clients can connect.
    ///
    /// # Errors
    /// If an address cannot be bound, or would expose the store without protection. Then nothing
    /// was started.
    pub fn start(config: ServerConfig, store: Arc<Store>) -> Result<Self, ServerError> {
        Self::bind(config)?.start(store)
    }

    /// Checks the settings, reads the files that they name, and binds the ports, without a store.
    /// Raises the soft limit of open files of the process to its hard limit. Clients cannot connect
    /// yet.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn bind(config: ServerConfig) -> Result<Bound, ServerError> {
        config.check()?;
        let descriptors = descriptors::raise()?;
        let security = Security::open(&config)?;
        let runtime = runtime(config.threads)?;
        let http = bind(config.http.as_ref())?;
        let native = bind(config.native.as_ref())?;
        Ok(Bound {
            config,
            security,
            descriptors,
            runtime,
            http,
            native,
        })
    }

    /// The HTTP address, with the port that the kernel chose.
    #[must_use]
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The address of the native protocol.
    #[must_use]
    pub fn native_addr(&self) -> Option<SocketAddr> {
        self.native
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &ServerConfig {
        &self.shared.config
    }

    /// Whether connections use TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.shared.security.has_tls()
    }

    /// Makes the server report that it is not ready, so that clients use other servers. It still
    /// serves requests.
    pub fn leave(&self) {
        self.advance(Phase::Leaving);
    }

    /// Stops accepting connections and requests; the server ends after the last response. Returns
    /// at once; see [`wait`](Self::wait).
    pub fn drain(&self) {
        self.advance(Phase::Draining);
    }

    /// Ends the server at once. Writes that the store has accepted remain accepted.
    pub fn cut(&self) {
        self.advance(Phase::Cut);
    }

    fn advance(&self, to: Phase) {
        self.shared.phase.send_if_modified(|phase| {
            let is_later = to > *phase;
            *phase = to.max(*phase);
            is_later
        });
    }

    /// Reloads the files of identities, certificates and keys, as on a hang-up signal. Open
    /// connections remain, but a revoked right is denied to them too.
    ///
    /// # Errors
    /// If one of the files is not valid. Then nothing has changed.
    pub fn reload(&self) -> Result<(), ServerError> {
        Ok(self.shared.security.reload()?)
    }

    /// Returns warnings for the operator, one sentence each, about missing protection or a
    /// certificate that expires soon.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let shared = &self.shared;
        let node = shared.cluster.as_ref();
        let peer_expires_ms = node.and_then(|node| node.certificate_expires_ms());
        shared.security.warnings(&shared.config, peer_expires_ms)
    }

    /// A counter that increases about once a second while the server is alive. It is alive if the
    /// reactor runs, the store accepts writes, and the store has applied an entry if work was
    /// waiting.
    #[must_use]
    pub fn heartbeats(&self) -> u64 {
        self.shared.heartbeats.load(Ordering::Relaxed)
    }

    /// The error that stopped all writes to the store; `None` while it accepts writes. On an error,
    /// the owner should drain the server.
    #[must_use]
    pub fn store_failure(&self) -> Option<Arc<StoreError>> {
        self.shared.store.poison_cause()
    }

    /// Whether the consensus of this node of a cluster has ended. The owner should then drain the
    /// server and restart the process.
    #[must_use]
    pub fn node_has_ended(&self) -> bool {
        let node = self.shared.cluster.as_ref();
        node.is_some_and(|node| node.is_ended())
    }

    /// Whether the server has ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until a drain has finished, or was cut after the configured time.
    ///
    /// # Errors
    /// `Cut` if requests were still open at the end, `Panicked` after a panic of the server.
    pub fn wait(mut self) -> Result<(), ServerError> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(ServerError::Panicked),
            _ if self.shared.phase() == Phase::Cut => Err(ServerError::Cut),
            _ => Ok(()),
        }
    }
}

impl Bound {
    /// Starts to serve a store. Returns when clients can connect.
    ///
    /// # Errors
    /// If another process listens at a port, the Unix socket cannot be created, or threads cannot
    /// be started. Then nothing was started.
    pub fn start(self, store: Arc<Store>) -> Result<Server, ServerError> {
        // The store is open, so no client has to wait.
        self.start_thread(|| 0, false)?.start(store)
    }

    /// Starts to respond that the store is opening. HTTP returns 503 with `percent_done` and a time
    /// to retry, and 200 for `/healthz`. HELLO is refused with `OPENING`. Returns when clients can
    /// connect.
    ///
    /// # Errors
    /// If another process listens at a port, or threads cannot be started. Then nothing was
    /// started.
    pub fn open(
        self,
        percent_done: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<Opening, ServerError> {
        self.start_thread(percent_done, true)
    }

    /// Starts the thread of the server. With `while_opening`, it accepts connections before the
    /// store is open.
    fn start_thread(
        self,
        percent_done: impl Fn() -> u64 + Send + Sync + 'static,
        while_opening: bool,
    ) -> Result<Opening, ServerError> {
        let Self {
            config,
            security,
            descriptors,
            runtime,
            http,
            native,
        } = self;
        let http = listen(&runtime, http, config.http.as_ref())?;
        let native = listen(&runtime, native, config.native.as_ref())?;
        let address = |listener: &Option<TcpListener>| listener.as_ref()?.local_addr().ok();
        let (http_addr, native_addr) = (address(&http), address(&native));
        let state = Arc::new(opening::State {
            config: config.clone(),
            security: Arc::new(security),
            percent_done: Box::new(percent_done),
        });
        let security = Arc::clone(&state.security);
        let handle = runtime.handle().clone();
        let (open, opened) = oneshot::channel::<Ready>();
        let thread = std::thread::Builder::new()
            .name("weir-serve".into())
            .spawn(move || {
                runtime.block_on(async {
                    let http_now = http.as_ref().filter(|_| while_opening);
                    let native_now = native.as_ref().filter(|_| while_opening);
                    let ready = opening::serve(state, http_now, native_now, opened);
                    if let Some(Ready {
                        shared,
                        local,
                        serving_sender,
                    }) = ready.await
                    {
                        // Fails only if the thread that starts the server has ended.
                        let _ = serving_sender.send(());
                        run(shared, http, native, local).await;
                    }
                });
                // Threads that still run a store call end with their call.
                runtime.shutdown_background();
            })
            .map_err(|source| ServerError::Runtime { source })?;
        Ok(Opening {
            config,
            security,
            descriptors,
            handle,
            open,
            http: http_addr,
            native: native_addr,
            thread,
        })
    }
}

impl Opening {
    /// The HTTP address, with the port that the kernel chose.
    #[must_use]
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The address of the native protocol.
    #[must_use]
    pub fn native_addr(&self) -> Option<SocketAddr> {
        self.native
    }

    /// Whether connections use TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.security.has_tls()
    }

    /// Starts to serve the store at the ports that are already open.
    ///
    /// # Errors
    /// If the Unix socket cannot be created, or the thread has ended. Then the ports are closed.
    pub fn start(self, store: Arc<Store>) -> Result<Server, ServerError> {
        self.serve(store, None)
    }

    /// As `start`, for the store of a node of a cluster. The caller remains the owner of the node.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_node(self, node: Arc<ClusterNode>) -> Result<Server, ServerError> {
        self.serve(Arc::clone(node.store()), Some(node))
    }

    fn serve(
        self,
        store: Arc<Store>,
        cluster: Option<Arc<ClusterNode>>,
    ) -> Result<Server, ServerError> {
        let local = self.config.socket.as_deref();
        let local = local
            .map(|path| LocalSocket::bind(&self.handle, path))
            .transpose()?;
        let shared = Shared::new(
            self.config,
            store,
            self.security,
            self.descriptors,
            service::routes(),
        )
        .map_err(|source| ServerError::Runtime { source })?;
        let shared = Arc::new(shared.with_cluster(cluster));
        let (serving_sender, serving) = mpsc::channel();
        let ready = Ready {
            shared: Arc::clone(&shared),
            local,
            serving_sender,
        };
        self.open.send(ready).map_err(|_| ServerError::Panicked)?;
        serving.recv().map_err(|_| ServerError::Panicked)?;
        Ok(Server {
            shared,
            http: self.http,
            native: self.native,
            thread: Some(self.thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.cut();
        if let Some(thread) = self.thread.take() {
            // The panic was printed when it happened.
            drop(thread.join());
        }
    }
}

/// Creates a runtime with `threads` threads; 0: as many as this process has processors. A single
/// thread uses the simpler scheduler.
fn runtime(threads: usize) -> Result<Runtime, ServerError> {
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        count => count,
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

/// Binds an address. Connections are refused until the socket listens.
fn bind(address: Option<&Address>) -> Result<Option<TcpSocket>, ServerError> {
    let Some(Address(address)) = address else {
        return Ok(None);
    };
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    };
    let bound = socket.and_then(|socket| {
        socket.set_reuseaddr(true)?;
        socket.bind(*address)?;
        Ok(socket)
    });
    bound.map(Some).map_err(|source| ServerError::Listen {
        address: address.to_string(),
        source,
    })
}

fn listen(
    runtime: &Runtime,
    socket: Option<TcpSocket>,
    address: Option<&Address>,
) -> Result<Option<TcpListener>, ServerError> {
    let _guard = runtime.enter();
    let listening = socket.map(|socket| socket.listen(BACKLOG)).transpose();
    listening.map_err(|source| ServerError::Listen {
        address: address.map(ToString::to_string).unwrap_or_default(),
        source,
    })
}

async fn run(
    shared: Arc<Shared>,
    http: Option<TcpListener>,
    native: Option<TcpListener>,
    local: Option<LocalSocket>,
) {
    let wake_shared = Arc::clone(&shared);
    tokio::spawn(async move { wake_shared.wake_batches.run(&wake_shared.store).await });
    let mut ports = tokio::task::JoinSet::new();
    if let Some(listener) = http {
        let phase = shared.phase.subscribe();
        ports.spawn(service::listen::serve(listener, Arc::clone(&shared), phase));
    }
    if native.is_some() || local.is_some() {
        let phase = shared.phase.subscribe();
        ports.spawn(native::serve(native, local, Arc::clone(&shared), phase));
    }
    let reload_task = tokio::spawn(reload_security(Arc::clone(&shared)));
    let audit_task = tokio::spawn(audit(Arc::clone(&shared)));
    let heartbeat_task = tokio::spawn(count_heartbeats(Arc::clone(&shared)));
    let mut phase = shared.phase.subscribe();
    let drain_max = shared.config.drain;
    let deadline = async {
        // The sender is in `shared`.
        drop(phase.wait_for(|phase| *phase >= Phase::Draining).await);
        tokio::select! {
            () = tokio::time::sleep(drain_max) => {}
            _ = phase.wait_for(|phase| *phase >= Phase::Cut) => {}
        }
    };
    tokio::select! {
        () = async { while ports.join_next().await.is_some() {} } => {}
        () = deadline => {
            shared.phase.send_replace(Phase::Cut);
        }
    }
    // Waits until the ports are closed, so that a caller can bind them again at once.
    ports.shutdown().await;
    reload_task.abort();
    heartbeat_task.abort();
    if let Some(audit) = shared.security.audit() {
        audit.finish();
        // A store that does not respond must not block the shutdown.
        drop(tokio::time::timeout(AUDIT_TIMEOUT, audit_task).await);
    }
}

/// Increments the liveness counter while the server makes progress.
async fn count_heartbeats(shared: Arc<Shared>) {
    let mut before = None;
    loop {
        let now = shared.store.stats().applied_index;
        // Whether work was waiting at the last check and nothing was applied since.
        let is_stuck = before.replace(now) == Some(now) && shared.admission.is_busy();
        let store = Arc::clone(&shared.store);
        // A `stat` of the directory may block on a disk. If the directory is gone, the check
        // poisons the store.
        drop(tokio::task::spawn_blocking(move || store.check_directory()).await);
        if !is_stuck && !shared.store.is_poisoned() {
            shared.heartbeats.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(HEARTBEAT_INTERVAL).await;
    }
}

/// Checks periodically whether files have changed.
async fn reload_security(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(RELOAD_CHECK_INTERVAL).await;
        let shared = Arc::clone(&shared);
        let reloaded = tokio::task::spawn_blocking(move || shared.security.reload_changed());
        if reloaded.await.is_err() {
            return;
        }
    }
}

/// Writes audit records until the server ends.
async fn audit(shared: Arc<Shared>) {
    if let Some(audit) = shared.security.audit() {
        let store = Arc::clone(&shared.store);
        audit.run(store, shared.admission.clone()).await;
    }
}

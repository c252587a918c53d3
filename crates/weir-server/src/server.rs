//! A running server: its sockets, its threads, its end.
//!
//! The end has steps: [`Server::leave`] (not ready any more, still accepting),
//! [`Server::drain`] (accepting nothing, finishing what is open), [`Server::cut`]
//! (at once). None of them closes the store.

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
use crate::security::{LOOK_EVERY, Security};
use crate::shared::Shared;
use crate::{native, opening, service};

/// Connections that the kernel holds until they are accepted.
const BACKLOG: u32 = 4096;

/// How often it is looked whether the server is alive.
const BEAT_EVERY: Duration = Duration::from_secs(1);

/// Time for the last records of the audit when the server ends.
const AUDIT_PATIENCE: Duration = Duration::from_secs(2);

/// A server that is running. Dropping it cuts it.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    http: Option<SocketAddr>,
    native: Option<SocketAddr>,
    thread: Option<JoinHandle<()>>,
}

/// A server before it has a store: settings that were checked, and ports that
/// nobody else can have.
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

/// What there is when the store is open.
#[derive(Debug)]
struct Ready {
    shared: Arc<Shared>,
    local: Option<LocalSocket>,
    /// Hears when no connection is accepted any more that would be told to wait.
    switched: mpsc::Sender<()>,
}

impl Server {
    /// Binds the addresses and starts to serve; returns when clients can
    /// connect.
    ///
    /// # Errors
    /// When an address cannot be had, or would expose the store without what
    /// protects it. Then nothing was started.
    pub fn start(config: ServerConfig, store: Arc<Store>) -> Result<Self, ServerError> {
        Self::bind(config)?.start(store)
    }

    /// Checks the settings, reads the files they name and takes the ports,
    /// which needs no store. Raises the soft limit of open files of the process
    /// to its hard limit. Nobody can connect yet.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
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

    /// What it was told.
    #[must_use]
    pub fn config(&self) -> &ServerConfig {
        &self.shared.config
    }

    /// Whether connections are encrypted.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.shared.security.has_tls()
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

    /// Reads the files of identities, certificates and keys anew, as on a
    /// hang-up signal. Connections that are open stay; what was taken back is
    /// denied to them too.
    ///
    /// # Errors
    /// When one of the files is wrong. Then nothing has changed.
    pub fn reload(&self) -> Result<(), ServerError> {
        Ok(self.shared.security.reload()?)
    }

    /// Returns warnings for the operator, one sentence each: missing protection, a
    /// certificate that expires soon.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.shared.security.warnings(&self.shared.config)
    }

    /// Another number whenever it was seen that the server is alive: its reactor
    /// turns, and the store takes writes and has applied something if it had
    /// anything to do.
    /// About once a second.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.shared.beats.load(Ordering::Relaxed)
    }

    /// Why the store takes no more writes; `None` while it does. Its owner
    /// drains the server then.
    #[must_use]
    pub fn store_failure(&self) -> Option<Arc<StoreError>> {
        self.shared.store.poison_cause()
    }

    /// Whether the consensus of this node of a cluster has ended. Its owner drains the
    /// server then, and the process is started again.
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

impl Bound {
    /// Starts to serve a store; returns when clients can connect.
    ///
    /// # Errors
    /// When somebody else listens at a port by now, the socket cannot be had,
    /// or there are no threads. Then nothing was started.
    pub fn start(self, store: Arc<Store>) -> Result<Server, ServerError> {
        // The store is open: nobody has to be told to wait.
        self.launch(|| 0, false)?.start(store)
    }

    /// Starts to answer that the store is opening: HTTP with 503, `percent_done`
    /// and a time to try again, a HELLO with the refusal `OPENING`; `/healthz`
    /// with 200. Returns when clients can connect.
    ///
    /// # Errors
    /// When somebody else listens at a port by now, or there are no threads.
    /// Then nothing was started.
    pub fn open(
        self,
        percent_done: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<Opening, ServerError> {
        self.launch(percent_done, true)
    }

    /// Starts the thread of the server; connections are accepted before the store
    /// is there if they are to be answered.
    fn launch(
        self,
        percent_done: impl Fn() -> u64 + Send + Sync + 'static,
        answers: bool,
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
                    let http_now = http.as_ref().filter(|_| answers);
                    let native_now = native.as_ref().filter(|_| answers);
                    let ready = opening::serve(state, http_now, native_now, opened);
                    if let Some(Ready {
                        shared,
                        local,
                        switched,
                    }) = ready.await
                    {
                        // Nobody hears it when the starter has ended.
                        let _ = switched.send(());
                        run(shared, http, native, local).await;
                    }
                });
                // Threads that are still in a store call end with it.
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
    /// Where HTTP is answered, with the port that the kernel chose.
    #[must_use]
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Where the native protocol is answered.
    #[must_use]
    pub fn native_addr(&self) -> Option<SocketAddr> {
        self.native
    }

    /// Whether connections are encrypted.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.security.has_tls()
    }

    /// Serves the store from now on, at the ports that are open already.
    ///
    /// # Errors
    /// When the socket cannot be had, or the thread has ended. Then the ports are
    /// closed.
    pub fn start(self, store: Arc<Store>) -> Result<Server, ServerError> {
        self.serve(store, None)
    }

    /// As `start`, for the store of a node of a cluster. The node stays with its owner.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
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
        let (switched, switch) = mpsc::channel();
        let ready = Ready {
            shared: Arc::clone(&shared),
            local,
            switched,
        };
        self.open.send(ready).map_err(|_| ServerError::Died)?;
        switch.recv().map_err(|_| ServerError::Died)?;
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

/// The port of an address. Connections are refused until it is listened at.
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
    let _entered = runtime.enter();
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
    let turning = Arc::clone(&shared);
    tokio::spawn(async move { turning.wake_batches.run(&turning.store).await });
    let mut ports = tokio::task::JoinSet::new();
    if let Some(listener) = http {
        let phase = shared.phase.subscribe();
        ports.spawn(service::listen::serve(listener, Arc::clone(&shared), phase));
    }
    if native.is_some() || local.is_some() {
        let phase = shared.phase.subscribe();
        ports.spawn(native::serve(native, local, Arc::clone(&shared), phase));
    }
    let looking = tokio::spawn(look(Arc::clone(&shared)));
    let auditing = tokio::spawn(audit(Arc::clone(&shared)));
    let beating = tokio::spawn(beat(Arc::clone(&shared)));
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
    // A caller that waits for the end may bind the ports at once.
    ports.shutdown().await;
    looking.abort();
    beating.abort();
    if let Some(audit) = shared.security.audit() {
        audit.finish();
        // A store that answers no more must not keep the server.
        drop(tokio::time::timeout(AUDIT_PATIENCE, auditing).await);
    }
}

/// Counts as long as somebody is at work.
async fn beat(shared: Arc<Shared>) {
    let mut before = None;
    loop {
        let now = shared.store.stats().applied_index;
        // What was on its way at the last look and is still there.
        let stands = before.replace(now) == Some(now) && shared.admission.is_busy();
        let store = Arc::clone(&shared.store);
        // A `stat` of the directory may wait for a disk. What it finds has
        // poisoned the store.
        drop(tokio::task::spawn_blocking(move || store.check_directory()).await);
        if !stands && !shared.store.is_poisoned() {
            shared.beats.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(BEAT_EVERY).await;
    }
}

/// Looks every now and then whether files have changed.
async fn look(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let shared = Arc::clone(&shared);
        let looked = tokio::task::spawn_blocking(move || shared.security.look());
        if looked.await.is_err() {
            return;
        }
    }
}

/// Writes down what is to be remembered, until the end.
async fn audit(shared: Arc<Shared>) {
    if let Some(audit) = shared.security.audit() {
        let store = Arc::clone(&shared.store);
        audit.run(store, shared.admission.clone()).await;
    }
}

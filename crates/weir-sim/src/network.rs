//! The simulated network: connections with delays, losses and partitions.
//!
//! A connection is a stream, like TCP. Lost bytes arrive later. A cut link delays bytes until it
//! heals. Only the end of a node breaks a connection.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use weir_raft::sim::{Accepting, Acceptor, Connecting, Connection, Transport};

use crate::random::Random;
use crate::trace::Trace;

/// Buffer size of each side of a connection, in bytes.
const BUFFER_BYTES: usize = 64 << 10;
/// Pause before a cut link is checked again.
const CUT_PAUSE: Duration = Duration::from_millis(10);
/// Delay of bytes that were lost once.
const RESEND: Duration = Duration::from_millis(200);

/// The current behavior of the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkConditions {
    pub(crate) delay_us_max: u64,
    pub(crate) loss_percent: u64,
}

impl LinkConditions {
    pub(crate) const NORMAL: Self = Self {
        delay_us_max: 1_000,
        loss_percent: 0,
    };
}

struct State {
    random: Random,
    conditions: LinkConditions,
    /// Cut links, each in one direction.
    cut: BTreeSet<(u64, u64)>,
    ports: BTreeMap<u64, mpsc::UnboundedSender<(u64, DuplexStream)>>,
    /// Number of starts of each node.
    runs: BTreeMap<u64, u64>,
    pumps: BTreeMap<u64, Vec<AbortHandle>>,
    messages: u64,
}

/// The network. Clones share it.
#[derive(Clone)]
pub(crate) struct Network {
    state: Arc<Mutex<State>>,
    trace: Trace,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Network")
    }
}

/// The peer address of a node.
pub(crate) fn address(node: u64) -> String {
    format!("node-{node}")
}

impl Network {
    pub(crate) fn new(random: Random, trace: Trace) -> Self {
        let state = State {
            random,
            conditions: LinkConditions::NORMAL,
            cut: BTreeSet::new(),
            ports: BTreeMap::new(),
            runs: BTreeMap::new(),
            pumps: BTreeMap::new(),
            messages: 0,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            trace,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The transport and the acceptor of a node that starts.
    pub(crate) fn attach(&self, node: u64) -> (Arc<dyn Transport>, Box<dyn Acceptor>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.state();
        state.ports.insert(node, sender);
        let run = state.runs.entry(node).or_default();
        *run += 1;
        let link = Link {
            network: self.clone(),
            node,
            run: *run,
        };
        (Arc::new(link), Box::new(Port { node, receiver }))
    }

    /// Breaks every connection of a node that has ended.
    pub(crate) fn detach(&self, node: u64) {
        let mut state = self.state();
        state.ports.remove(&node);
        *state.runs.entry(node).or_default() += 1;
        for pump in state.pumps.remove(&node).unwrap_or_default() {
            pump.abort();
        }
    }

    pub(crate) fn cut(&self, from: u64, to: u64) {
        self.state().cut.insert((from, to));
    }

    pub(crate) fn heal(&self) {
        self.state().cut.clear();
    }

    pub(crate) fn set_conditions(&self, conditions: LinkConditions) {
        self.state().conditions = conditions;
    }

    /// Number of pieces of connections that have arrived.
    pub(crate) fn messages(&self) -> u64 {
        self.state().messages
    }

    fn is_cut(&self, from: u64, to: u64) -> bool {
        self.state().cut.contains(&(from, to))
    }

    fn delay(&self) -> Duration {
        let mut state = self.state();
        let LinkConditions {
            delay_us_max,
            loss_percent,
        } = state.conditions;
        let mut delay = state.random.micros(50, delay_us_max);
        while state.random.chance(loss_percent) {
            delay += RESEND;
        }
        delay
    }

    fn connect(&self, from: u64, to: u64) -> io::Result<DuplexStream> {
        let (client, client_link) = duplex(BUFFER_BYTES);
        let (server, server_link) = duplex(BUFFER_BYTES);
        let port = self.state().ports.get(&to).cloned();
        let port = port.ok_or(io::ErrorKind::ConnectionRefused)?;
        if port.send((from, server)).is_err() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (client_read, client_write) = split(client_link);
        let (server_read, server_write) = split(server_link);
        let to_server = tokio::spawn(self.clone().pump(from, to, client_read, server_write));
        let to_client = tokio::spawn(self.clone().pump(to, from, server_read, client_write));
        let mut state = self.state();
        for node in [from, to] {
            let pumps = state.pumps.entry(node).or_default();
            pumps.retain(|pump| !pump.is_finished());
            pumps.push(to_server.abort_handle());
            pumps.push(to_client.abort_handle());
        }
        Ok(client)
    }

    /// Copies bytes in one direction until an end closes.
    async fn pump(
        self,
        from: u64,
        to: u64,
        mut read: ReadHalf<DuplexStream>,
        mut write: WriteHalf<DuplexStream>,
    ) {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let Ok(bytes) = read.read(&mut buffer).await else {
                return;
            };
            tokio::time::sleep(self.delay()).await;
            while self.is_cut(from, to) {
                tokio::time::sleep(CUT_PAUSE).await;
            }
            let Some(piece) = buffer.get(..bytes).filter(|piece| !piece.is_empty()) else {
                // The other side may have ended.
                drop(write.shutdown().await);
                return;
            };
            self.state().messages += 1;
            self.trace.add("net", &[from, to], piece);
            if write.write_all(piece).await.is_err() {
                return;
            }
        }
    }
}

/// The connections to peers of one run of a node.
#[derive(Debug)]
struct Link {
    network: Network,
    node: u64,
    run: u64,
}

impl Transport for Link {
    fn connect<'a>(&'a self, address: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let to = address.strip_prefix("node-").and_then(|to| to.parse().ok());
            let to: u64 = to.ok_or(io::ErrorKind::InvalidInput)?;
            tokio::time::sleep(self.network.delay()).await;
            while self.network.is_cut(self.node, to) || self.network.is_cut(to, self.node) {
                tokio::time::sleep(CUT_PAUSE).await;
            }
            if self.network.state().runs.get(&self.node) != Some(&self.run) {
                return Err(io::ErrorKind::NetworkDown.into());
            }
            let stream = self.network.connect(self.node, to)?;
            Ok(Box::new(stream) as Box<dyn Connection>)
        })
    }
}

struct Port {
    node: u64,
    receiver: mpsc::UnboundedReceiver<(u64, DuplexStream)>,
}

impl Acceptor for Port {
    fn accept(&mut self) -> Accepting<'_> {
        Box::pin(async move {
            match self.receiver.recv().await {
                Some((from, stream)) => {
                    let from = Ipv4Addr::from_bits(u32::try_from(from).unwrap_or_default());
                    Ok((Box::new(stream) as Box<dyn Connection>, from.into()))
                }
                None => std::future::pending().await,
            }
        })
    }

    fn address(&self) -> io::Result<SocketAddr> {
        let port = u16::try_from(self.node).unwrap_or_default();
        Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }
}

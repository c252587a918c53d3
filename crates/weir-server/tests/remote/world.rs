//! A store with a server, and access to its values.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use weir::{ClientId, ConsequenceOffset, Durability, Intention, OpenOptions, Operation, Weir};
use weir_server::{Address, Server, ServerConfig};
use weir_store::Store;

pub(crate) const CLIENT: ClientId = ClientId([7; 16]);
/// No server listens at this port, which the system never assigns to a socket by itself.
pub(crate) const UNREACHABLE: &str = "127.0.0.1:1";
/// Last byte of the IP address of the next server.
static NEXT_IP: AtomicU8 = AtomicU8::new(1);

pub(crate) struct World {
    pub(crate) server: Option<Server>,
    pub(crate) store: Arc<Store>,
    local: Weir,
    pub(crate) address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// Starts the first server with another configuration.
    pub(crate) fn with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = OpenOptions {
            durability: Durability::Memory,
            ..OpenOptions::default()
        };
        let local = Weir::open_with(dir.path(), &options).unwrap();
        let store = local.shared_store().unwrap();
        // An IP address of its own, so that no other socket takes its port during a restart.
        let ip = [127, 80, 0, NEXT_IP.fetch_add(1, Ordering::Relaxed)];
        let (server, address) = serve(&store, (ip, 0).into(), change);
        Self {
            server: Some(server),
            store,
            local,
            address,
            _dir: dir,
        }
    }

    /// The store of the server, as a local handle.
    pub(crate) fn local(&self) -> Weir {
        self.local.clone()
    }

    pub(crate) fn connect(&self) -> Weir {
        Weir::connect(&format!("weir://{}", self.address)).unwrap()
    }

    /// Ends the server at once, and starts another one at its address.
    pub(crate) fn restart(&mut self) {
        if let Some(server) = self.server.take() {
            server.cut();
            drop(server);
        }
        self.server = Some(serve(&self.store, self.address, |_| {}).0);
    }

    /// Ends the server as an operator does, and starts another one at its address.
    pub(crate) fn drain(&mut self) {
        if let Some(server) = self.server.take() {
            server.drain();
            server.wait().unwrap();
        }
        self.server = Some(serve(&self.store, self.address, |_| {}).0);
    }

    /// Returns the values of the puts of a topic, in order.
    pub(crate) fn values(&self, topic: &str) -> Vec<String> {
        let mut reader = self.store.read(topic, ConsequenceOffset::ZERO).unwrap();
        let mut values = Vec::new();
        while let Some(page) = reader.next_page().unwrap() {
            for record in &page {
                let record = record.unwrap();
                if record.kind == weir::RecordKind::Put {
                    values.push(String::from_utf8(record.value.to_vec()).unwrap());
                }
            }
        }
        values
    }
}

fn serve(
    store: &Arc<Store>,
    at: SocketAddr,
    change: impl FnOnce(&mut ServerConfig),
) -> (Server, SocketAddr) {
    let mut config = ServerConfig::default();
    config.http = None;
    config.native = Some(Address(at));
    change(&mut config);
    let server = Server::start(config, Arc::clone(store)).unwrap();
    let address = server.native_addr().unwrap();
    (server, address)
}

pub(crate) fn put<'a>(topic: &'a str, key: &'a str, value: &'a str) -> Intention<'a> {
    let (key, value) = (key.as_bytes(), value.as_bytes());
    Intention::new(topic, Operation::Put { key, value })
}

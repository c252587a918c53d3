//! A server on a separate port, and its store.

use std::net::SocketAddr;
use std::sync::Arc;

use weir_server::{Server, ServerConfig};
use weir_store::{Durability, OpenOptions, Store};

use crate::client::{Client, Reply};

pub struct World {
    pub server: Option<Server>,
    pub store: Arc<Store>,
    pub directory: tempfile::TempDir,
    pub address: SocketAddr,
}

pub fn options() -> OpenOptions {
    OpenOptions {
        durability: Durability::Memory,
        ..OpenOptions::default()
    }
}

/// Starts a server with these settings instead of the defaults.
pub fn with(settings: &[(&str, &str)]) -> World {
    start(tempfile::tempdir().unwrap(), &options(), settings)
}

/// As `with`, but with values of up to 64 MiB.
pub fn large(settings: &[(&str, &str)]) -> World {
    let mut options = options();
    options.limits.value_bytes_max = 64 << 20;
    start(tempfile::tempdir().unwrap(), &options, settings)
}

fn start(directory: tempfile::TempDir, options: &OpenOptions, settings: &[(&str, &str)]) -> World {
    let store = Arc::new(Store::open(directory.path(), options).unwrap());
    let mut config = ServerConfig::default();
    let ports = [("http", "127.0.0.1:0"), ("native", "off"), ("threads", "2")];
    for (name, value) in ports.iter().chain(settings) {
        let key = ServerConfig::KEYS.iter().find(|key| key.name == *name);
        (key.expect(name).set)(&mut config, value).unwrap();
    }
    let server = Server::start(config, Arc::clone(&store)).unwrap();
    World {
        address: server.http_addr().unwrap(),
        server: Some(server),
        store,
        directory,
    }
}

/// Starts a server with default settings and a topic `t`.
pub fn world() -> World {
    let world = with(&[]);
    assert_eq!(world.ask("PUT /v1/topics/t", "", b"").status, 201);
    world
}

impl World {
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Starts a new server with default settings on the directory of this one.
    pub fn restarted(mut self) -> Self {
        drop(self.server.take());
        self.store.shut_down().unwrap();
        drop(self.store);
        start(self.directory, &options(), &[])
    }

    /// Sends one request on a new connection. `line` is the method and the target.
    pub fn ask(&self, line: &str, fields: &str, body: &[u8]) -> Reply {
        let mut client = self.client();
        client.send(&request(line, fields, body));
        client.reply(line.starts_with("HEAD "))
    }

    /// Returns the bytes of the writes without a verdict.
    pub fn in_flight_bytes(&self) -> u64 {
        let page = self.ask("GET /metrics", "", b"");
        let bytes = page.text().lines().find_map(|line| {
            let rest = line.strip_prefix("weir_in_flight_bytes ")?;
            rest.parse().ok()
        });
        bytes.unwrap()
    }
}

/// Builds a request with a declared length.
pub fn request(line: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let mut text = format!("{line} HTTP/1.1\r\nHost: localhost\r\n");
    for field in fields
        .lines()
        .map(str::trim)
        .filter(|field| !field.is_empty())
    {
        text.push_str(field);
        text.push_str("\r\n");
    }
    if !body.is_empty() || line.starts_with("POST") {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

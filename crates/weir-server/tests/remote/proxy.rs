//! A proxy that cuts connections after a number of bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

struct State {
    server: SocketAddr,
    /// Bytes to the server that still pass; negative: all.
    to_server: AtomicI64,
    /// Bytes to the client that still pass; negative: all.
    to_client: AtomicI64,
    connections: AtomicU64,
}

impl Proxy {
    /// Cuts the first connection after this many bytes in either direction (`i64::MAX`: never).
    /// Later connections are not cut.
    pub(crate) fn new(server: SocketAddr, to_server: i64, to_client: i64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            server,
            to_server: AtomicI64::new(to_server),
            to_client: AtomicI64::new(to_client),
            connections: AtomicU64::new(0),
        });
        let server_state = Arc::clone(&state);
        // Ends with the process.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { break };
                server_state.connections.fetch_add(1, Ordering::SeqCst);
                let Ok(server) = TcpStream::connect(server_state.server) else {
                    continue;
                };
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                for to_server in [true, false] {
                    let (from, to) = if to_server {
                        (&client, &server)
                    } else {
                        (&server, &client)
                    };
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let state = Arc::clone(&server_state);
                    std::thread::spawn(move || pass(from, to, &state, to_server));
                }
            }
        });
        Self { address, state }
    }

    pub(crate) fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::SeqCst)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, state: &State, to_server: bool) {
    let remaining = if to_server {
        &state.to_server
    } else {
        &state.to_client
    };
    let mut chunk = [0; 4096];
    while let Ok(bytes @ 1..) = from.read(&mut chunk) {
        let before = remaining.load(Ordering::SeqCst);
        let size = i64::try_from(bytes).unwrap();
        if before >= 0 {
            remaining.fetch_sub(size, Ordering::SeqCst);
        }
        let passed = if before >= 0 && before < size {
            usize::try_from(before).unwrap()
        } else {
            bytes
        };
        if to.write_all(&chunk[..passed]).is_err() {
            break;
        }
        if passed < bytes {
            // From now on all bytes pass.
            state.to_server.store(-1, Ordering::SeqCst);
            state.to_client.store(-1, Ordering::SeqCst);
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

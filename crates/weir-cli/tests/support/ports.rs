//! Ports for servers that a test starts later, or starts again.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Mutex;

#[path = "../../src/cluster/reserve_port.rs"]
pub(crate) mod reserve_port;

/// Sockets that reserve ports until this process ends.
pub(crate) static RESERVED: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// Reserves a free port of a host until this process ends. Returns the address with the port.
pub(crate) fn reserve(host: [u8; 4]) -> SocketAddr {
    let any = SocketAddr::new(IpAddr::from(host), 0);
    let (socket, address) = reserve_port::reserve_port(any).unwrap();
    RESERVED.lock().unwrap().push(socket);
    address
}

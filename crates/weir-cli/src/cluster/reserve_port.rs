//! Reserves ports for processes that are started later.
//!
//! The system selects a port with a bound socket for no other socket, even if the socket does not
//! listen. A server that names the port can listen there, because the server and the socket both
//! have `SO_REUSEADDR`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

/// Reserves the port of an address until the returned socket is dropped. Port 0 reserves any free
/// port. Returns the socket, and the address with the port.
pub(crate) fn reserve_port(address: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &address)?;
    // Set after the call of `bind`, which otherwise succeeds for a port that is already reserved.
    set_socket_reuseaddr(&socket, true)?;
    let bound = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, bound))
}

//! Transport of bytes between nodes: TCP, or a simulated network.
#![cfg_attr(
    not(feature = "sim"),
    allow(unreachable_pub, reason = "a simulation implements the traits")
)]

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// A connection between two nodes.
pub trait Connection: AsyncRead + AsyncWrite + Debug + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Debug + Send + Sync + Unpin> Connection for T {}

/// The future of a connect.
pub type Connecting<'a> =
    Pin<Box<dyn Future<Output = io::Result<Box<dyn Connection>>> + Send + 'a>>;

/// The future of an accept: a connection, and its source address.
pub type Accepting<'a> =
    Pin<Box<dyn Future<Output = io::Result<(Box<dyn Connection>, IpAddr)>> + Send + 'a>>;

/// Opens connections to peers.
pub trait Transport: Debug + Send + Sync {
    /// Connects to the peer at `address`. The caller limits the time.
    fn connect<'a>(&'a self, address: &'a str) -> Connecting<'a>;
}

/// Accepts connections from peers.
pub trait Acceptor: Send {
    /// The next connection.
    fn accept(&mut self) -> Accepting<'_>;
    /// The local address of the listener.
    ///
    /// # Errors
    /// An error of the operating system.
    fn address(&self) -> io::Result<SocketAddr>;
}

/// TCP.
#[derive(Debug)]
pub(crate) struct Tcp;

impl Transport for Tcp {
    fn connect<'a>(&'a self, address: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Connection>)
        })
    }
}

impl Acceptor for TcpListener {
    fn accept(&mut self) -> Accepting<'_> {
        Box::pin(async move {
            let (stream, from) = TcpListener::accept(self).await?;
            stream.set_nodelay(true)?;
            Ok((Box::new(stream) as Box<dyn Connection>, from.ip()))
        })
    }

    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}

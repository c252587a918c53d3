//! How bytes get from one node to another: TCP, or a simulated network.
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

/// What connecting waits for.
pub type Connecting<'a> =
    Pin<Box<dyn Future<Output = io::Result<Box<dyn Connection>>> + Send + 'a>>;

/// What accepting waits for: a connection, and from where it comes.
pub type Accepting<'a> =
    Pin<Box<dyn Future<Output = io::Result<(Box<dyn Connection>, IpAddr)>> + Send + 'a>>;

/// Makes connections to peers.
pub trait Transport: Debug + Send + Sync {
    /// Connects to the peer at `address`. The caller bounds the time.
    fn connect<'a>(&'a self, address: &'a str) -> Connecting<'a>;
}

/// Takes connections of peers.
pub trait Acceptor: Send {
    /// The next connection.
    fn accept(&mut self) -> Accepting<'_>;
    /// Where it listens.
    ///
    /// # Errors
    /// Those of the operating system.
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

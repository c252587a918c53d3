//! The address of a server, and the socket to it.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tls")]
use super::tls::TlsStream;

/// The TLS configuration: trusted authorities and the client certificate; `None` without TLS.
#[cfg(feature = "tls")]
pub(crate) type Trust = Option<Arc<rustls::ClientConfig>>;
/// The TLS configuration in a build without TLS; always `None`.
#[cfg(not(feature = "tls"))]
pub(crate) type Trust = Option<std::sync::Arc<std::convert::Infallible>>;

/// Default port of the native protocol.
const PORT: u16 = 7071;

/// An address of a server: `weir://HOST[:PORT]`, `weirs://HOST[:PORT]` or
/// `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// Host and port.
    Tcp(String),
    /// Host and port, over TLS.
    Tls(String),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// A text that is not the address of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given} is not an address of a server; give weir://HOST:PORT, weirs://HOST:PORT or unix:PATH"
)]
pub struct AddressError {
    given: String,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError {
            given: text.to_owned(),
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(wrong()),
                path => Ok(Self::Unix(path.into())),
            };
        }
        let (host, form): (_, fn(String) -> Self) = match text.split_once("://") {
            Some(("weir", host)) => (host, Self::Tcp),
            Some(("weirs", host)) => (host, Self::Tls),
            _ => return Err(wrong()),
        };
        let host = host.strip_suffix('/').unwrap_or(host);
        if host.is_empty() || host.contains(['/', '@', ' ', '?', '#']) {
            return Err(wrong());
        }
        // The port follows the bracket of an IPv6 address, or the only colon.
        let port = host.rsplit_once(':').filter(|(name, port)| {
            !port.ends_with(']') && (name.ends_with(']') || !name.contains(':'))
        });
        match port {
            None if host.ends_with(']') || !host.contains(':') => {
                Ok(form(format!("{host}:{PORT}")))
            }
            Some((name, port)) if !name.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(form(host.to_owned()))
            }
            _ => Err(wrong()),
        }
    }
}

impl Address {
    /// Parses a text with one address, or with several servers of a cluster:
    /// `weir://HOST[:PORT],HOST[:PORT]`.
    pub(crate) fn list(text: &str) -> Result<Vec<Self>, AddressError> {
        let wrong = || AddressError {
            given: text.to_owned(),
        };
        let Some((scheme, hosts)) = text.split_once("://") else {
            return Ok(vec![text.parse()?]);
        };
        let one = |host| format!("{scheme}://{host}").parse();
        let list: Result<Vec<Self>, _> = hosts.split(',').map(one).collect();
        list.map_err(|_| wrong())
    }

    /// Whether nobody on the network can read or change the bytes that are sent to this address.
    pub(crate) fn is_private(&self) -> bool {
        !matches!(self, Self::Tcp(_))
    }

    /// Whether others on the network can read the bytes: the address is on another machine and has
    /// no TLS.
    pub(crate) fn is_exposed(&self) -> bool {
        match self {
            Self::Tcp(_) => !is_this_machine(self.host()),
            Self::Tls(_) | Self::Unix(_) => false,
        }
    }

    /// The host without its port; empty for a socket in the file system.
    pub(crate) fn host(&self) -> &str {
        match self {
            Self::Tcp(host) | Self::Tls(host) => {
                host.rsplit_once(':').map_or(host, |(name, _)| name)
            }
            Self::Unix(_) => "",
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => write!(f, "weir://{host}"),
            Self::Tls(host) => write!(f, "weirs://{host}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A connected socket. Reads and writes need no exclusive access.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream>),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Stream {
    /// Connects. Tries every address that the name resolves to.
    pub(crate) fn connect(address: &Address, trust: &Trust, time: Duration) -> io::Result<Self> {
        #[cfg(not(feature = "tls"))]
        let _ = trust;
        match address {
            Address::Tcp(host) => tcp(host, time).map(Self::Tcp),
            #[cfg(feature = "tls")]
            Address::Tls(host) => {
                let config = trust.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
                let name = host
                    .rsplit_once(':')
                    .map_or(host.as_str(), |(name, _)| name);
                let stream = TlsStream::new(tcp(host, time)?, name, Arc::clone(config), time);
                stream.map(|stream| Self::Tls(Box::new(stream)))
            }
            #[cfg(not(feature = "tls"))]
            Address::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
            #[cfg(unix)]
            Address::Unix(path) => UnixStream::connect(path).map(Self::Unix),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Sets the longest time without a byte from the peer; zero: no limit.
    pub(crate) fn set_read_timeout(&self, time: Duration) -> io::Result<()> {
        let time = Some(time).filter(|time| !time.is_zero());
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(time),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.socket().set_read_timeout(time),
            #[cfg(unix)]
            Self::Unix(stream) => stream.set_read_timeout(time),
        }
    }

    /// Closes the connection; pending reads and writes fail.
    pub(crate) fn end(&self) {
        // The peer may have closed the connection already.
        drop(match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.socket().shutdown(Shutdown::Both),
            #[cfg(unix)]
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        });
    }

    pub(crate) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&mut &*stream).read(into),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.read(into),
            #[cfg(unix)]
            Self::Unix(stream) => (&mut &*stream).read(into),
        }
    }

    pub(crate) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => (&mut &*stream).write_all(bytes),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.write_all(bytes),
            #[cfg(unix)]
            Self::Unix(stream) => (&mut &*stream).write_all(bytes),
        }
    }
}

/// Whether the name alone shows that a host is this machine.
fn is_this_machine(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn tcp(host: &str, time: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for found in host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&found, time) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::Address;

    #[test]
    fn addresses_are_parsed_or_rejected() {
        for (text, parsed) in [
            ("weir://localhost", "weir://localhost:7071"),
            ("weir://localhost/", "weir://localhost:7071"),
            ("weir://127.0.0.1:1", "weir://127.0.0.1:1"),
            ("weir://[::1]", "weir://[::1]:7071"),
            ("weir://[::1]:9", "weir://[::1]:9"),
            ("weirs://a.example", "weirs://a.example:7071"),
            ("weirs://[::1]:9", "weirs://[::1]:9"),
            ("unix:/run/weir.sock", "unix:/run/weir.sock"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), parsed);
        }
        for given in [
            "",
            "weir://",
            "weir://:1",
            "weir://a:b",
            "weir://a:70000",
            "weir://::1",
            "unix:",
            "http://a",
            "/a",
            "weir://a/b",
            "weir://u@a",
            "weirs:a",
            "weirz://a",
        ] {
            assert!(given.parse::<Address>().is_err(), "{given}");
        }
        let many = Address::list("weir://a,b:1,[::1]").unwrap();
        let many: Vec<_> = many.iter().map(ToString::to_string).collect();
        assert_eq!(many, ["weir://a:7071", "weir://b:1", "weir://[::1]:7071"]);
        for given in ["weir://a,", "weir://", "a,b"] {
            assert!(Address::list(given).is_err(), "{given}");
        }
    }
}

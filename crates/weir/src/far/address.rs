//! Where a server is, and the socket to it.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Port of the native protocol when the address names none.
const PORT: u16 = 7071;

/// An address of a server: `weir://HOST[:PORT]` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// Host and port.
    Tcp(String),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// A text that is no address of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given} is no address of a server; give weir://HOST:PORT or unix:PATH")]
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
        let host = text.strip_prefix("weir://").ok_or_else(wrong)?;
        let host = host.strip_suffix('/').unwrap_or(host);
        if host.is_empty() || host.contains(['/', '@', ' ', '?', '#']) {
            return Err(wrong());
        }
        // Behind the bracket of an IPv6 address, or the only colon.
        let port = host.rsplit_once(':').filter(|(name, port)| {
            !port.ends_with(']') && (name.ends_with(']') || !name.contains(':'))
        });
        match port {
            None if host.ends_with(']') || !host.contains(':') => {
                Ok(Self::Tcp(format!("{host}:{PORT}")))
            }
            Some((name, port)) if !name.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Self::Tcp(host.to_owned()))
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => write!(f, "weir://{host}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A connected socket. Reading and writing need no exclusive access.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Stream {
    /// Connects; tries every address that the name has.
    pub(crate) fn connect(address: &Address, time: Duration) -> io::Result<Self> {
        match address {
            Address::Tcp(host) => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                for found in host.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&found, time) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            return Ok(Self::Tcp(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
            #[cfg(unix)]
            Address::Unix(path) => UnixStream::connect(path).map(Self::Unix),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Longest silence of the other side; zero: any.
    pub(crate) fn silence(&self, time: Duration) -> io::Result<()> {
        let time = Some(time).filter(|time| !time.is_zero());
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(time),
            #[cfg(unix)]
            Self::Unix(stream) => stream.set_read_timeout(time),
        }
    }

    /// Ends it; whoever reads or writes finds out.
    pub(crate) fn end(&self) {
        // It may have ended already.
        drop(match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            #[cfg(unix)]
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        });
    }

    pub(crate) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&mut &*stream).read(into),
            #[cfg(unix)]
            Self::Unix(stream) => (&mut &*stream).read(into),
        }
    }

    pub(crate) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => (&mut &*stream).write_all(bytes),
            #[cfg(unix)]
            Self::Unix(stream) => (&mut &*stream).write_all(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::Address;

    #[test]
    fn addresses_have_a_few_forms() {
        for (given, meant) in [
            ("weir://localhost", "weir://localhost:7071"),
            ("weir://localhost/", "weir://localhost:7071"),
            ("weir://127.0.0.1:1", "weir://127.0.0.1:1"),
            ("weir://[::1]", "weir://[::1]:7071"),
            ("weir://[::1]:9", "weir://[::1]:9"),
            ("unix:/run/weir.sock", "unix:/run/weir.sock"),
        ] {
            assert_eq!(given.parse::<Address>().unwrap().to_string(), meant);
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
        ] {
            assert!(given.parse::<Address>().is_err(), "{given}");
        }
    }
}

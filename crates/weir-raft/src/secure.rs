//! Connections between nodes, with TLS on both sides or without.
//!
//! Invariants: with TLS, no byte of a frame is sent or accepted before each side has verified the
//! certificate of the other; a certificate admits, of the known members, only the node at the host
//! that it names; a connection without TLS to a port that requires TLS receives only an error sentence.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, ClientConfig, ServerConfig};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::transport::{Connecting, Connection, Transport};

/// First bytes of a connection with TLS: a handshake record, version 3. In a greeting without TLS,
/// the third byte is zero.
const HANDSHAKE: [u8; 2] = [22, 3];
/// The error for a process that connects without TLS.
pub(crate) const PLAIN: &str = "the nodes of this cluster use TLS: set peer_cert, peer_key and peer_ca, with a \
     certificate of the authority of the cluster";

/// Certificates of a node, and the certificates that it accepts.
#[derive(Clone, Debug)]
pub struct PeerConfigs {
    /// For connections that this node accepts. Must require a client certificate.
    pub server: Arc<ServerConfig>,
    /// For connections that this node opens. Must present a certificate.
    pub client: Arc<ClientConfig>,
    /// Verifies the certificate of a connecting process by the rules for a server: it must be the
    /// certificate of a node and name the host of the peer address.
    pub verifier: Arc<dyn ServerCertVerifier>,
}

type Source = dyn Fn() -> io::Result<PeerConfigs> + Send + Sync;

/// TLS between nodes. The source is called for each connection, so that certificates can be renewed
/// while a node runs.
#[derive(Clone)]
pub struct PeerTls(Arc<Source>);

impl PeerTls {
    /// TLS with the configurations that `source` returns.
    pub fn new(source: impl Fn() -> io::Result<PeerConfigs> + Send + Sync + 'static) -> Self {
        Self(Arc::new(source))
    }
}

impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerTls").finish_non_exhaustive()
    }
}

impl Transport for PeerTls {
    fn connect<'a>(&'a self, address: &'a str) -> Connecting<'a> {
        Box::pin(connect(address, Some(self)))
    }
}

/// Connects to a peer address. The certificate of the peer must name the host of the address.
///
/// # Errors
/// `PermissionDenied` with a sentence if a certificate is rejected.
pub(crate) async fn connect(
    address: &str,
    tls: Option<&PeerTls>,
) -> io::Result<Box<dyn Connection>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = tls else {
        return Ok(Box::new(stream));
    };
    let host = host_of(address);
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connector = TlsConnector::from((tls.0)()?.client);
    let connected = connector.connect(name, stream).await;
    let connected = connected.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => denied(format!(
            "the peer at {address} ended the TLS handshake: perhaps it has no peer_cert"
        )),
        _ => explain(error, address),
    })?;
    Ok(Box::new(connected))
}

fn denied(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// Describes a certificate error in a sentence. Returns other errors unchanged.
pub(crate) fn explain(error: io::Error, address: &str) -> io::Error {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref());
    match cause {
        Some(rustls::Error::InvalidCertificate(why)) => denied(format!(
            "this node does not accept the certificate of the peer at {address}: {}",
            certificate_cause(why)
        )),
        Some(rustls::Error::AlertReceived(alert)) => denied(format!(
            "the peer at {address} does not accept the certificate of this node: {}",
            alert_cause(*alert)
        )),
        Some(rustls::Error::InvalidMessage(_)) => {
            denied(format!("the peer at {address} does not use TLS"))
        }
        _ => error,
    }
}

const FOREIGN: &str = "another authority signed it";
const EXPIRED: &str = "it has expired, or is not valid yet";
const WRONG_USE: &str = "it was not issued with `weir cert issue HOST --for node`";

/// Why a certificate is rejected.
fn certificate_cause(error: &CertificateError) -> String {
    use CertificateError as Error;
    match error {
        Error::UnknownIssuer | Error::BadSignature => FOREIGN.to_owned(),
        Error::Expired
        | Error::ExpiredContext { .. }
        | Error::NotValidYet
        | Error::NotValidYetContext { .. } => EXPIRED.to_owned(),
        Error::NotValidForName | Error::NotValidForNameContext { .. } => {
            "it names another host".to_owned()
        }
        Error::InvalidPurpose | Error::InvalidPurposeContext { .. } => WRONG_USE.to_owned(),
        other => other.to_string(),
    }
}

/// Why a peer rejects the certificate of this node, by the alert that it sent.
fn alert_cause(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    match alert {
        // The signature does not match an authority of the same name.
        Alert::UnknownCA | Alert::DecryptError => FOREIGN.to_owned(),
        Alert::CertificateExpired => EXPIRED.to_owned(),
        Alert::UnsupportedCertificate => WRONG_USE.to_owned(),
        other => format!("{other:?}"),
    }
}

/// The certificate chain of a process that has connected, without the root.
pub(crate) struct PeerCertificate {
    chain: Vec<CertificateDer<'static>>,
    verifier: Arc<dyn ServerCertVerifier>,
}

impl PeerCertificate {
    /// Checks that the certificate is that of a node, and names the host of `address` if the
    /// address is known.
    ///
    /// # Errors
    /// A sentence for the process that has connected.
    pub(crate) fn check(&self, address: Option<&str>) -> Result<(), String> {
        let host = address.map_or(NO_HOST, host_of);
        let refused = |why: &dyn fmt::Display| {
            format!(
                "the certificate of the caller is not that of a node at {host} ({why}): issue one \
                 with `weir cert issue HOST --for node`"
            )
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|why| refused(&why))?;
        let Some((leaf, intermediates)) = self.chain.split_first() else {
            return Err(refused(&"there is none"));
        };
        let checked =
            self.verifier
                .verify_server_cert(leaf, intermediates, &name, &[], UnixTime::now());
        match checked {
            Ok(_) => Ok(()),
            // The verifier compares the name last.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if address.is_none() => Ok(()),
            Err(rustls::Error::InvalidCertificate(why)) => Err(refused(&certificate_cause(&why))),
            Err(why) => Err(refused(&why)),
        }
    }
}

/// A name that no certificate has.
const NO_HOST: &str = "node.invalid";

/// The host of a peer address.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// An accepted connection.
pub(crate) enum AcceptedConnection {
    /// A connection with TLS and the certificate of the peer, or without TLS if none is required.
    Peer(Box<dyn Connection>, Option<PeerCertificate>),
    /// A connection without TLS to a node that requires TLS.
    WithoutTls(Box<dyn Connection>),
}

/// Completes the handshake of an accepted connection.
pub(crate) async fn accept(
    mut stream: Box<dyn Connection>,
    tls: Option<&PeerTls>,
) -> io::Result<AcceptedConnection> {
    let Some(tls) = tls else {
        return Ok(AcceptedConnection::Peer(stream, None));
    };
    let mut first = [0; 3];
    stream.read_exact(&mut first).await?;
    let is_handshake = first.starts_with(&HANDSHAKE) && !first.ends_with(&[0]);
    let (reads, writes) = tokio::io::split(stream);
    let stream = tokio::io::join(io::Cursor::new(first).chain(reads), writes);
    if !is_handshake {
        return Ok(AcceptedConnection::WithoutTls(Box::new(stream)));
    }
    let PeerConfigs {
        server, verifier, ..
    } = (tls.0)()?;
    let accepted = TlsAcceptor::from(server).accept(stream).await?;
    let chain = accepted.get_ref().1.peer_certificates();
    let chain = chain.unwrap_or_default().iter();
    let certificate = PeerCertificate {
        chain: chain.map(|der| der.clone().into_owned()).collect(),
        verifier,
    };
    Ok(AcceptedConnection::Peer(
        Box::new(accepted),
        Some(certificate),
    ))
}

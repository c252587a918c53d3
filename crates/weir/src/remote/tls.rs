//! TLS over a socket that one thread reads and another one writes.
//!
//! Invariants:
//! - Bytes are sent in the order in which they were encrypted. `out` is locked during both steps.
//! - No thread waits for the socket while it locks the session. So a reader never waits for a
//!   writer that waits for the reader of the peer.
//! - No bytes are sent in clear text, and every peer is verified.
//! - A broken connection raises no SIGPIPE, which would end a process that does not ignore it.

use parking_lot::{Mutex, MutexGuard};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, ClientConfig, ClientConnection, RootCertStore};
use weir_core::ErrorCode;
use weir_store::StoreError;

use super::ConnectOptions;
use crate::error::remote_error;

/// Bytes of clear text that are encrypted at a time: one record.
const RECORD_BYTES: usize = 16 << 10;
/// Files in which systems store their trusted authorities.
const SYSTEM_AUTHORITIES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// An encrypted connection.
#[derive(Debug)]
pub(crate) struct TlsStream {
    socket: TcpStream,
    session: Mutex<ClientConnection>,
    /// Encrypted bytes that arrived and are not decrypted yet.
    input: Mutex<Input>,
    /// Encrypted bytes that are not sent yet.
    out: Mutex<Vec<u8>>,
}

#[derive(Debug)]
struct Input {
    bytes: Box<[u8]>,
    begin: usize,
    end: usize,
}

/// Reads the trusted authorities and the client certificate from files.
///
/// # Errors
/// If a file cannot be read or used.
pub(crate) fn config(options: &ConnectOptions) -> Result<Arc<ClientConfig>, StoreError> {
    let mut roots = RootCertStore::empty();
    let system = || {
        let mut paths = SYSTEM_AUTHORITIES.iter().map(PathBuf::from);
        paths.find(|path| path.exists())
    };
    if let Some(path) = options.authority.clone().or_else(system) {
        // The bundle of a system may contain certificates that this library does not accept.
        let (added, _) = roots.add_parsable_certificates(certificates(&path)?);
        if added == 0 {
            return Err(unusable(&path, "contains no certificate of an authority"));
        }
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let verifier = verifier.build().map_err(|_| {
        let text = "no authority is trusted: the system has none; name a file with one";
        remote_error(ErrorCode::BadOption, text)
    })?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| remote_error(ErrorCode::Internal, error.to_string()))?
        .with_webpki_verifier(verifier);
    let mut config = match &options.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
            let key = PrivateKeyDer::from_pem_file(key)
                .map_err(|_| unusable(key, "contains no private key in PEM form"))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| unusable(certificate, &error.to_string()))?
        }
    };
    config.alpn_protocols = vec![b"weir/1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let wrong = |_| unusable(path, "contains no certificate in PEM form");
    let found = CertificateDer::pem_file_iter(path).map_err(wrong)?;
    found.collect::<Result<_, _>>().map_err(wrong)
}

fn unusable(path: &Path, why: &str) -> StoreError {
    remote_error(ErrorCode::BadOption, format!("{} {why}", path.display()))
}

impl TlsStream {
    /// Performs the handshake with the server of this name. Fails if it takes longer than `time`.
    pub(crate) fn new(
        socket: TcpStream,
        name: &str,
        config: Arc<ClientConfig>,
        time: Duration,
    ) -> io::Result<Self> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| invalid("the name of the server is not a host name or address"))?;
        let session = ClientConnection::new(config, name);
        let mut session = session.map_err(|error| io::Error::other(error.to_string()))?;
        socket.set_write_timeout(Some(time))?;
        let until = Instant::now() + time;
        while session.is_handshaking() {
            let socket = &mut HandshakeSocket {
                socket: &socket,
                until,
            };
            session.complete_io(socket).map_err(explained)?;
        }
        socket.set_write_timeout(None)?;
        Ok(Self {
            socket,
            session: Mutex::new(session),
            input: Mutex::new(Input {
                bytes: vec![0; RECORD_BYTES].into(),
                begin: 0,
                end: 0,
            }),
            out: Mutex::default(),
        })
    }

    /// The underlying socket.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Reads clear text; 0 at the end. Only one thread may call it at a time.
    pub(crate) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut input = lock(&self.input);
        loop {
            {
                let mut session = lock(&self.session);
                match session.reader().read(into) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // The protocol marks its own end, so a truncated stream is not a risk.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                    done => return done,
                }
                let Input { bytes, begin, end } = &mut *input;
                let mut left = bytes.get(*begin..*end).unwrap_or_default();
                if !left.is_empty() {
                    *begin += session.read_tls(&mut left)?;
                    let processed = session.process_new_packets();
                    processed.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
                    let has_output = session.wants_write();
                    drop(session);
                    if has_output {
                        self.send_output()?;
                    }
                    // The session may have clear text now.
                    continue;
                }
            }
            let count = (&self.socket).read(&mut input.bytes)?;
            if count == 0 {
                return Ok(0);
            }
            (input.begin, input.end) = (0, count);
        }
    }

    /// Sends packets of the session itself, such as a new key. If another thread is writing, that
    /// write or the next one sends them.
    fn send_output(&self) -> io::Result<()> {
        let Some(mut out) = self.out.try_lock() else {
            return Ok(());
        };
        self.send(&mut out, &[])
    }

    /// Encrypts and sends all bytes.
    pub(crate) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut out = lock(&self.out);
        bytes
            .chunks(RECORD_BYTES)
            .try_for_each(|chunk| self.send(&mut out, chunk))
    }

    fn send(&self, out: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
        out.clear();
        {
            let mut session = lock(&self.session);
            session.writer().write_all(bytes)?;
            while session.wants_write() {
                session.write_tls(out)?;
            }
        }
        (&self.socket).write_all(out)
    }
}

/// A socket for a handshake, which reads until a deadline. A plain write to a [`TcpStream`]
/// suppresses SIGPIPE; its vectored write, which a session uses, does not.
struct HandshakeSocket<'s> {
    socket: &'s TcpStream,
    until: Instant,
}

impl Read for HandshakeSocket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        self.socket.read(into)
    }
}

impl Write for HandshakeSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// Adds advice to an error of a handshake with a peer that does not use TLS.
fn explained(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    let hint = match inner {
        Some(rustls::Error::InvalidMessage(_)) => {
            "the peer does not use TLS; an address without TLS begins with weir://"
        }
        Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            "this port is for HTTP; the native protocol has a separate port, 7071 by default"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {hint}"))
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // After a panic, the encrypted stream is broken and the peer rejects it.
    of.lock()
}

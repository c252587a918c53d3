//! HTTP/1.1 for the simulators: a listener, reading a request, writing a response, and ways to
//! break a response.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Limit on the head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Limit on the body of a request, in bytes.
const BODY_BYTES_MAX: usize = 32 << 20;
/// Limit on the headers of a request.
const HEADERS_MAX: usize = 64;

/// A connection of a client, with or without TLS.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Stream {
    /// The connection over a socket; with `tls`, the handshake runs with the first read.
    pub(crate) fn new(socket: TcpStream, tls: Option<&Arc<ServerConfig>>) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        let Some(tls) = tls else {
            return Ok(Self::Plain(socket));
        };
        let session = ServerConnection::new(Arc::clone(tls)).map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(StreamOwned::new(session, socket))))
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// A listener on 127.0.0.1 with a thread for each connection. Dropping it ends the listener.
#[derive(Debug)]
pub(crate) struct Listener {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens on a port; 0 selects a free one. `handle_connection` is called for each connection,
    /// with a flag that is set when the listener ends.
    pub(crate) fn start(
        port: u16,
        name: &str,
        handle_connection: impl Fn(TcpStream, &AtomicBool) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let ends = Arc::new(AtomicBool::new(false));
        let (accepting, handle_connection) = (Arc::clone(&ends), Arc::new(handle_connection));
        let client = format!("{name}-client");
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || {
            for stream in listener.incoming() {
                if accepting.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (ends, handle_connection) =
                    (Arc::clone(&accepting), Arc::clone(&handle_connection));
                let thread = std::thread::Builder::new().name(client.clone());
                // A connection that breaks, or for which no thread can start, affects only its
                // client.
                drop(thread.spawn(move || drop(handle_connection(stream, &ends))));
            }
        })?;
        let thread = Some(thread);
        Ok(Self {
            address,
            ends,
            thread,
        })
    }

    /// `http://127.0.0.1:PORT`, or with `tls` `https://127.0.0.1:PORT`.
    pub(crate) fn url(&self, tls: bool) -> String {
        let scheme = if tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Blocks until the listener ends; it does not end by itself.
    pub(crate) fn wait(&mut self) {
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        // Wakes the accept thread.
        drop(TcpStream::connect(self.address));
        self.wait();
    }
}

/// A request.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path without query.
    pub(crate) path: String,
    /// Decoded pairs of the query.
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn argument(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn number(&self, name: &str, default: usize) -> usize {
        let number = self.argument(name).and_then(|text| text.parse().ok());
        number.unwrap_or(default)
    }
}

/// A response.
#[derive(Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

/// How much of a response is sent, and in which way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    /// The connection is reset after this many bytes of the body.
    pub(crate) reset_after: Option<usize>,
    /// The connection is closed after this many bytes of the body.
    pub(crate) close_after: Option<usize>,
    /// The body is chunked and never ends.
    pub(crate) endless: bool,
    /// Delay before each block of 1024 bytes of the body.
    pub(crate) drip: Option<Duration>,
}

impl Delivery {
    fn is_plain(self) -> bool {
        self.reset_after.is_none() && self.close_after.is_none() && self.drip.is_none()
    }
}

/// Reads the next request; `None` at the end of the connection.
pub(crate) fn read(stream: &mut Stream, kept: &mut Vec<u8>) -> io::Result<Option<Request>> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut block = [0; 8192];
    let (mut request, head, length) = loop {
        if let Some(found) = parse(kept)? {
            break found;
        }
        if kept.len() > HEAD_BYTES_MAX {
            return Err(invalid("the head is too long"));
        }
        let count = stream.read(&mut block)?;
        if count == 0 {
            return Ok(None);
        }
        kept.extend_from_slice(block.get(..count).unwrap_or_default());
    };
    if length > BODY_BYTES_MAX {
        return Err(invalid("the body is too long"));
    }
    while kept.len() < head + length {
        let count = stream.read(&mut block)?;
        if count == 0 {
            return Ok(None);
        }
        kept.extend_from_slice(block.get(..count).unwrap_or_default());
    }
    request.body = kept.get(head..head + length).unwrap_or_default().to_vec();
    kept.drain(..head + length);
    Ok(Some(request))
}

fn parse(bytes: &[u8]) -> io::Result<Option<(Request, usize, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let head = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    };
    let target = parsed.path.unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        });
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = parsed.headers.iter();
    let request = Request {
        method: parsed.method.unwrap_or("GET").to_owned(),
        path: decode(path),
        query: pairs.collect(),
        headers: headers
            .map(|header| (header.name.to_owned(), text(header.value)))
            .collect(),
        body: Vec::new(),
    };
    let length = request.header("content-length").map_or(Ok(0), str::parse);
    let length = length.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some((request, head, length)))
}

/// Decodes percent-encoding; `+` is a space.
fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
                let (high, low) = (digit().unwrap_or(0), digit().unwrap_or(0));
                bytes.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Writes a response. Returns whether the connection can be reused.
pub(crate) fn write(
    stream: &mut Stream,
    response: &Response,
    delivery: Delivery,
) -> io::Result<bool> {
    let mut head = format!("HTTP/1.1 {} Simulated\r\n", response.status);
    for (name, value) in &response.headers {
        _ = write!(head, "{name}: {value}\r\n");
    }
    if delivery.endless {
        head.push_str("Transfer-Encoding: chunked\r\n\r\n");
        _ = write!(head, "{:x}\r\n", response.body.len() + 16);
        stream.write_all(head.as_bytes())?;
        stream.write_all(&response.body)?;
        stream.flush()?;
        return Ok(false);
    }
    if response.status != 204 {
        _ = write!(head, "Content-Length: {}\r\n", response.body.len());
    }
    head.push_str("\r\n");
    let mut whole = head.into_bytes();
    if delivery.is_plain() {
        whole.extend_from_slice(&response.body);
        stream.write_all(&whole)?;
        stream.flush()?;
        return Ok(true);
    }
    stream.write_all(&whole)?;
    let most = delivery.reset_after.or(delivery.close_after);
    let sent = response
        .body
        .get(..most.unwrap_or(usize::MAX).min(response.body.len()));
    for block in sent.unwrap_or_default().chunks(1024) {
        if let Some(pause) = delivery.drip {
            std::thread::sleep(pause);
        }
        stream.write_all(block)?;
        stream.flush()?;
    }
    if delivery.reset_after.is_some() {
        reset(stream)?;
    }
    Ok(most.is_none())
}

/// Makes the end of the connection a reset (RST).
pub(crate) fn reset(stream: &Stream) -> io::Result<()> {
    rustix::net::sockopt::set_socket_linger(stream.socket(), Some(Duration::ZERO))
        .map_err(Into::into)
}

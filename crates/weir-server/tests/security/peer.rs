//! A client of the native port that sends text and reads packets.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, StreamOwned};

use weir_protocol::Deframer;

use crate::world::TEST_TIMEOUT;

trait Transport: Read + Write + Send {}
impl<T: Read + Write + Send> Transport for T {}

pub(crate) struct Peer {
    stream: Box<dyn Transport>,
    buffer: Vec<u8>,
}

fn socket(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    socket
}

impl Peer {
    pub(crate) fn plain(address: SocketAddr) -> Self {
        Self {
            stream: Box::new(socket(address)),
            buffer: Vec::new(),
        }
    }

    /// Completes a handshake on both sides, including the first bytes of the server.
    pub(crate) fn secure(
        address: SocketAddr,
        name: &'static str,
        config: Arc<ClientConfig>,
    ) -> io::Result<Self> {
        let name = name.try_into().unwrap();
        let connection = ClientConnection::new(config, name).unwrap();
        let mut stream = StreamOwned::new(connection, socket(address));
        stream.write_all(b"|\n")?;
        stream.flush()?;
        // In TLS 1.3, a server refuses a client certificate after the handshake.
        let mut greeting = [0; 2];
        stream.read_exact(&mut greeting)?;
        assert_eq!(&greeting, b"|\n");
        Ok(Self {
            stream: Box::new(stream),
            buffer: Vec::new(),
        })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
        self.stream.flush().unwrap();
    }

    /// Returns the next packet that is not empty, as text; `None` if the server has closed the
    /// connection.
    pub(crate) fn read(&mut self) -> Option<String> {
        loop {
            let found = Deframer::default().find(&self.buffer).unwrap();
            if let Some(size) = found {
                let packet: Vec<u8> = self.buffer.drain(..size).collect();
                let text = String::from_utf8_lossy(&packet).into_owned();
                // Skips empty packets, and CONFIG packets, which the server sends unasked.
                if packet == b"|\n" || text.contains("\n_status_config\n") {
                    continue;
                }
                return Some(text);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.buffer.extend_from_slice(&bytes[..count]),
                Err(error) if is_close(&error) => return None,
                Err(error) => panic!("no response: {error}"),
            }
        }
    }

    /// Sends one request without a routing header; returns its response.
    pub(crate) fn ask(&mut self, request: &str) -> String {
        self.send(format!("\n{request}\n|\n").as_bytes());
        self.read().expect("a response")
    }

    pub(crate) fn hello(&mut self, token: &str) -> String {
        match token {
            "" => self.ask("_request_hello"),
            token => self.ask(&format!(":_token\t{token}\n_request_hello")),
        }
    }

    pub(crate) fn put(&mut self, topic: &str, value: &str) -> String {
        self.ask(&format!(":_topic\t{topic}\n_request_put\n{value}"))
    }

    pub(crate) fn list(&mut self, topic: &str) -> String {
        self.ask(&format!(":_topic\t{topic}\n_request_topic"))
    }
}

fn is_close(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

#[track_caller]
pub(crate) fn assert_line(answer: &str, method: &str) {
    let found = answer.lines().any(|line| line == method);
    assert!(found, "expected {method}, got:\n{answer}");
}

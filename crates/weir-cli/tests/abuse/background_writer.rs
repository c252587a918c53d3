//! A client that writes while other clients abuse the server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crate::limited_server::LimitedServer;

/// Repeatedly writes a key on one connection until it is stopped.
pub(crate) struct BackgroundWriter {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundWriter {
    /// Starts the writes. The connection exists when this returns.
    pub(crate) fn start(server: &LimitedServer) -> Self {
        Self::start_with(server, 1000)
    }

    /// Like `start`, with values of `bytes` bytes. A write of more than 16 KiB is retried while other
    /// clients use the whole memory budget.
    pub(crate) fn start_with(server: &LimitedServer, bytes: usize) -> Self {
        let mut stream = server.connect();
        write(&mut stream, bytes);
        let (stop, written) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&written));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                write(&mut stream, bytes);
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self {
            stop,
            written,
            thread: Some(thread),
        }
    }

    /// Waits until `more` further writes are acknowledged.
    pub(crate) fn wait(&self, more: usize) {
        let wanted = self.written.load(Ordering::Relaxed) + more;
        while self.written.load(Ordering::Relaxed) < wanted {
            let thread = self.thread.as_ref().unwrap();
            assert!(
                !thread.is_finished(),
                "a write of the background writer failed"
            );
            std::thread::yield_now();
        }
    }

    /// Stops the writes, and asserts that none failed.
    pub(crate) fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for BackgroundWriter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Bytes up to which a write needs no budget on a server of 256 MiB.
const SMALL_BYTES: usize = 16 << 10;

/// Writes the key, and asserts that the write is acknowledged. Retries a large write that is
/// rejected as `busy`.
fn write(stream: &mut TcpStream, bytes: usize) {
    loop {
        let answer = put(stream, bytes);
        if answer.starts_with("HTTP/1.1 20") {
            return;
        }
        let busy = answer.starts_with("HTTP/1.1 503 ") && bytes > SMALL_BYTES;
        assert!(busy, "{answer}");
        if answer.to_lowercase().contains("connection: close") {
            let address = stream.peer_addr().unwrap();
            *stream = crate::limited_server::connect(&address.to_string());
        }
    }
}

/// Sends a write, and returns the response.
fn put(stream: &mut TcpStream, bytes: usize) -> String {
    let request = format!(
        "PUT /v1/topics/t/keys/background HTTP/1.1\r\nHost: localhost\r\n\
         Content-Length: {bytes}\r\n\r\n"
    );
    let mut request = request.into_bytes();
    request.resize(request.len() + bytes, b'1');
    stream.write_all(&request).unwrap();
    let mut answer = Vec::new();
    while !is_complete(&answer) {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "the connection was closed");
        answer.extend_from_slice(&piece[..read]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Whether these bytes are one complete response.
fn is_complete(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return false;
    };
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    let length = head.split("content-length: ").nth(1).map_or(0, |rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    });
    answer.len() >= end + 4 + length
}

//! A minimal HTTP client, which shows the exact bytes that the server sends.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait; only a test that hangs reaches it.
pub const TEST_TIMEOUT: Duration = Duration::from_mins(1);

pub struct Client {
    pub stream: TcpStream,
    pub buffer: Vec<u8>,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn get(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|(one, _)| one == name)?;
        Some(&field.1)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// Returns the last part of the `type` of a problem.
    pub fn problem(&self) -> String {
        let json = self.json();
        let kind = json["type"].as_str().unwrap_or_default();
        kind.trim_start_matches("/problems/").to_owned()
    }
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends the bytes in pieces that end at `cuts`.
    pub fn send_cut(&mut self, bytes: &[u8], cuts: impl Iterator<Item = usize>) {
        let mut from = 0;
        for cut in cuts.chain([bytes.len()]) {
            // The server may have closed the connection already.
            if self.stream.write_all(&bytes[from..cut]).is_err() {
                return;
            }
            from = cut;
            std::thread::yield_now();
        }
    }

    pub fn close_write(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Reads more bytes; returns false at the end.
    pub fn fill(&mut self) -> bool {
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece) {
            Ok(0) => false,
            Ok(got) => {
                self.buffer.extend_from_slice(&piece[..got]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("no bytes arrived: {error}"),
        }
    }

    /// Whether the server has closed the connection without further bytes.
    pub fn is_closed(&mut self) -> bool {
        while self.fill() {}
        self.buffer.is_empty()
    }

    pub fn read_until(&mut self, mark: &[u8]) -> Vec<u8> {
        loop {
            let found = self
                .buffer
                .windows(mark.len())
                .position(|window| window == mark);
            if let Some(at) = found {
                return self.buffer.drain(..at + mark.len()).collect();
            }
            assert!(
                self.fill(),
                "the connection ended before {mark:?}: {:?}",
                String::from_utf8_lossy(&self.buffer)
            );
        }
    }

    pub fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            assert!(self.fill(), "the connection ended within a body");
        }
        self.buffer.drain(..count).collect()
    }

    pub fn head(&mut self) -> Reply {
        let head = String::from_utf8(self.read_until(b"\r\n\r\n")).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let first = lines.next().unwrap();
        let status = first
            .strip_prefix("HTTP/1.1 ")
            .unwrap_or_else(|| panic!("{first:?}"));
        let fields = lines.map(|line| {
            let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("{line:?}"));
            (name.to_owned(), value.to_owned())
        });
        Reply {
            status: status[..3].parse().unwrap(),
            fields: fields.collect(),
            body: Vec::new(),
        }
    }

    pub fn reply(&mut self, without_body: bool) -> Reply {
        let mut reply = self.head();
        if without_body || matches!(reply.status, 100 | 204 | 304) {
            return reply;
        }
        if reply.get("transfer-encoding").is_some() {
            loop {
                let line = String::from_utf8(self.read_until(b"\r\n")).unwrap();
                let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
                let piece = self.read_bytes(size + 2);
                reply.body.extend_from_slice(&piece[..size]);
                if size == 0 {
                    return reply;
                }
            }
        }
        let length = reply
            .get("content-length")
            .map(|text| text.parse().unwrap());
        match length {
            Some(length) => reply.body = self.read_bytes(length),
            None => {
                while self.fill() {}
                reply.body = std::mem::take(&mut self.buffer);
            }
        }
        reply
    }
}

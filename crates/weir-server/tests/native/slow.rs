//! A disk that does not respond: only requests that need it wait, even on a server of one
//! thread.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use weir_core::{Intention, Operation, TopicOptions};
use weir_protocol::{After, Hello, Listen, ListenQuery, Message, Packet};
use weir_server::{Address, Server, ServerConfig};
use weir_store::disk::{Disk, DiskFile, FileDisk, OpenMode};
use weir_store::{Durability, OpenOptions, Store};

use crate::peer::Peer;

/// Longest wait; only a test that hangs reaches it.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Blocks reads of topics while the gate is closed.
#[derive(Default)]
struct Gate {
    /// Whether the gate is closed, and how many reads it blocks.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

impl Gate {
    fn set(&self, closed: bool) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 = closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        let waited = self.changed.wait_while(state, |(closed, _)| *closed);
        waited.unwrap().1 -= 1;
    }

    fn wait_for(&self, blocked: usize) {
        let state = self.state.lock().unwrap();
        let is_below = |(_, now): &mut (bool, usize)| *now < blocked;
        let (state, result) = self
            .changed
            .wait_timeout_while(state, TEST_TIMEOUT, is_below)
            .unwrap();
        let now = state.1;
        drop(state);
        assert!(
            !result.timed_out(),
            "{now} of {blocked} reads wait for the disk"
        );
    }
}

/// Opens the gate when a test ends early, so that the server can end.
struct OpenOnDrop<'a>(&'a Gate);

impl Drop for OpenOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

#[derive(Debug)]
struct SlowDisk {
    inner: FileDisk,
    gate: Arc<Gate>,
}

#[derive(Debug)]
struct SlowFile {
    inner: Arc<dyn DiskFile>,
    gate: Option<Arc<Gate>>,
}

impl Disk for SlowDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let gate = path.starts_with("topics/").then(|| Arc::clone(&self.gate));
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(SlowFile { inner, gate }))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.inner.create_dir(dir)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn remove_dir(&self, dir: &str) -> io::Result<()> {
        self.inner.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.inner.free_bytes()
    }
}

impl DiskFile for SlowFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        self.inner.read_exact_at(buffer, offset)
    }

    fn write_all_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.inner.write_all_at(parts, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.inner.allocate(len)
    }
}

/// Creates a store whose records are all on disk.
fn create_store(directory: &std::path::Path, options: &OpenOptions) {
    let store = Store::open(directory, options).unwrap();
    let topic_options = TopicOptions::default();
    let create = Operation::Create {
        options: &topic_options,
    };
    let mut writes = vec![Intention::new("t", create)];
    let value = [b'x'; 900];
    for _ in 0..100 {
        let put = Operation::Put {
            key: b"k",
            value: &value,
        };
        writes.push(Intention::new("t", put));
    }
    let sequence = Operation::Put {
        key: b".ds/seq",
        value: b"a",
    };
    writes.push(Intention::new("t", sequence));
    // A stream that has the name of an earlier one, which was retained for its forks.
    let data = Operation::Put {
        key: b"",
        value: b"x",
    };
    writes.extend([create, data].map(|operation| Intention::new("s", operation)));
    store.propose(&writes).unwrap().wait().unwrap();
    let former = Operation::Put {
        key: b"gone/s",
        value: b"1",
    };
    let registry = [create, former].map(|operation| Intention::new(".weir.ds", operation));
    store.propose_own(&registry).unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    store.close().unwrap();
}

fn send_request(server: &Server, line: &str, fields: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.http_addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Reads a response up to this text.
fn read_response(stream: &mut TcpStream, end: &str) {
    let mut text = String::new();
    let mut chunk = [0; 4096];
    while !text.contains(end) {
        let size = stream.read(&mut chunk).unwrap();
        assert!(size > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&chunk[..size]));
    }
    assert!(text.starts_with("HTTP/1.1 20"), "{text}");
}

fn native(server: &Server, message: Message<'_>) -> Peer {
    let mut peer = Peer::new(TcpStream::connect(server.native_addr().unwrap()).unwrap());
    peer.hello(&Hello::default());
    peer.send(&Packet::tagged(b"x", message));
    peer
}

fn listen(after: After) -> Message<'static> {
    Message::Listen(Listen {
        topic: "t",
        after,
        follow: true,
        bytes: 1 << 30,
        records: 1 << 30,
        key: None,
        prefix: None,
        kinds: 0,
        reset_earliest: false,
        query: ListenQuery::default(),
    })
}

/// Starts a server with one thread, on a store whose disk can be blocked.
fn start_with_slow_disk(
    directory: &std::path::Path,
    change: impl FnOnce(&mut ServerConfig),
) -> (Server, Arc<Gate>) {
    let options = OpenOptions {
        durability: Durability::Memory,
        ..OpenOptions::default()
    };
    create_store(directory, &options);
    let gate = Arc::new(Gate::default());
    let disk = SlowDisk {
        inner: FileDisk::open(directory).unwrap(),
        gate: Arc::clone(&gate),
    };
    let store = Arc::new(Store::open_disk(Arc::new(disk), &options).unwrap());
    let mut config = ServerConfig::default();
    config.threads = 1;
    config.http = Some(Address("127.0.0.1:0".parse().unwrap()));
    config.native = Some(Address("127.0.0.1:0".parse().unwrap()));
    change(&mut config);
    (Server::start(config, store).unwrap(), gate)
}

/// The unseen records of a conflict take too long to read. The client still gets the conflict.
#[test]
fn a_conflict_is_reported_without_records_that_cannot_be_read_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let (server, gate) = start_with_slow_disk(directory.path(), |config| {
        config.store_timeout = Duration::from_secs(2);
    });
    gate.set(true);
    let closed = OpenOnDrop(&gate);
    let fields = "If-None-Match: *\r\nPrefer: conflicts=5\r\nContent-Length: 0\r\n";
    let mut stream = send_request(&server, "PUT /v1/topics/t/keys/k", fields);
    gate.wait_for(1);
    let mut answer = [0; 13];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 412 ");
    drop(closed);
}

#[test]
fn requests_that_wait_for_the_disk_delay_no_other_request() {
    let directory = tempfile::tempdir().unwrap();
    let (server, gate) = start_with_slow_disk(directory.path(), |_| {});
    // The descriptions of these streams are in memory from here on.
    for line in ["HEAD /ds/s", "HEAD /ds/t"] {
        read_response(&mut send_request(&server, line, ""), "\r\n\r\n");
    }
    gate.set(true);
    let closed = OpenOnDrop(&gate);
    let mut blocked = 0;
    let mut wait_for_more = |more: usize| {
        blocked += more;
        gate.wait_for(blocked);
    };
    let mut http_streams = Vec::new();
    for target in [
        "/v1/topics/t/events/7",
        "/v1/topics/t/keys/k",
        "/v1/topics/t/events?limit=1",
        "/v1/topics/t/events?order=desc",
        "/v1/topics/t/events?from=1970-01-01",
        "/v1/topics/t/events?live=sse",
        "/v1/topics/t/keys?values=true",
        "/ds/t?offset=-1",
        "/ds/t?offset=-1&live=sse",
    ] {
        let accept = "Accept-Encoding: identity\r\n";
        http_streams.push(send_request(&server, &format!("GET {target}"), accept));
        wait_for_more(1);
    }
    http_streams.push(send_request(&server, "GET /v1/topics/t/events/7", ""));
    wait_for_more(1);
    http_streams.push(send_request(&server, "GET /v1/topics/t/keys/k", ""));
    wait_for_more(1);
    http_streams.push(send_request(&server, "GET /ds/s?offset=now", ""));
    wait_for_more(1);
    let fields = "Content-Type: text/plain\r\nStream-Seq: b\r\nContent-Length: 1\r\n";
    let mut append = send_request(&server, "POST /ds/t", fields);
    append.write_all(b"y").unwrap();
    http_streams.push(append);
    wait_for_more(1);
    let (topic, key) = ("t", &b"k"[..]);
    let mut peers = Vec::new();
    for message in [
        Message::Get {
            topic,
            key,
            at_least: 0,
            applied: 0,
        },
        Message::GetRecord { topic, offset: 7 },
        listen(After::Offset(0)),
        listen(After::Latest),
        listen(After::Time(1)),
    ] {
        peers.push(native(&server, message));
        wait_for_more(1);
    }
    // The thread serves all other requests: reads and writes on both ports.
    read_response(&mut send_request(&server, "GET /healthz", ""), "ok");
    let line = "PUT /v1/topics/t/keys/new";
    read_response(
        &mut send_request(&server, line, "Content-Length: 0\r\n"),
        "\r\n\r\n",
    );
    read_response(
        &mut send_request(&server, "GET /v1/topics/t/keys/new", ""),
        "\r\n\r\n",
    );
    let mut other = native(&server, Message::Ping);
    assert!(matches!(
        other.next().unwrap().packet().message,
        Message::Pong
    ));
    drop(closed);
    for stream in &mut http_streams {
        read_response(stream, "\r\n\r\n");
    }
    for peer in &mut peers {
        let found = std::iter::from_fn(|| peer.next()).any(|got| {
            matches!(
                got.packet().message,
                Message::Value { .. } | Message::Records { .. }
            )
        });
        assert!(found);
    }
}

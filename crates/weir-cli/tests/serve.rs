//! Tests the process `weir serve`: its addresses, and its end.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::zombie_processes,
    missing_docs,
    reason = "a test may fail by panicking"
)]

#[path = "serve/cluster.rs"]
mod cluster;
#[path = "serve/cluster_commands.rs"]
mod cluster_commands;
#[path = "serve/cluster_page.rs"]
mod cluster_page;
#[path = "serve/cluster_reads.rs"]
mod cluster_reads;
#[path = "serve/disk_fails.rs"]
mod disk_fails;
#[path = "serve/peer_tls.rs"]
mod peer_tls;
#[path = "support/ports.rs"]
mod ports;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Far longer than any step takes; only a hang reaches this limit.
const TIMEOUT: Duration = Duration::from_mins(1);

struct Served {
    child: Child,
    address: String,
    lines: BufReader<std::process::ChildStderr>,
    printed: Vec<String>,
}

impl Drop for Served {
    /// A failed test leaves no process.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn weir(directory: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command
        .current_dir(directory)
        .env_clear()
        .env("HOME", directory)
        // Test directories may be in memory.
        .env("WEIR_SERVE_VOLATILE", "true");
    command.stdin(Stdio::null());
    command
}

fn serve(directory: &std::path::Path, flags: &[&str]) -> Served {
    serve_by(weir(directory), flags)
}

fn serve_by(mut command: Command, flags: &[&str]) -> Served {
    command.args(["serve", "--at", "data", "--http", ":0", "--native", "off"]);
    command.args(flags).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut printed = Vec::new();
    let mut address = String::new();
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "{printed:?}");
        if let Some((_, at)) = line.trim().split_once("HTTP at ") {
            let (_, at) = at.split_once("://").unwrap();
            at.clone_into(&mut address);
        }
        let last = line.contains("acknowledged");
        printed.push(line);
        if last {
            return Served {
                child,
                address,
                lines,
                printed,
            };
        }
    }
}

fn ask(address: &str, line: &str, body: &str) -> String {
    ask_with(address, line, "", body)
}

/// Like `ask`, with header fields, each with its line end.
fn ask_with(address: &str, line: &str, fields: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let length = body.len();
    let text = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// An address of this machine. Its port is free until a server of the caller listens there.
fn free_address() -> String {
    ports::reserve([127, 0, 0, 1]).to_string()
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args(["-s", name, &child.id().to_string()])
        .status();
    assert!(status.unwrap().success());
}

/// The operator limits the fuel that a topic may request for a call.
#[test]
fn topics_may_request_fuel_up_to_the_limit() {
    let place = tempfile::tempdir().unwrap();
    let mut served = serve(place.path(), &["--program-fuel-max", "20000000"]);
    let put = |name: &str, fuel: u64| {
        let body = format!("{{\"options\":{{\"fuel_max\":{fuel}}}}}");
        ask(&served.address, &format!("PUT /v1/topics/{name}"), &body)
    };
    let fine = put("a", 20_000_000);
    assert!(fine.starts_with("HTTP/1.1 201"), "{fine}");
    let refused = put("b", 20_000_001);
    assert!(refused.starts_with("HTTP/1.1 4"), "{refused}");
    assert!(refused.contains("20000000"), "{refused}");
    signal(&served.child, "TERM");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

/// The service manager is notified that the server is ready, runs, and ends.
#[test]
fn a_service_manager_gets_the_state_of_the_server() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut command = weir(place.path());
    command.env("NOTIFY_SOCKET", &path);
    let mut served = serve_by(command, &[]);
    let until = |wanted: &str| {
        let mut received = Vec::new();
        loop {
            let mut text = [0; 256];
            let size = socket.recv(&mut text).expect(wanted);
            let text = String::from_utf8(text.get(..size).unwrap().to_vec()).unwrap();
            if text.lines().any(|line| line == wanted) {
                return received;
            }
            received.push(text);
        }
    };
    // An open of more than 5 s reports its progress.
    let before = until("READY=1");
    let is_progress = |text: &String| text.starts_with("STATUS=opening the store");
    assert!(before.iter().all(is_progress), "{before:?}");
    until("WATCHDOG=1");
    until("WATCHDOG=1");
    signal(&served.child, "TERM");
    until("STOPPING=1");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

/// Status of a GET, and its body.
fn get(address: &str, path: &str) -> (u16, String) {
    let answer = ask(address, &format!("GET {path}"), "");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap();
    (status.parse().unwrap(), body.to_owned())
}

/// Checks that a server whose store has failed reports that everywhere, and still serves reads.
fn check_read_only(address: &str) {
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(address, path).0, 503, "{path}");
    }
    let metrics = get(address, "/metrics").1;
    assert!(metrics.contains("\nweir_ready 0\n"), "{metrics}");
    assert!(metrics.contains("\nweir_store_poisoned 1\n"), "{metrics}");
    let (status, body) = get(address, "/v1/topics/t/events");
    assert_eq!(status, 200, "reads continue: {body}");
}

/// Writes until a write is rejected. Returns that response.
fn write_until_rejected(address: &str, body: &str) -> String {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let answer = ask(address, "POST /v1/topics/t/events", body);
        if !answer.starts_with("HTTP/1.1 201") {
            return answer;
        }
        assert!(Instant::now() < deadline, "no write was rejected");
    }
}

/// DF1: a store that accepts no more writes reports the reason everywhere and serves reads during
/// the drain. The server ends with 74.
#[test]
fn a_removed_directory_stops_the_writes_and_ends_the_server() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut command = weir(place.path());
    command.env("NOTIFY_SOCKET", &path);
    let mut served = serve_by(command, &["--lame-duck", "1h"]);
    let address = served.address.clone();
    ask(&address, "PUT /v1/topics/t", "");
    assert!(ask(&address, "POST /v1/topics/t/events", "1").starts_with("HTTP/1.1 201"));
    assert_eq!(get(&address, "/healthz").0, 200);
    let moved = place.path().join("moved");
    std::fs::rename(place.path().join("data"), &moved).unwrap();
    std::fs::create_dir(place.path().join("data")).unwrap();

    let refused = write_until_rejected(&address, "2");
    assert!(refused.starts_with("HTTP/1.1 500"), "{refused}");
    for printed in [&refused, &get(&address, "/readyz?verbose").1] {
        assert!(printed.contains("removed or replaced"), "{printed}");
    }
    check_read_only(&address);
    let socket_of_server = format!("unix:{}", moved.join("weir.sock").display());
    let list = weir(place.path())
        .args(["topic", "ls", "--at", &socket_of_server])
        .output()
        .unwrap();
    assert!(list.status.success(), "{list:?}");
    let printed = String::from_utf8_lossy(&list.stderr);
    assert!(
        printed.contains("warning") && printed.contains("removed or replaced"),
        "{printed}"
    );

    // The service manager gets no further watchdog notification.
    let mut text = [0; 256];
    loop {
        let size = socket.recv(&mut text).expect("the manager is notified");
        if String::from_utf8_lossy(text.get(..size).unwrap()).contains("no more writes") {
            break;
        }
    }
    socket.set_nonblocking(true).unwrap();
    signal(&served.child, "TERM");
    assert_eq!(served.child.wait().unwrap().code(), Some(74));
    while let Ok(size) = socket.recv(&mut text) {
        let received = String::from_utf8_lossy(text.get(..size).unwrap()).into_owned();
        assert!(!received.contains("WATCHDOG"), "{received}");
    }
    let mut printed = String::new();
    served.lines.read_to_string(&mut printed).unwrap();
    let logged = printed
        .lines()
        .filter(|line| line.contains("weir_store::engine"));
    assert_eq!(logged.count(), 1, "{printed}");
    assert!(
        printed.contains("(E402)") && printed.contains("removed or replaced"),
        "{printed}"
    );
    // No second store is created at the old name.
    let grown = std::fs::read_dir(place.path().join("data")).unwrap();
    assert_eq!(grown.count(), 0);
    let read = weir(place.path())
        .args(["verify", "--at", "moved"])
        .output()
        .unwrap();
    assert!(read.status.success(), "{read:?}");
}

/// A persistent connection for sequential requests.
struct PersistentConnection(BufReader<TcpStream>);

impl PersistentConnection {
    fn new(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(BufReader::new(stream))
    }

    /// Sends a GET; returns the body of the response.
    fn get(&mut self, path: &str) -> String {
        let text = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
        let mut length = 0;
        loop {
            let mut line = String::new();
            let size = self.0.read_line(&mut line).expect("the server responds");
            assert!(size > 0, "the server closed the connection");
            if line == "\r\n" {
                break;
            }
            let line = line.to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }
}

/// Sends requests to a server that logs each one, until log lines were dropped because nobody reads
/// standard error.
fn fill_the_log(address: &str) {
    let mut connection = PersistentConnection::new(address);
    // The pipe and the buffer of the server hold fewer lines.
    for _ in 0..100 {
        for _ in 0..200 {
            connection.get("/v1");
        }
        let metrics = connection.get("/metrics");
        let dropped = metrics
            .lines()
            .find_map(|line| line.strip_prefix("weir_log_lines_dropped_total "));
        if dropped.is_some_and(|count| count != "0") {
            return;
        }
    }
    panic!("no line was dropped");
}

/// An unread standard error blocks neither requests nor the end of the server. The log reports the
/// number of dropped lines.
#[test]
fn a_blocked_log_stops_no_request() {
    let place = tempfile::tempdir().unwrap();
    let flags = ["--access-log", "--lame-duck", "0ms"];
    let mut served = serve(place.path(), &flags);
    fill_the_log(&served.address);
    let dropped = loop {
        let mut line = String::new();
        assert!(served.lines.read_line(&mut line).unwrap() > 0);
        if line.contains("weir_server::logs") {
            break line;
        }
    };
    assert!(dropped.contains("log lines were dropped"), "{dropped}");
    assert!(dropped.contains("\"lines\":"), "{dropped}");
    signal(&served.child, "TERM");
    let mut rest = String::new();
    served.lines.read_to_string(&mut rest).unwrap();
    assert_eq!(served.child.wait().unwrap().code(), Some(0));

    let mut blocked = serve(place.path(), &flags);
    fill_the_log(&blocked.address);
    signal(&blocked.child, "TERM");
    assert_eq!(blocked.child.wait().unwrap().code(), Some(0));
}

/// The library of the package `faketime`, which shifts the wall clock of a process.
fn faketime() -> std::path::PathBuf {
    let places = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let mut found = places.map(|place| place.path().join("faketime/libfaketimeMT.so.1"));
    found
        .find(|library| library.exists())
        .expect("`cargo xtask setup` installs the package faketime")
}

/// EO1, M21: a wall clock that jumps 25 hours ahead and back neither evicts an idempotency key nor
/// extends a lease of a second to a day.
#[test]
fn a_wall_clock_jump_keeps_keys_leases_and_streams() {
    let place = tempfile::tempdir().unwrap();
    let shift = place.path().join("shift");
    // Replaced by a rename, because the server may read it at any moment.
    let jump = |by: &str| {
        let new = place.path().join("shift.new");
        std::fs::write(&new, by).unwrap();
        std::fs::rename(&new, &shift).unwrap();
    };
    jump("+0");
    let mut command = weir(place.path());
    command
        .env("LD_PRELOAD", faketime())
        .env("FAKETIME_TIMESTAMP_FILE", &shift)
        .env("FAKETIME_NO_CACHE", "1")
        .env("DONT_FAKE_MONOTONIC", "1");
    let mut served = serve_by(command, &["--lame-duck", "0ms"]);
    let address = served.address.clone();
    let put = |key: &str| {
        let field = format!("Idempotency-Key: \"{key}\"\r\n");
        let answer = ask_with(&address, "POST /v1/topics/t/events", &field, "1");
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let date = head
            .lines()
            .find(|line| line.to_ascii_lowercase().starts_with("date:"));
        (date.unwrap().to_owned(), body.to_owned())
    };
    let claim = || {
        let path = "/v1/topics/t/groups/g/claim?member=m&max=10&lease-ms=1000&wait=30";
        let answer = ask(&address, &format!("POST {path}"), "");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer
    };
    ask(&address, "PUT /v1/topics/t", "");
    let (before, first) = put("k");
    ask(
        &address,
        "PUT /v1/topics/t/groups/g",
        r#"{"mode":"shared"}"#,
    );
    // A stream that ends at a date, half a day from now.
    let end = Command::new("date")
        .args(["-u", "-d", "+12 hours", "+%FT%TZ"])
        .output()
        .unwrap();
    let end = String::from_utf8(end.stdout).unwrap();
    let fields = format!(
        "Content-Type: text/plain\r\nStream-Expires-At: {}\r\n",
        end.trim()
    );
    let made = ask_with(&address, "PUT /ds/half-a-day", &fields, "x");
    assert!(made.starts_with("HTTP/1.1 201"), "{made}");
    jump("+90000");
    let (during, _) = put("other");
    assert_ne!(
        before.get(..16),
        during.get(..16),
        "the clock has jumped a day"
    );
    claim();
    let alive = ask(&address, "GET /ds/half-a-day", "");
    assert!(alive.starts_with("HTTP/1.1 200"), "{alive}");
    jump("+0");
    assert_eq!(
        put("k").1,
        first,
        "the key is known, and nothing is written"
    );
    // This claim blocks until the lease of a second ends, not for a day.
    let again = claim();
    assert!(again.contains("\"attempts\":2"), "{again}");
    signal(&served.child, "TERM");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

/// DU11: serving from memory needs a flag, and all clients are informed.
#[test]
fn a_file_system_in_memory_needs_a_flag() {
    let place = tempfile::tempdir_in("/dev/shm").expect("Linux has a tmpfs at this path");
    let mut command = weir(place.path());
    command.env_remove("WEIR_SERVE_VOLATILE");
    command.args(["serve", "--at", "data", "--http", ":0", "--native", "off"]);
    let refused = command.output().unwrap();
    assert_eq!(refused.status.code(), Some(78), "{refused:?}");
    let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        printed.contains("(E410)") && printed.contains("tmpfs"),
        "{printed}"
    );
    assert!(printed.contains("--volatile"), "{printed}");
    assert!(!place.path().join("data").exists(), "nothing was created");

    let mut command = weir(place.path());
    command.env_remove("WEIR_SERVE_VOLATILE");
    let mut served = serve_by(command, &["--volatile", "--lame-duck", "0ms"]);
    let printed = served.printed.concat();
    assert!(printed.contains("volatile file system tmpfs"), "{printed}");
    let (status, body) = get(&served.address, "/v1");
    assert_eq!(status, 200);
    assert!(body.contains("\"volatile\":\"tmpfs\""), "{body}");
    let mut native = UnixStream::connect(place.path().join("data/weir.sock")).unwrap();
    native.set_read_timeout(Some(TIMEOUT)).unwrap();
    native.write_all(b"|\n\n_request_hello\n|\n").unwrap();
    native.shutdown(Shutdown::Write).unwrap();
    let mut hello = String::new();
    native.read_to_string(&mut hello).unwrap();
    assert!(hello.contains("_volatile\ttmpfs"), "{hello}");
    signal(&served.child, "TERM");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

/// The limit on the size of files acts like a full disk: writes are rejected, reads continue, and
/// no data is lost. The limit does not end the process.
#[test]
fn a_file_size_limit_is_handled_as_a_full_disk() {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    // The shell counts in units of 512 bytes or of 1 KiB. The limit allows the first segment of 4
    // MiB, but no larger one after it.
    command
        .current_dir(place.path())
        .env_clear()
        .env("HOME", place.path())
        .env("WEIR_SERVE_VOLATILE", "true")
        .stdin(Stdio::null())
        .args(["-c", "ulimit -f 9000; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_weir"));
    let mut served = serve_by(command, &["--lame-duck", "0ms"]);
    let address = served.address.clone();
    ask(&address, "PUT /v1/topics/t", "");
    let body = format!("\"{}\"", "x".repeat(900_000));
    let refused = write_until_rejected(&address, &body);
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains("read-only"), "{refused}");
    assert_eq!(get(&address, "/healthz").0, 200);
    let (status, _) = get(&address, "/v1/topics/t/events?limit=1");
    assert_eq!(status, 200, "reads continue");
    signal(&served.child, "TERM");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
    let verified = weir(place.path())
        .args(["verify", "--at", "data"])
        .output()
        .unwrap();
    assert!(verified.status.success(), "{verified:?}");
}

#[test]
fn a_server_prints_its_addresses_and_ends_with_code_0() {
    let place = tempfile::tempdir().unwrap();
    for name in ["TERM", "INT"] {
        let mut served = serve(place.path(), &["--lame-duck", "50ms"]);
        let printed = served.printed.concat();
        assert!(printed.contains("serving data (from flag)"), "{printed}");
        assert!(printed.contains("acknowledged means synced"), "{printed}");
        let address = served.address.clone();
        ask(&address, "PUT /v1/topics/t", "");
        let answer = ask(&address, "POST /v1/topics/t/events", "1");
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
        // Another process gets the owner of the store in its error.
        let second = weir(place.path())
            .args([
                "serve",
                "--at",
                "data",
                "--lock-wait",
                "0ms",
                "--http",
                ":0",
            ])
            .output()
            .unwrap();
        assert_eq!(second.status.code(), Some(75), "{second:?}");
        signal(&served.child, name);
        assert_eq!(served.child.wait().unwrap().code(), Some(0));
    }
    let done = weir(place.path())
        .args(["tail", "t", "--at", "data"])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(done.stdout)
            .unwrap()
            .matches("PUT")
            .count(),
        2
    );
}

/// Posts over TLS with `PIPELINE` pending requests, until the server announces its end. Returns the
/// number of responses.
fn post_over_tls(address: &str, config: Arc<ClientConfig>, answered: &AtomicUsize) -> usize {
    const PIPELINE: usize = 32;
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let name = "localhost".try_into().unwrap();
    let session = ClientConnection::new(config, name).unwrap();
    let mut stream = StreamOwned::new(session, socket);
    let request =
        "POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n1";
    let (mut sent, mut got, mut text) = (0, 0, String::new());
    let mut ended = false;
    loop {
        if !ended && sent - got < PIPELINE {
            // The write fails if the server has closed the connection.
            ended = stream
                .write_all(request.repeat(PIPELINE).as_bytes())
                .is_err();
            sent += PIPELINE;
            continue;
        }
        let mut piece = [0; 4096];
        let size = stream.read(&mut piece).unwrap_or(0);
        if size == 0 {
            // An idle connection ends without a response.
            return got;
        }
        text.push_str(std::str::from_utf8(piece.get(..size).unwrap()).unwrap());
        // A response is complete with the line of its object.
        while let Some((answer, rest)) = text.split_once("}\n") {
            assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
            ended |= answer.contains("connection: close");
            got += 1;
            answered.fetch_add(1, Ordering::Relaxed);
            text = rest.to_owned();
        }
    }
}

/// A drain over TLS: every accepted request gets a response, and the store has no other record.
#[test]
fn a_drain_over_tls_responds_to_every_accepted_request() {
    const CLIENTS: usize = 3;
    let place = tempfile::tempdir().unwrap();
    for words in ["cert ca pki", "cert issue localhost --ca pki"] {
        let made = weir(place.path()).args(words.split(' ')).output().unwrap();
        assert!(made.status.success(), "{made:?}");
    }
    let [certificate, key] = ["pki/localhost.pem", "pki/localhost.key"];
    let flags = ["--tls-cert", certificate, "--tls-key", key];
    let flags = [&flags[..], &["--lame-duck", "0ms"]].concat();
    let mut served = serve(place.path(), &flags);
    let made = weir(place.path())
        .args(["topic", "create", "t", "--at", "data"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(place.path().join("pki/ca.pem")).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    let answered = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (address, config) = (served.address.clone(), Arc::clone(&config));
            let answered = Arc::clone(&answered);
            std::thread::spawn(move || post_over_tls(&address, config, &answered))
        })
        .collect();
    while answered.load(Ordering::Relaxed) < 500 {
        let over = clients.iter().any(std::thread::JoinHandle::is_finished);
        assert!(!over, "a client failed");
        std::thread::yield_now();
    }
    signal(&served.child, "TERM");
    let all: usize = clients.into_iter().map(|one| one.join().unwrap()).sum();
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
    let shown = weir(place.path())
        .args(["tail", "t", "--at", "data"])
        .output()
        .unwrap();
    let found = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(all, found.matches("PUT").count(), "responses and records");
}

/// A copy of the store during serving.
#[test]
fn a_signal_starts_a_backup() {
    let place = tempfile::tempdir().unwrap();
    let copies = place.path().join("copies");
    let refused = weir(place.path())
        .args([
            "serve",
            "--at",
            "data",
            "--http",
            ":0",
            "--backups",
            "copies",
        ])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(78), "{refused:?}");
    std::fs::create_dir(&copies).unwrap();
    let mut served = serve(place.path(), &["--backups", "copies"]);
    ask(&served.address, "PUT /v1/topics/t", "");
    ask(&served.address, "POST /v1/topics/t/events", "1");
    signal(&served.child, "USR1");
    loop {
        let mut line = String::new();
        assert!(served.lines.read_line(&mut line).unwrap() > 0);
        assert!(!line.contains("the backup failed"), "{line}");
        if line.contains("the store was backed up") {
            break;
        }
    }
    let answer = ask(&served.address, "POST /v1/topics/t/events", "2");
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    signal(&served.child, "TERM");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
    let copy = copies.read_dir().unwrap().next().unwrap().unwrap().path();
    let verified = weir(place.path()).arg("verify").arg(&copy).output();
    assert!(verified.unwrap().status.success());
    let listed = weir(place.path())
        .args(["tail", "t", "--at"])
        .arg(&copy)
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(listed.matches("PUT").count(), 1, "{listed}");
}

#[test]
fn a_second_signal_ends_at_once() {
    let place = tempfile::tempdir().unwrap();
    let mut served = serve(place.path(), &["--lame-duck", "1h", "--drain", "1h"]);
    signal(&served.child, "TERM");
    // The server is not ready once it has processed the first signal.
    let end = Instant::now() + TIMEOUT;
    while !ask(&served.address, "GET /readyz", "").starts_with("HTTP/1.1 503 ") {
        assert!(Instant::now() < end, "the server stays ready");
    }
    signal(&served.child, "TERM");
    assert_eq!(served.child.wait().unwrap().code(), Some(1));
}

/// A command that has the store in `data` open until its input ends.
fn lock_holder(place: &std::path::Path) -> Child {
    let mut holder = weir(place)
        .args([
            "put", "t", "-", "--format", "jsonl", "-o", "jsonl", "--at", "data",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = holder.stdin.take().unwrap();
    input.write_all(b"{\"value\":1}\n").unwrap();
    holder.stdin = Some(input);
    let mut answered = String::new();
    let mut output = BufReader::new(holder.stdout.take().unwrap());
    output.read_line(&mut answered).unwrap();
    assert!(answered.contains("VALID"), "{answered}");
    holder
}

/// A server that waits for a store which another process has open, and its HTTP address.
fn start_waiting_server(place: &std::path::Path) -> (Child, String) {
    let address = free_address();
    let server = weir(place)
        .args(["serve", "--at", "data", "--native", "off"])
        .args(["--lock-wait", "1h", "--http", &address])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Connections fail before the server listens.
    let end = Instant::now() + TIMEOUT;
    while TcpStream::connect(&address).is_err() {
        assert!(Instant::now() < end, "the server does not listen");
    }
    (server, address)
}

#[test]
fn a_server_that_opens_its_store_responds_with_503_and_the_reason() {
    let place = tempfile::tempdir().unwrap();
    let mut holder = lock_holder(place.path());
    let (mut server, address) = start_waiting_server(place.path());
    let answer = ask(&address, "GET /v1/topics/t/events", "");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("retry-after: 1"), "{answer}");
    assert!(answer.contains("/problems/opening"), "{answer}");
    let alive = ask(&address, "GET /healthz", "");
    assert!(alive.starts_with("HTTP/1.1 200 "), "{alive}");
    let mut printed = String::new();
    let mut lines = BufReader::new(server.stderr.take().unwrap());
    lines.read_line(&mut printed).unwrap();
    let wanted = format!("opening data: waiting for process {}", holder.id());
    assert!(printed.contains(&wanted), "{printed}");
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    let end = Instant::now() + TIMEOUT;
    while !ask(&address, "GET /readyz", "").starts_with("HTTP/1.1 200 ") {
        assert!(Instant::now() < end, "the server is not ready");
    }
    signal(&server, "TERM");
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn a_signal_ends_a_server_that_is_opening_its_store() {
    let place = tempfile::tempdir().unwrap();
    let mut holder = lock_holder(place.path());
    let (mut server, address) = start_waiting_server(place.path());
    signal(&server, "TERM");
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(&address).is_err());
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
}

#[test]
fn the_audit_topic_can_be_read_and_not_written() {
    let place = tempfile::tempdir().unwrap();
    let mut served = serve(place.path(), &["--audit", "true"]);
    ask(&served.address, "PUT /v1/topics/t", "");
    signal(&served.child, "TERM");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
    let run = |words: &[&str]| {
        let mut command = weir(place.path());
        command.args(words).args(["--at", "data"]).output().unwrap()
    };
    let done = run(&["tail", ".weir.audit", "-o", "jsonl"]);
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(text.contains("create"), "{text}");
    let done = run(&["query", "--topic", ".weir.audit", "-o", "jsonl"]);
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(text.contains("create"), "{text}");
    for words in [
        &["put", ".weir.audit", "forged"][..],
        &["delete", ".weir.audit", "-k", "k"],
        &["topic", "rm", ".weir.audit", "--yes"],
    ] {
        let done = run(words);
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        let text = String::from_utf8(done.stderr).unwrap();
        assert!(text.contains("(E321)"), "{text}");
    }
}

#[test]
fn the_lame_duck_time_is_zero_by_default() {
    let place = tempfile::tempdir().unwrap();
    let done = weir(place.path())
        .args(["serve", "--print-config"])
        .output()
        .unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(text.contains("lame_duck = \"0s\""), "{text}");
    for (flags, waits) in [(&[][..], false), (&["--lame-duck", "50ms"], true)] {
        let mut served = serve(place.path(), flags);
        signal(&served.child, "TERM");
        let mut printed = String::new();
        served.lines.read_to_string(&mut printed).unwrap();
        assert_eq!(
            printed.contains("serving for 0.05 s more"),
            waits,
            "{printed}"
        );
        assert_eq!(printed.contains("more (--lame-duck)"), waits, "{printed}");
        assert_eq!(served.child.wait().unwrap().code(), Some(0));
    }
}

/// Errors are reported before a store is created, with advice.
#[test]
fn a_failed_start_gives_the_reason_and_creates_no_store() {
    let place = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let port = address.rsplit_once(':').unwrap().1;
    for (flags, code, printed) in [
        (&["--http", port, "--native", "off"][..], 75, "(E509)"),
        (&["--http", "off", "--native", port], 75, "`--native :0`"),
        (&["--http", ":0", "--native", port], 75, "listens there"),
        (&["--http", "7", "--native", "7"], 78, "set different ports"),
        (
            &[
                "--http",
                "192.0.2.1:0",
                "--insecure-no-tls",
                "--insecure-no-auth",
            ],
            78,
            "does not have the address",
        ),
        (&["--http", ":0", "--tls-cert", "c.pem"], 78, "tls_key"),
        (&["--http", ":0", "--identities", "nobody"], 78, "nobody"),
    ] {
        let done = weir(place.path())
            .args(["serve", "--at", "data"])
            .args(flags)
            .output()
            .unwrap();
        let err = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(code), "{flags:?}: {err}");
        assert!(err.contains(printed), "{flags:?}: {err}");
        assert!(!place.path().join("data").exists(), "{flags:?}: {err}");
    }
    // A process that already serves the directory is reported before one that has the port.
    let mut served = serve(place.path(), &[]);
    let again = weir(place.path())
        .args(["serve", "--at", "data", "--native", "off", "--http"])
        .args([&served.address, "--lock-wait", "0s"])
        .output()
        .unwrap();
    let err = String::from_utf8(again.stderr).unwrap();
    assert!(err.contains("(E404)"), "{err}");
    signal(&served.child, "TERM");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    let place = tempfile::tempdir().unwrap();
    let mut served = serve(place.path(), &[]);
    ask(&served.address, "PUT /v1/topics/t", "");
    let answered = (0..20).filter(|n| {
        let answer = ask(&served.address, "POST /v1/topics/t/events", &n.to_string());
        answer.starts_with("HTTP/1.1 201 ")
    });
    assert_eq!(answered.count(), 20);
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    let mut served = serve(place.path(), &[]);
    let answer = ask(&served.address, "GET /v1/topics/t?", "");
    assert!(answer.contains("\"last\":21"), "{answer}");
    signal(&served.child, "INT");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_printed_settings_are_a_valid_file() {
    let place = tempfile::tempdir().unwrap();
    let path = "a \"b\" \\c\nd\u{7f}\u{9b}";
    let shown = weir(place.path())
        .args(["serve", "--print-config"])
        .env("WEIR_SERVE_IDENTITIES", path)
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(!shown.contains(['\u{7f}', '\u{9b}']), "{shown}");
    let settings: toml::Table = shown.parse().unwrap();
    assert_eq!(settings["serve"]["identities"].as_str(), Some(path));
}

#[test]
fn each_setting_has_its_source() {
    let place = tempfile::tempdir().unwrap();
    let file = "[serve]\ndrain = \"7s\"\nthreads = 3\naccess_log = true\nhosts = [\"a\", \"b\"]\n";
    std::fs::write(place.path().join("weir.toml"), file).unwrap();
    let shown = weir(place.path())
        .args(["serve", "--print-config", "--threads", "5"])
        .env("WEIR_SERVE_DRAIN", "8s")
        .env("WEIR_SERVE_THREADS", "4")
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let line = |key: &str| {
        let line = shown
            .lines()
            .find(|line| line.starts_with(&format!("{key} =")));
        line.unwrap()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert!(
        line("threads").starts_with("threads = \"5\" # flag --threads:"),
        "{shown}"
    );
    assert!(line("drain").starts_with("drain = \"8s\" # environment WEIR_SERVE_DRAIN:"));
    assert!(
        line("hosts").starts_with("hosts = \"a,b\" # weir.toml, line 5 column 1:"),
        "{shown}"
    );
    assert!(line("body_max").starts_with("body_max = \"64MiB\" # default:"));
    for (name, text) in [("WEIR_SERVE_DRAIN", "8"), ("WEIR_SERVE_HTTP", "nowhere")] {
        let wrong = weir(place.path())
            .args(["serve", "--print-config"])
            .env(name, text)
            .output()
            .unwrap();
        assert_ne!(wrong.status.code(), Some(0), "{name}={text}");
        assert!(String::from_utf8(wrong.stderr).unwrap().contains(name));
    }
    std::fs::write(
        place.path().join("weir.toml"),
        "[serve]\ncolour = \"red\"\n",
    )
    .unwrap();
    let wrong = weir(place.path())
        .args(["serve", "--print-config"])
        .output()
        .unwrap();
    assert!(
        String::from_utf8(wrong.stderr)
            .unwrap()
            .contains("there is no key colour")
    );
    let open = weir(place.path())
        .args([
            "serve",
            "--at",
            "data",
            "--http",
            "0.0.0.0:0",
            "--config",
            "/dev/null",
        ])
        .output()
        .unwrap();
    assert_ne!(open.status.code(), Some(0));
    assert!(
        String::from_utf8(open.stderr)
            .unwrap()
            .contains("can be reached from other machines")
    );
}

//! A write or a sync of the log fails, as on a broken disk, in the real binary (DF1 in
//! docs/operating/promises.md).
//!
//! `failing_disk.c` makes the calls fail. It is compiled by `cc`, which also links every program of
//! this workspace.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use super::{Served, TIMEOUT, ask, check_read_only, get, serve, serve_by, signal, weir};

/// The kind of failure, and its name in the log.
#[derive(Clone, Copy)]
struct Fault {
    variable: &'static str,
    verb: &'static str,
    /// Whether the log line has a byte offset.
    at_byte: bool,
}

const SYNC: Fault = Fault {
    variable: "FAIL_SYNC",
    verb: "sync",
    at_byte: false,
};
const WRITE: Fault = Fault {
    variable: "FAIL_WRITE",
    verb: "write",
    at_byte: true,
};

fn library(place: &Path) -> PathBuf {
    let library = place.join("failing_disk.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/failing_disk.c");
    let mut cc = Command::new("cc");
    cc.args([
        "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-pthread", "-o",
    ]);
    let made = cc.arg(&library).arg(source).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    library
}

/// A server whose disk fails when the test requests it.
struct Failing {
    served: Served,
    address: String,
    switch: PathBuf,
    calls: PathBuf,
    manager: UnixDatagram,
}

impl Failing {
    fn new(place: &Path, fault: Fault, flags: &[&str]) -> Self {
        let manager = UnixDatagram::bind(place.join("notify")).unwrap();
        manager.set_read_timeout(Some(TIMEOUT)).unwrap();
        let (switch, calls) = (place.join("switch"), place.join("calls"));
        let mut command = weir(place);
        command
            .env("LD_PRELOAD", library(place))
            .env(fault.variable, &switch)
            .env("SYNC_CALLS", &calls)
            .env("NOTIFY_SOCKET", place.join("notify"));
        let served = serve_by(command, flags);
        let address = served.address.clone();
        ask(&address, "PUT /v1/topics/t", "");
        // The store seals an idle log, which is one more sync. The fault must not affect that sync.
        let syncs = || std::fs::read_to_string(&calls).unwrap().lines().count();
        let deadline = Instant::now() + TIMEOUT;
        let synced = loop {
            let before = syncs();
            let acknowledged = ask(&address, "POST /v1/topics/t/events", "4711");
            assert!(acknowledged.starts_with("HTTP/1.1 201"), "{acknowledged}");
            // If only the write was synced since then, the seal is still pending.
            if syncs() == before + 1 {
                break before + 1;
            }
            assert!(Instant::now() < deadline, "a seal followed each write");
        };
        while syncs() == synced {
            assert!(Instant::now() < deadline, "the log was not sealed");
            std::thread::yield_now();
        }
        Self {
            served,
            address,
            switch,
            calls,
            manager,
        }
    }

    /// From now on, the next sync fails, or each write fails.
    fn fail(&self, fault: Fault) {
        std::fs::write(&self.switch, "").unwrap();
        let deadline = Instant::now() + TIMEOUT;
        while fault.at_byte && self.switch.exists() {
            assert!(Instant::now() < deadline, "the filter was not installed");
            std::thread::yield_now();
        }
    }

    /// Waits until the service manager is notified that the store accepts no writes.
    fn wait_for_failure_notice(&self) {
        let mut text = [0; 256];
        loop {
            let size = self
                .manager
                .recv(&mut text)
                .expect("the manager is notified");
            if String::from_utf8_lossy(text.get(..size).unwrap()).contains("no more writes") {
                break;
            }
        }
    }

    /// Waits for the end. Checks the exit code, the log, and that no watchdog notification was
    /// sent.
    fn check_end(mut self, fault: Fault) {
        assert_eq!(self.served.child.wait().unwrap().code(), Some(74));
        self.manager.set_nonblocking(true).unwrap();
        let mut text = [0; 256];
        while let Ok(size) = self.manager.recv(&mut text) {
            let received = String::from_utf8_lossy(text.get(..size).unwrap()).into_owned();
            assert!(!received.contains("WATCHDOG"), "{received}");
        }
        let mut printed = String::new();
        self.served.lines.read_to_string(&mut printed).unwrap();
        let logged: Vec<&str> = printed
            .lines()
            .filter(|line| line.contains("weir_store::engine"))
            .collect();
        let [line] = logged[..] else {
            panic!("logged once: {printed}");
        };
        let words = [
            &format!("\"operation\":\"{}\"", fault.verb),
            "\"file\":\"log/",
            "\"errno\":5,",
            "Input/output error",
        ];
        for word in words {
            assert!(line.contains(word), "{word}: {line}");
        }
        assert_eq!(line.contains("\"offset\":"), fault.at_byte, "{line}");
        if fault.at_byte {
            return;
        }
        // DF1: no second sync of a file whose sync has failed.
        let calls = std::fs::read_to_string(&self.calls).unwrap();
        assert!(calls.ends_with("fail\n"), "{calls}");
    }
}

/// Checks that all acknowledged records exist after a start on a working disk.
fn check_reopen(place: &Path) {
    let mut served = serve(place, &[]);
    let (status, body) = get(&served.address, "/v1/topics/t/events");
    assert_eq!(status, 200);
    assert!(body.contains("4711"), "{body}");
    let written = ask(&served.address, "POST /v1/topics/t/events", "3");
    assert!(written.starts_with("HTTP/1.1 201"), "{written}");
    signal(&served.child, "TERM");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

fn over_http(fault: Fault) {
    let place = tempfile::tempdir().unwrap();
    let failing = Failing::new(place.path(), fault, &["--lame-duck", "1h"]);
    let address = failing.address.clone();
    failing.fail(fault);
    // This write may be in the log.
    let doubtful = ask(&address, "POST /v1/topics/t/events", "2");
    assert!(doubtful.starts_with("HTTP/1.1 504"), "{doubtful}");
    assert!(doubtful.contains("\"code\":501"), "{doubtful}");
    // This write is not in the log.
    let refused = ask(&address, "POST /v1/topics/t/events", "3");
    assert!(refused.starts_with("HTTP/1.1 500"), "{refused}");
    assert!(refused.contains("\"code\":402"), "{refused}");
    for printed in [&doubtful, &refused, &get(&address, "/readyz?verbose").1] {
        let cause = format!("cannot {} log/", fault.verb);
        assert!(
            printed.contains(&cause) && printed.contains("os error 5"),
            "{printed}"
        );
    }
    check_read_only(&address);
    failing.wait_for_failure_notice();
    signal(&failing.served.child, "TERM");
    failing.check_end(fault);
    check_reopen(place.path());
}

fn over_native(fault: Fault) {
    let place = tempfile::tempdir().unwrap();
    let failing = Failing::new(place.path(), fault, &[]);
    let put = || -> Output {
        let mut put = weir(place.path());
        put.args(["put", "t", "2", "--at", "unix:data/weir.sock"]);
        put.output().unwrap()
    };
    failing.fail(fault);
    let doubtful = put();
    let printed = String::from_utf8_lossy(&doubtful.stderr).into_owned();
    assert_eq!(doubtful.status.code(), Some(6), "{printed}");
    assert!(printed.contains("(E501)"), "{printed}");
    // The server ends without a signal. Watchdog notifications before the failure are allowed.
    failing.wait_for_failure_notice();
    failing.check_end(fault);
    check_reopen(place.path());
}

#[test]
fn a_failed_sync_is_in_doubt_over_http_and_ends_the_server() {
    over_http(SYNC);
}

#[test]
fn a_failed_write_is_in_doubt_over_http_and_ends_the_server() {
    over_http(WRITE);
}

#[test]
fn a_failed_sync_is_in_doubt_over_the_native_port_and_ends_the_server() {
    over_native(SYNC);
}

#[test]
fn a_failed_write_is_in_doubt_over_the_native_port_and_ends_the_server() {
    over_native(WRITE);
}

/// The page exceeds the socket buffers of a loopback connection.
#[test]
fn a_slow_reader_gets_its_page_while_the_disk_fails() {
    const RECORDS: usize = 17;
    const VALUE_BYTES: usize = 900_000;
    let place = tempfile::tempdir().unwrap();
    let failing = Failing::new(place.path(), SYNC, &[]);
    let address = failing.address.clone();
    let value = format!("\"{}\"", "x".repeat(VALUE_BYTES));
    for _ in 0..RECORDS {
        let acknowledged = ask(&address, "POST /v1/topics/t/events", &value);
        assert!(acknowledged.starts_with("HTTP/1.1 201"), "{acknowledged}");
    }
    let mut reader = TcpStream::connect(&address).unwrap();
    reader.set_read_timeout(Some(TIMEOUT)).unwrap();
    let request = "GET /v1/topics/t/events?max-bytes=16777216 HTTP/1.1\r\nHost: localhost\r\n\
                   Connection: close\r\n\r\n";
    reader.write_all(request.as_bytes()).unwrap();
    let mut page = vec![0; 1_000];
    reader.read_exact(&mut page).unwrap();
    assert!(page.starts_with(b"HTTP/1.1 200"));
    failing.fail(SYNC);
    // The seal of the log may hit the fault before this write does.
    let refused = ask(&address, "POST /v1/topics/t/events", "2");
    assert!(!refused.starts_with("HTTP/1.1 201"), "{refused}");
    failing.wait_for_failure_notice();
    reader.read_to_end(&mut page).unwrap();
    assert!(page.len() > RECORDS * VALUE_BYTES, "{} bytes", page.len());
    failing.check_end(SYNC);
    check_reopen(place.path());
}

/// Starts a server in which the first sync of a file whose path contains `path` never returns.
/// `begin` makes the server sync such a file. Returns when it does.
fn serve_until_blocked(
    place: &Path,
    path: &str,
    flags: &[&str],
    begin: impl FnOnce(&Served),
) -> Served {
    let blocked = place.join("blocked");
    let mut command = weir(place);
    command
        .env("LD_PRELOAD", library(place))
        .env("BLOCK_SYNC", &blocked)
        .env("BLOCK_PATH", path)
        .env("SYNC_CALLS", place.join("calls"));
    let served = serve_by(command, flags);
    ask(&served.address, "PUT /v1/topics/t", "");
    begin(&served);
    let deadline = Instant::now() + TIMEOUT;
    while !blocked.exists() {
        assert!(Instant::now() < deadline, "no file of {path} was synced");
        std::thread::yield_now();
    }
    served
}

/// Ends a server by signals. Equal signals that arrive together count as one, so this repeats them.
fn end_by_signals(mut served: Served, place: &Path) {
    let deadline = Instant::now() + TIMEOUT;
    let status = loop {
        signal(&served.child, "TERM");
        if let Some(status) = served.child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "the signals have no effect");
    };
    assert_eq!(status.code(), Some(1));
    let found = weir(place)
        .args(["topic", "show", "t", "--at", "data"])
        .output();
    assert!(found.unwrap().status.success());
}

/// The first signal waits for a running backup, and the second one does not.
#[test]
fn a_second_signal_aborts_a_backup() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("copies")).unwrap();
    let flags = ["--backups", "copies"];
    let served = serve_until_blocked(place.path(), ".partial-", &flags, |served| {
        signal(&served.child, "USR1");
    });
    end_by_signals(served, place.path());
}

/// The first signal waits for a running snapshot, and a later one does not.
#[test]
fn a_later_signal_aborts_a_snapshot() {
    let place = tempfile::tempdir().unwrap();
    let flags = ["--snapshot-log", "1KiB"];
    let served = serve_until_blocked(place.path(), "/snapshots/", &flags, |served| {
        let value = "x".repeat(10_000);
        let answer = ask(&served.address, "POST /v1/topics/t/events", &value);
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    });
    end_by_signals(served, place.path());
}

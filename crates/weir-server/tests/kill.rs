//! A server that is killed while five clients write neither loses nor duplicates an acknowledged
//! write.
//!
//! The server is this program, started again with a directory in its environment. Each cycle kills
//! it with SIGKILL and starts a new one at its address. The clients never stop.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may fail by panicking"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use weir::{
    ClientId, ConnectOptions, ConsequenceOffset, Durability, Intention, OpenOptions, Operation,
    Weir,
};
use weir_server::{Address, Server, ServerConfig};
use weir_store::Store;

/// Variable with the directory of the store, for the server process.
const DIRECTORY: &str = "WEIR_TEST_KILL_DIRECTORY";
/// Variable with the address of the server.
const ADDRESS: &str = "WEIR_TEST_KILL_ADDRESS";
/// Variable with the number of cycles.
const CYCLES: &str = "WEIR_TEST_KILL_CYCLES";
const WRITERS: u8 = 5;
/// An address that no other test uses, so that its port is free while no server runs.
const OWN_ADDRESS: &str = "127.79.0.1:0";

/// The server of the test below, not a separate test.
#[test]
fn server_of_the_kill_test() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let options = OpenOptions {
        durability: Durability::Memory,
        ..OpenOptions::default()
    };
    let store = Arc::new(Store::open(Path::new(&directory), &options).unwrap());
    let mut config = ServerConfig::default();
    config.http = None;
    config.native = Some(Address(std::env::var(ADDRESS).unwrap().parse().unwrap()));
    let server = Server::start(config, store).unwrap();
    println!("\nserves {}", server.native_addr().unwrap());
    // Until the process is killed, or the test ends and closes the pipe.
    let mut line = String::new();
    drop(std::io::stdin().read_line(&mut line));
}

fn start(directory: &Path, address: &str) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["server_of_the_kill_test", "--exact", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(ADDRESS, address)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let served = lines.find_map(|line| Some(line.ok()?.strip_prefix("serves ")?.to_owned()));
    (child, served.expect("the server starts"))
}

/// Writes numbers until `stop` is set, and waits for all acknowledgements. Returns their number.
fn writer(url: &str, number: u8, stop: &AtomicBool, acknowledged: &AtomicU64) -> u64 {
    let mut options = ConnectOptions::default();
    options.patience = Duration::from_mins(2);
    options.connect_timeout = Duration::from_mins(2);
    let weir = Weir::connect_with(url, &options).unwrap();
    let mut session = weir.session(ClientId([number + 1; 16]));
    let topic = format!("t{number}");
    let mut sent = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let values: Vec<String> = (0..20).map(|n| (sent + n).to_string()).collect();
        let pending: Vec<_> = values
            .iter()
            .map(|value| {
                let put = Operation::Put {
                    key: b"k",
                    value: value.as_bytes(),
                };
                session.send(&[Intention::new(&topic, put)]).unwrap()
            })
            .collect();
        for pending in pending {
            assert!(pending.wait().unwrap().iter().all(weir::Verdict::is_valid));
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        sent += 20;
    }
    sent
}

#[test]
fn a_killed_server_neither_loses_nor_duplicates_acknowledged_writes() {
    if std::env::var_os(DIRECTORY).is_some() {
        return;
    }
    let cycles = std::env::var(CYCLES).map_or(100, |text| text.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let (mut server, address) = start(dir.path(), OWN_ADDRESS);
    let url = format!("weir://{address}");
    let weir = Weir::connect(&url).unwrap();
    for number in 0..WRITERS {
        weir.topic(&format!("t{number}")).unwrap().ensure().unwrap();
    }
    drop(weir);
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let sent: Vec<u64> = std::thread::scope(|scope| {
        let (url, stop, acknowledged) = (&url, &stop, &acknowledged);
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| scope.spawn(move || writer(url, number, stop, acknowledged)))
            .collect();
        for cycle in 0..cycles {
            // A different amount of work in each cycle.
            let until = acknowledged.load(Ordering::Relaxed) + 100 + cycle % 7 * 40;
            while acknowledged.load(Ordering::Relaxed) < until {
                assert!(
                    !writers
                        .iter()
                        .any(std::thread::ScopedJoinHandle::is_finished)
                );
                std::thread::yield_now();
            }
            // The old process first, because it holds the directory and the address.
            server.kill().unwrap();
            server.wait().unwrap();
            server = start(dir.path(), &address).0;
            let done = cycle + 1;
            if done % 100 == 0 || done == cycles {
                let count = acknowledged.load(Ordering::Relaxed);
                // Not by a macro, because its output is shown only for failed tests.
                drop(writeln!(
                    std::io::stderr(),
                    "killed {done} of {cycles} times, {count} writes acknowledged"
                ));
            }
        }
        stop.store(true, Ordering::Relaxed);
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    server.kill().unwrap();
    server.wait().unwrap();
    let store = Store::open(dir.path(), &OpenOptions::default()).unwrap();
    for (number, sent) in sent.into_iter().enumerate() {
        let mut reader = store
            .read(&format!("t{number}"), ConsequenceOffset::ZERO)
            .unwrap();
        let mut found = Vec::new();
        while let Some(page) = reader.next_page().unwrap() {
            for record in &page {
                let record = record.unwrap();
                if record.kind == weir::RecordKind::Put {
                    found.push(String::from_utf8(record.value.to_vec()).unwrap());
                }
            }
        }
        let wanted: Vec<String> = (0..sent).map(|n| n.to_string()).collect();
        assert!(
            found == wanted,
            "writer {number}: each of {sent} once and in order"
        );
    }
}

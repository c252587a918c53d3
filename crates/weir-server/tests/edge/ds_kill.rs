//! A server that is killed while a producer writes neither loses nor duplicates an acknowledged
//! write, as the protocol of Durable Streams requires.
//!
//! The server is this program, started again with a directory in its environment. Each cycle kills
//! it with SIGKILL.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_server::{Server, ServerConfig};
use weir_store::Store;

use crate::client::TEST_TIMEOUT;
use crate::world::{options, request};

/// Variable with the directory of the store, for the server process.
const DIRECTORY: &str = "WEIR_TEST_STREAMS_DIRECTORY";
/// Variable with the address of the server.
const ADDRESS: &str = "WEIR_TEST_STREAMS_ADDRESS";
const CYCLES: u64 = 20;
/// An address that no other test uses, so that its port is free while no server runs.
const OWN_ADDRESS: &str = "127.79.0.2:0";

/// The server of the test below, not a separate test.
#[test]
fn server_of_the_kill_test_of_streams() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let store = Arc::new(Store::open(Path::new(&directory), &options()).unwrap());
    let mut config = ServerConfig::default();
    config.native = None;
    config.http = Some(std::env::var(ADDRESS).unwrap().parse().unwrap());
    let server = Server::start(config, store).unwrap();
    println!("\nserves {}", server.http_addr().unwrap());
    // Until the process is killed, or the test ends and closes the pipe.
    let mut line = String::new();
    drop(std::io::stdin().read_line(&mut line));
}

fn start(directory: &Path, address: &str) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "ds_kill::server_of_the_kill_test_of_streams",
            "--exact",
            "--nocapture",
        ])
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

/// Returns the response to one request; `None` if the server was killed meanwhile.
fn ask(address: &str, line: &str, fields: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let fields = format!("Connection: close\n{fields}");
    stream
        .write_all(&request(line, &fields, body.as_bytes()))
        .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.contains("\r\n\r\n").then_some(answer)
}

/// Retries one write until it gets a response.
fn retry_until_answered(address: &str, id: &str, seq: u64) {
    let fields = format!(
        "Content-Type: text/plain\nProducer-Id: {id}\nProducer-Epoch: 0\nProducer-Seq: {seq}"
    );
    loop {
        let answer = ask(address, "POST /ds/a", &fields, &format!("{id}{seq};"));
        let Some(answer) = answer else {
            std::thread::yield_now();
            continue;
        };
        let status = answer.get(9..12).unwrap_or_default();
        assert!(matches!(status, "200" | "204"), "{answer}");
        return;
    }
}

#[test]
fn a_killed_server_stores_each_write_of_a_producer_once() {
    if std::env::var_os(DIRECTORY).is_some() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut server, address) = start(dir.path(), OWN_ADDRESS);
    let created = ask(&address, "PUT /ds/a", "Content-Type: text/plain", "").unwrap();
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let sent: Vec<u64> = std::thread::scope(|scope| {
        let (address, stop, acknowledged) = (&address, &stop, &acknowledged);
        let producers: Vec<_> = ["p", "q"]
            .map(|id| {
                scope.spawn(move || {
                    let mut seq = 0;
                    while !stop.load(Ordering::Relaxed) {
                        retry_until_answered(address, id, seq);
                        acknowledged.fetch_add(1, Ordering::Relaxed);
                        seq += 1;
                    }
                    seq
                })
            })
            .into();
        for cycle in 0..CYCLES {
            // A different amount of work in each cycle.
            let until = acknowledged.load(Ordering::Relaxed) + 20 + cycle % 5 * 7;
            while acknowledged.load(Ordering::Relaxed) < until {
                assert!(
                    !producers
                        .iter()
                        .any(std::thread::ScopedJoinHandle::is_finished)
                );
                std::thread::yield_now();
            }
            server.kill().unwrap();
            server.wait().unwrap();
            server = start(dir.path(), address).0;
        }
        stop.store(true, Ordering::Relaxed);
        producers
            .into_iter()
            .map(|producer| producer.join().unwrap())
            .collect()
    });
    let answer = ask(&address, "GET /ds/a", "", "").unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let data = answer.split_once("\r\n\r\n").unwrap().1;
    for (id, sent) in ["p", "q"].into_iter().zip(sent) {
        let found: Vec<&str> = data
            .split_terminator(';')
            .filter_map(|text| text.strip_prefix(id))
            .collect();
        let wanted: Vec<String> = (0..sent).map(|seq| seq.to_string()).collect();
        assert!(found == wanted, "{id}: each of {sent} once and in order");
    }
}

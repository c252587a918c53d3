//! What a write costs the server: processor time of a server process, at level
//! `memory`, under clients that send puts of 100 bytes and wait for all answers.
//!
//! `cargo run --release -p weir-server --example native_load -- [CLIENTS [WRITES [CALL]]]`:
//! clients, writes of each, intentions handed over at a time (1: one by one,
//! gathered by the client). Prints microseconds a write: processor time of the
//! server, and wall time.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement by hand"
)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir::{ClientId, Durability, Effect, Intention, OpenOptions, Operation, Outcome, Weir};
use weir_server::{Address, Server, ServerConfig};
use weir_store::Store;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [word, directory] = args.as_slice()
        && word == "serve"
    {
        return serve(directory);
    }
    let number = |at: usize, default| args.get(at).map_or(default, |text| text.parse().unwrap());
    let clients = u8::try_from(number(0, 5)).unwrap();
    measure(clients, number(1, 200_000), number(2, 100));
}

fn serve(directory: &str) {
    let options = OpenOptions {
        durability: Durability::Memory,
        ..OpenOptions::default()
    };
    let store = Arc::new(Store::open(directory.as_ref(), &options).unwrap());
    let mut config = ServerConfig::default();
    config.http = None;
    config.native = Some(Address("127.0.0.1:0".parse().unwrap()));
    let server = Server::start(config, store).unwrap();
    println!("{}", server.native_addr().unwrap());
    let mut line = String::new();
    drop(std::io::stdin().read_line(&mut line));
}

/// Processor time that a process has used.
fn processor_time(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, behind) = stat.rsplit_once(')').unwrap();
    // User and system time are fields 14 and 15 of the line, in ticks of 10 ms;
    // field 3 is the first one behind the name.
    let ticks = behind.split_whitespace().skip(11).take(2);
    Duration::from_millis(ticks.map(|ticks| 10 * ticks.parse::<u64>().unwrap()).sum())
}

fn measure(clients: u8, writes: u64, call: u64) {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["serve", dir.path().to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let url = format!("weir://{}", lines.next().unwrap().unwrap());
    Weir::connect(&url)
        .unwrap()
        .topic("t")
        .unwrap()
        .ensure()
        .unwrap();
    for round in 0..3 {
        let (before, start) = (processor_time(server.id()), Instant::now());
        std::thread::scope(|scope| {
            for client in 0..clients {
                let url = &url;
                scope.spawn(move || {
                    let weir = Weir::connect(url).unwrap();
                    let mut session = weir.session(ClientId([round * clients + client + 1; 16]));
                    let (key, value) = ([b'k'; 8], [b'v'; 100]);
                    let (key, value) = (&key[..], &value[..]);
                    let put = Intention::new("t", Operation::Put { key, value });
                    let puts = vec![put; usize::try_from(call).unwrap()];
                    let mut pending = Vec::new();
                    for _ in 0..writes / call {
                        pending.push(session.send(&puts).unwrap());
                    }
                    for pending in pending {
                        let outcomes = pending.into_proposal().wait().unwrap();
                        let valid = |outcome: &Outcome| {
                            outcome.commit().is_some_and(|c| c.effect == Effect::Valid)
                        };
                        assert!(outcomes.iter().all(|outcome| valid(&outcome)));
                    }
                });
            }
        });
        let (wall, used) = (
            start.elapsed(),
            processor_time(server.id()).saturating_sub(before),
        );
        let all = f64::from(clients) * f64::from(u32::try_from(writes / call * call).unwrap());
        let each = |time: Duration| time.as_secs_f64() * 1e6 / all;
        println!(
            "{clients} clients, {writes} writes each, {call} at a time: server {:.2} us, wall {:.2} us a write",
            each(used),
            each(wall)
        );
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

//! A real process is killed repeatedly while it writes, and a second process cannot lock
//! the directory.
//!
//! The child is this test program; an environment variable makes it the writer.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use weir_core::{ClientId, Outcome};
use weir_store::{Store, StoreError};

use crate::world::{SplitMix, create, execute, keys, options, outcomes, put, records};

const DIRECTORY: &str = "WEIR_TEST_KILL_DIRECTORY";
const CYCLES: u64 = 30;
const SESSIONS: u8 = 3;

fn client(session: u8) -> ClientId {
    ClientId([session; 16])
}

/// The size of a call depends only on its first nonce, so that the call can be sent again.
fn call_size(nonce: u64) -> u64 {
    if nonce.is_multiple_of(3) { 5 } else { 1 }
}

fn value(session: u8, nonce: u64) -> Vec<u8> {
    let mut value = format!("{session} {nonce} ").into_bytes();
    value.resize(20 + nonce as usize % 400, b'x');
    value
}

/// The body of the child: three sessions write, and print each acknowledgement to standard
/// output, until the process is killed.
#[test]
fn child_writes_until_it_is_killed() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let store = Arc::new(Store::open(Path::new(&directory), &options()).unwrap());
    if store.topic("t").is_none() {
        create(&store, "t");
    }
    let threads: Vec<_> = (1..=SESSIONS)
        .map(|session| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || {
                let key = [session];
                let mut nonce = store.last_nonce(client(session)) + 1;
                loop {
                    let size = call_size(nonce);
                    let values: Vec<_> = (0..size).map(|n| value(session, nonce + n)).collect();
                    let call: Vec<_> = (0..)
                        .zip(&values)
                        .map(|(n, value)| put("t", &key, value).under(client(session), nonce + n))
                        .collect();
                    let commits = execute(&store, &call);
                    let mut lines = Vec::new();
                    for commit in commits {
                        writeln!(lines, "ack {session} {} {}", commit.nonce, commit.first.0)
                            .unwrap();
                    }
                    // One write, so that lines of different threads are not mixed.
                    let mut out = std::io::stdout().lock();
                    out.write_all(&lines).unwrap();
                    out.flush().unwrap();
                    nonce += size;
                    if session == 1 && nonce.is_multiple_of(200) {
                        store.checkpoint().unwrap();
                    }
                }
            })
        })
        .collect();
    // The threads never end.
    for thread in threads {
        drop(thread.join());
    }
}

fn start(directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "kill::child_writes_until_it_is_killed",
            "--nocapture",
        ])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

type Acks = BTreeMap<(u8, u64), u64>;

/// Reads a number of acknowledgements, kills the child, and reads the remaining ones.
fn run_and_kill(directory: &Path, wanted: u64, acks: &mut Acks) {
    let mut child = start(directory);
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut seen = 0;
    let mut line = String::new();
    loop {
        line.clear();
        // The last line may be incomplete; then it is ignored.
        if lines.read_line(&mut line).unwrap() == 0 {
            break;
        }
        let Some(rest) = line.strip_suffix('\n').and_then(|l| {
            // The harness prints text before the first line.
            l.find("ack ").map(|at| &l[at + 4..])
        }) else {
            continue;
        };
        let mut words = rest.split(' ');
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        let (session, nonce, offset) = (number() as u8, number(), number());
        assert!(
            acks.insert((session, nonce), offset).is_none(),
            "acknowledged twice"
        );
        seen += 1;
        if seen == wanted {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(seen >= wanted, "the child ended by itself after {seen}");
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut acks = Acks::new();
    let mut draw = SplitMix(17);
    for cycle in 0..CYCLES {
        run_and_kill(dir.path(), 1 + draw.below(150), &mut acks);
        let store = Store::open(dir.path(), &options()).unwrap();
        let found = records(&store, "t");
        let mut next = [1_u64; SESSIONS as usize + 1];
        for record in found.iter().skip(1) {
            let session = record.key[0];
            assert_eq!(
                record.nonce,
                next[usize::from(session)],
                "cycle {cycle}: once, in order"
            );
            next[usize::from(session)] += 1;
            assert_eq!(record.value, value(session, record.nonce));
            if let Some(offset) = acks.get(&(session, record.nonce)) {
                assert_eq!(record.offset, *offset, "cycle {cycle}");
            }
        }
        for (session, nonce) in acks.keys() {
            assert!(
                *nonce < next[usize::from(*session)],
                "cycle {cycle}: {session}/{nonce} is lost"
            );
        }
        for session in 1..=SESSIONS {
            let last = store.last_nonce(client(session));
            assert_eq!(last + 1, next[usize::from(session)]);
            // The last call is sent again: it is not executed a second time.
            if last > 0 {
                let (key, value) = ([session], value(session, last));
                let again = put("t", &key, &value).under(client(session), last);
                let outcome = outcomes(&store, &[again])[0].clone();
                assert!(matches!(outcome, Outcome::Replayed(_)));
            }
        }
        assert!(keys(&store, "t").len() <= usize::from(SESSIONS));
        assert_eq!(records(&store, "t").len(), found.len());
        if cycle % 10 == 9 {
            store.compact_log().unwrap();
        }
        drop(store);
        let report = weir_store::verify(dir.path()).unwrap();
        assert!(report.is_sound(), "cycle {cycle}: {:?}", report.findings);
    }
    assert!(acks.len() as u64 > CYCLES * 20);
}

#[test]
fn a_second_process_gets_the_holder_of_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = start(dir.path());
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("ack ") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0);
    }
    let refused = Store::open(dir.path(), &options()).unwrap_err();
    let StoreError::Locked { pid, program, .. } = &refused else {
        panic!("{refused}");
    };
    assert_eq!((*pid, program.as_str()), (child.id(), "test"));
    assert!(refused.to_string().contains(&child.id().to_string()));
    child.kill().unwrap();
    child.wait().unwrap();
    // The lock ends with its process.
    drop(Store::open(dir.path(), &options()).unwrap());
    let first = Store::open(dir.path(), &options()).unwrap();
    let second = Store::open(dir.path(), &options()).unwrap_err();
    let own_pid = std::process::id();
    assert!(matches!(second, StoreError::Locked { pid, .. } if pid == own_pid));
    drop(first);
    // The next process that fails to get the lock does not report a holder that has ended.
    let text = std::fs::read(dir.path().join("LOCK")).unwrap();
    assert!(text.is_empty(), "{}", String::from_utf8_lossy(&text));
}

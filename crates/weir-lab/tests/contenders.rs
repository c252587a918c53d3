//! The contenders of http-json answer correctly, and the faulty servers stall where they should:
//! ours, and the one in C, which is built here.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a failed set-up is a failed test

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;
use weir_lab::verify::server::{Running, SilenceLimit};
use weir_lab::verify::stall::{COLUMNS, Outcome};
use weir_lab::verify::vector::Vector;
use weir_lab::verify::{faults, pieces, vector};
use weir_server::stack::{Response, Stack};

/// The answers of the contenders in Rust: a file of another workspace, with its own lints.
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    clippy::all,
    clippy::pedantic,
    clippy::cast_possible_truncation
)]
#[path = "../../../lab/peers/rust-hyper/src/bench.rs"]
mod bench;

/// Set for the process that is our server.
const SERVES: &str = "WEIR_TEST_CONTENDER";
/// Longest silence of a server that is expected to answer.
const SILENCE_LIMIT: SilenceLimit = SilenceLimit::Seconds(60);

fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/peers")
}

fn vectors() -> Vec<Vector> {
    let text = std::fs::read_to_string(peers().join("bench.txt")).unwrap();
    let vectors = vector::read(&text).unwrap();
    assert!(vectors.len() > 35, "{}", vectors.len());
    vectors
}

/// Not a separate test: the server of the test below.
#[test]
fn server_of_the_contender_test() {
    if std::env::var_os(SERVES).is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        println!("\nlistening on {}", listener.local_addr().unwrap());
        let answer = |request: &weir_server::stack::Request<'_>| {
            let answer = bench::answer(request.method, request.path, request.query, request.body);
            Response {
                status: answer.status,
                media_type: answer.media_type,
                allow: answer.allow,
                body: answer.body,
            }
        };
        let stack = Stack::new(answer, bench::BODY_MAX);
        // Runs until it is killed, or until the test has ended and no client connects.
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(Arc::clone(&stack).serve(stream));
        }
    });
}

fn ours() -> Vec<String> {
    let program = std::env::current_exe().unwrap().display().to_string();
    let test = "server_of_the_contender_test";
    let words = [
        "env",
        &format!("{SERVES}=1"),
        &program,
        test,
        "--exact",
        "--nocapture",
    ];
    words.map(str::to_owned).to_vec()
}

/// Builds `c-epoll` with these flags. Returns the words that start it.
fn c_epoll(dir: &TempDir, flags: &[&str]) -> Vec<String> {
    let program = dir.path().join("c-epoll");
    let built = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"])
        .arg("-DBENCH_WITHOUT_ZLIB")
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(peers().join("c-epoll/c-epoll.c"))
        .output()
        .expect("a C compiler");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let program = program.display().to_string();
    [&program, "--listen", "127.0.0.1:{port}"]
        .map(str::to_owned)
        .to_vec()
}

/// The checks that a correct contender must pass.
fn passes(name: &str, words: &[String], vectors: &[Vector]) {
    let mut server = Running::start(name, words, SILENCE_LIMIT).unwrap();
    let count = pieces::check(&mut server, vectors).unwrap_or_else(|error| panic!("{error}"));
    assert!(count > 5_900, "{count}");
    for (column, check) in COLUMNS {
        let mut server = Running::start(name, words, SILENCE_LIMIT).unwrap();
        assert_eq!(
            check(&mut server).unwrap(),
            Outcome::Good,
            "{name}: {column}"
        );
    }
}

#[test]
fn our_connections_answer_every_vector_in_every_form() {
    passes("weir-edge-stack", &ours(), &vectors());
}

#[test]
fn the_contender_in_c_answers_every_vector_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let words = c_epoll(&dir, &["-fsanitize=undefined", "-fno-sanitize-recover"]);
    let mut vectors = vectors();
    vectors.retain(|vector| !vector.name.contains("/bench/zlib"));
    passes("c-epoll", &words, &vectors);
}

#[test]
fn every_fault_stalls_where_it_should() {
    let dir = tempfile::tempdir().unwrap();
    let words = c_epoll(&dir, &["-DFAULTY"]);
    for (fault, expected) in faults::FAULTS {
        let mut words = words.clone();
        words.extend(["--fault".to_owned(), (*fault).to_owned()]);
        assert_eq!(faults::seen(fault, &words).unwrap(), *expected, "{fault}");
    }
}

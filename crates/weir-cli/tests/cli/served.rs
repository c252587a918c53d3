//! Tests commands at a server: equal arguments, verdicts and exit codes; through the socket of a
//! directory, with a token, and across restarts.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Stdio};

use serde_json::json;

use crate::ports::reserve;
use crate::run::{CommandOutput, Place, command_output};

/// A server in a place. Dropping this kills it.
pub(crate) struct Served {
    child: Child,
    pub(crate) url: String,
    _stderr: Lines<BufReader<ChildStderr>>,
}

impl Served {
    #[allow(
        clippy::zombie_processes,
        reason = "dropping this waits for the process"
    )]
    /// Serves the directory `data` at the given native address.
    pub(crate) fn new(place: &Place, native: &str, flags: &[&str]) -> Self {
        let mut child = place
            .weir()
            .args(["serve", "--at", "data", "--http", "off", "--native", native])
            // A follower has the directory open for a moment.
            .args(["--lock-wait", "60s"])
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut url = String::new();
        loop {
            let line = stderr.next().expect("the server starts").unwrap();
            if let Some((_, at)) = line.split_once("native at ") {
                at.clone_into(&mut url);
            }
            if line.contains("acknowledged") {
                return Self {
                    child,
                    url,
                    _stderr: stderr,
                };
            }
        }
    }

    /// Like `new`, at an address at which the server can start again.
    fn at_reserved_port(place: &Place, flags: &[&str]) -> Self {
        Self::new(place, &reserve([127, 0, 0, 1]).to_string(), flags)
    }

    /// Kills the server, and serves again at its previous address.
    fn again(mut self, place: &Place) -> Self {
        self.kill();
        let native = self.url.strip_prefix("weir://").unwrap().to_owned();
        Self::new(place, &native, &[])
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn run(&self, place: &Place, line: &str) -> CommandOutput {
        place.run(&format!("{line} --at {}", self.url))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Common commands, each with its exit code; `module` is a program.
const DAY: &[(&str, i32)] = &[
    ("topic create orders", 0),
    ("put orders {\"id\":1} --key 1 --no-create", 0),
    ("put orders {\"id\":2} --key 1 --if-absent", 3),
    ("put nothing x --no-create", 3),
    ("get orders --key 1", 0),
    ("get orders 2 -o json --columns offset,kind,key,value", 0),
    ("get orders 9", 4),
    ("get orders --key 9", 4),
    ("delete orders --key 1 --if-present", 0),
    ("tail nothing", 4),
    ("tail nothing.*", 4),
    ("tail orders -o jsonl --columns offset,kind,key,value", 0),
    (
        "tail orders --from -1 -o jsonl --columns offset,kind,key",
        0,
    ),
    ("topic set orders compaction=latest", 0),
    (
        "topic show orders -o json --columns name,live,first,last,keys,compaction",
        0,
    ),
    ("topic ls -o json --columns name,first,last,keys", 0),
    ("topic verify orders -o json", 0),
    ("txn orders steps.ndjson", 0),
    (
        "import lines.ndjson -t things -k $.id -o json --columns imported,already,complete",
        0,
    ),
    (
        "import lines.ndjson -t things -k $.id -o json --columns imported,already,complete",
        0,
    ),
    ("export things --columns key,value", 0),
    ("export things --latest --columns key,value", 0),
    ("program deploy bank balance.wasm", 0),
    ("program deploy bank balance.wasm", 3),
    (
        "program show bank -o json --columns topic,state,entries,sha256",
        0,
    ),
    ("program ls -o json --columns topic,state,sha256", 0),
    ("program show orders", 4),
    ("program replace bank balance.wasm", 0),
    ("put bank junk", 3),
    ("program quarantine bank", 0),
    ("put bank junk", 3),
    ("program quarantine bank --release", 0),
    ("put bank junk", 3),
    ("program quarantine orders", 0),
    ("put orders x", 3),
    ("get orders --key a", 0),
    ("program quarantine orders --release", 0),
    ("put orders x", 0),
    ("program quarantine nothing", 3),
    ("put bad/name x", 2),
    ("put orders x --session s --nonce 1", 0),
    ("put orders x --session s --nonce 1", 0),
    ("put orders y --session s --nonce 1", 1),
    ("put orders y --session s --nonce 9", 1),
    ("topic rm orders --yes", 0),
    ("topic show orders -o json --columns live,last", 0),
];

fn prepared() -> Place {
    let place = Place::new();
    place.write(
        "steps.ndjson",
        "{\"key\":\"a\",\"value\":1}\n{\"key\":\"b\",\"value\":2}\n",
    );
    place.write("lines.ndjson", "{\"id\":1}\n{\"id\":2}\n");
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let module = std::fs::read(root.join("programs/prebuilt/balance.wasm")).unwrap();
    place.write("balance.wasm", module);
    place
}

/// The messages without parts that differ between runs.
fn without_differences(err: &str) -> String {
    let lines = err.lines().filter(|line| {
        !line.contains("working through its socket") && !line.contains("created a new store")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_command_gives_equal_results_at_a_server_and_in_a_directory() {
    let (local, remote, through_socket) = (prepared(), prepared(), prepared());
    let served = Served::new(&remote, ":0", &[]);
    let local_only = Served::new(&through_socket, "off", &[]);
    assert_eq!(local_only.url, "", "only the socket exists");
    for (line, code) in DAY {
        let expected = local.run(&format!("{line} --at data"));
        assert_eq!(expected.code, *code, "{line}: {}", expected.err);
        for done in [
            served.run(&remote, line),
            through_socket.run(&format!("{line} --at data")),
        ] {
            assert_eq!(done.code, *code, "{line}: {}", done.err);
            assert_eq!(done.text(), expected.text(), "{line}");
            assert_eq!(
                without_differences(&done.err),
                without_differences(&expected.err),
                "{line}"
            );
        }
    }
}

/// The client replays the history of a server's store, with an equal result.
#[test]
fn traces_and_replays_run_at_the_client_of_a_server() {
    let place = prepared();
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    for name in ["words", "vanilla"] {
        let module = std::fs::read(root.join(format!("programs/prebuilt/{name}.wasm"))).unwrap();
        place.write(&format!("{name}.wasm"), module);
    }
    let served = Served::new(&place, ":0", &[]);
    served.run(&place, "program deploy w words.wasm").ok();
    // More than one part of a file, and a snapshot to start from.
    place.write("long", "x".repeat(200_000));
    served.run(&place, "put plain @long --key k").ok();
    served.run(&place, "put w one --key k").ok();
    served.run(&place, "put w one --key 5").code(3);
    served.run(&place, "compact").ok();
    place.write("many", "1 2 3 4 5 6 7 8 9");
    served.run(&place, "put plain @long --key k").ok();
    served.run(&place, "put w @many --key k").code(3);
    served.run(&place, "put w two --key 7").code(3);
    for line in [
        "program trace w 8",
        "program trace w 8 -o json",
        "program trace w 7",
        "program trace w 6",
        "program trace w 2",
        "program trace w 99",
        "program trace none 1",
        "program logs w",
        "program logs -o json",
        "program replay w --with vanilla.wasm -o json",
        "program test vanilla.wasm --from-topic w -o json",
    ] {
        let local = place.run(&format!("{line} --at data"));
        let remote = served.run(&place, line);
        assert_eq!(
            remote.code, local.code,
            "{line}: {} {}",
            remote.err, local.err
        );
        assert_eq!(remote.text(), local.text(), "{line}");
        assert_eq!(
            without_differences(&remote.err),
            without_differences(&local.err),
            "{line}"
        );
    }
    let trace = served.run(&place, "program trace w 8").ok().text();
    assert!(trace.contains("log error: panicked at"), "{trace}");
    let judged = served.run(&place, "program replay w --with vanilla.wasm");
    let expected = "2 differ: 0 no longer VALID, 2 newly VALID";
    let err = judged.code(3).err;
    assert!(err.contains(expected), "{err}");
}

#[test]
fn commands_that_need_the_files_report_that_with_advice() {
    let place = prepared();
    let served = Served::new(&place, ":0", &[]);
    place.run("topic create t --at data").ok();
    for line in [
        "backup copy",
        "verify",
        "repair other",
        "compact t",
        "topic retain t",
        "serve",
    ] {
        let done = served.run(&place, line).code(2);
        assert!(
            done.err.contains("needs the directory"),
            "{line}: {}",
            done.err
        );
        assert!(done.err.contains("--at DIR"), "{line}: {}", done.err);
    }
    // On the machine of the server, the lock rejects the command and names the server.
    let owner = format!("process {} (weir serve)", served.child.id());
    let done = place.run("backup copy --at data --lock-wait 0s").code(75);
    assert!(done.err.contains(&owner), "{}", done.err);
}

#[test]
fn status_and_compact_work_at_a_server() {
    let place = prepared();
    let served = Served::new(&place, ":0", &[]);
    place.run("topic create s compaction=latest --at data").ok();
    for n in 0..200 {
        let line = format!("{{\"key\":\"k\",\"value\":{n}}}\n").repeat(20);
        if n % 50 == 0 {
            place.pipe("put s --format jsonl --at data", line).ok();
        }
    }
    let status = served.run(&place, "status -o json").ok().json();
    assert_eq!(status["writable"], true);
    assert_eq!(
        (&status["cause"], &status["data_bytes"]),
        (&json!(null), &json!(null))
    );
    assert!(
        status["version"].is_string() && status["ready"] == true,
        "{status}"
    );
    assert!(status["connections"].as_u64().unwrap() >= 1, "{status}");
    assert_eq!(status["budgets"][0]["name"], "writes");
    for name in ["time", "clock"] {
        assert!(status[name].as_str().unwrap().starts_with("20"), "{status}");
    }
    let report = served.run(&place, "compact -o json").ok().json();
    assert!(report["index"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["index"], status["applied"]);
    let after = served.run(&place, "status -o json").ok().json();
    assert_eq!(after["log_bytes"], report["log_bytes_after"]);
    assert!(after["log_first"].as_u64().unwrap() > 1, "{after}");
    // All topics were compacted as well: replaced values are removed.
    let left = served.run(&place, "tail s --type put").ok().lines();
    assert!(left.len() < 80, "{}", left.len());
    assert_eq!(served.run(&place, "get s --key k").ok().text(), "150");
}

#[test]
fn the_socket_is_private_and_removed_with_the_server() {
    use std::os::unix::fs::PermissionsExt;
    let place = prepared();
    let mut served = Served::new(&place, ":0", &[]);
    let socket = place.path("data/weir.sock");
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let err = place.run("put t x --at data").ok().err;
    let owner = format!("process {} serves data", served.child.id());
    assert_eq!(err.matches(&owner).count(), 1, "{err}");
    // The remains of a killed server block no command.
    served.kill();
    assert!(socket.exists());
    place.run("put t x --at data").ok();
    place.run("verify --at data").ok();
    let mut served = Served::new(&place, ":0", &[]);
    place.run("put t x --at data").ok();
    let mut kill = place.command("/bin/sh");
    kill.args(["-c", &format!("kill -INT {}", served.child.id())]);
    assert!(kill.status().unwrap().success());
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
    assert!(!socket.exists());
    assert_eq!(
        place.run("tail t --at data -o raw --type put").ok().text(),
        "x\nx\nx\n"
    );
}

#[test]
fn a_token_comes_from_a_file_or_the_environment_and_is_never_shown() {
    let place = prepared();
    let words = [
        "token",
        "create",
        "loader",
        "--right",
        "put,create,read **",
        "-o",
        "json",
    ];
    let made = place.words(&words).ok();
    let writer = [
        "token",
        "create",
        "writer",
        "--right",
        "create,put w.**",
        "--out",
        "./writer.token",
    ];
    place.words(&writer).ok();
    let token = made.json()["token"].as_str().unwrap().to_owned();
    place.write("token", format!("{token}\n"));
    let served = Served::new(&place, ":0", &["--identities", "identities.toml"]);
    let url = &served.url;
    let denied = place.run(&format!("put t x --at {url}")).code(7);
    assert!(denied.err.contains("(E307)"), "{}", denied.err);
    place
        .run(&format!("put t x --at {url} --token-file token"))
        .ok();
    let with = |name: &str, value: &str, line: &str| {
        let mut command = place.weir();
        command.args(line.split(' ')).env(name, value);
        command_output(command.output().unwrap())
    };
    with("WEIR_TOKEN", &token, &format!("get t 2 --at {url}")).ok();
    with("WEIR_TOKEN_FILE", "token", &format!("get t 2 --at {url}")).ok();
    // With both variables, the file is used.
    let mut both = place.weir();
    both.args(format!("get t 2 --at {url}").split(' '));
    both.env("WEIR_TOKEN", "wrong");
    both.env("WEIR_TOKEN_FILE", "token");
    command_output(both.output().unwrap()).ok();
    // The socket of a directory needs no token, so a command does not send it one.
    for line in ["get t 2 --at data", "bench write -m 20 -t load --at data"] {
        with("WEIR_TOKEN_FILE", "writer.token", line).ok();
    }
    place
        .run(&format!("context create far {url} --token-file token"))
        .ok();
    place
        .run(&format!("context create var {url} --token-env MINE"))
        .ok();
    place.run("context use far").ok();
    place.run("get t 2").ok();
    // The rights to create and to write do not include the right to read.
    let as_writer = format!("--at {url} --token-file writer.token");
    place.run(&format!("put w.a x {as_writer}")).ok();
    place.run(&format!("put w.a x {as_writer}")).ok();
    let denied = place.run(&format!("put v.a x {as_writer}")).code(7);
    assert!(
        denied.err.contains("the right `create` on v.a"),
        "{}",
        denied.err
    );
    // A token applies to the place of its context.
    let other = format!(
        "get t 2 --at weir://localhost:{}",
        url.rsplit_once(':').unwrap().1
    );
    place.run(&other).code(7);
    place.run("context use var").ok();
    with("MINE", &token, "get t 2").ok();
    let unset = place.run("get t 2").code(2);
    assert!(unset.err.contains("MINE is not set"), "{}", unset.err);
    for line in [
        "context ls -o json",
        "context show far -o wide",
        "config show",
        "get t 2 -v",
    ] {
        let shown = with("MINE", &token, line).ok();
        assert!(
            !shown.text().contains(&token) && !shown.err.contains(&token),
            "{line}"
        );
    }
    let kept = std::fs::read_to_string(place.path(".config/weir/contexts.toml")).unwrap();
    assert!(!kept.contains(&token), "{kept}");
    // A process that may read the files needs no token.
    place.run("get t 2 --at data").ok();
    place.run("put t y --at data").ok();
}

fn follow(place: &Place, words: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = place
        .weir()
        .args(["tail", "-f", "-o", "raw", "--type", "put"])
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

#[test]
fn a_tail_continues_over_restarts_without_lost_or_repeated_records() {
    let place = prepared();
    let mut served = Served::at_reserved_port(&place, &[]);
    served.run(&place, "topic create a.x").ok();
    let url = served.url.clone();
    let both = ["a.x", "a.y", "--at", &url, "-n", "20"];
    let (mut one, mut of_one) = follow(&place, &["a.x", "--at", &url, "-n", "10"]);
    let (mut two, mut of_two) = follow(&place, &both);
    let (mut file, mut of_file) = follow(&place, &["a.*", "--at", "data", "-n", "20"]);
    for n in 0..10 {
        for topic in ["a.x", "a.y"] {
            served.run(&place, &format!("put {topic} {topic}{n}")).ok();
            let wanted = format!("{topic}{n}");
            assert_eq!(of_two.next().unwrap().unwrap(), wanted);
            assert_eq!(of_file.next().unwrap().unwrap(), wanted);
            if topic == "a.x" {
                assert_eq!(of_one.next().unwrap().unwrap(), wanted);
            }
        }
        if n % 3 == 1 {
            served = served.again(&place);
        }
    }
    for (child, rest) in [
        (&mut one, &mut of_one),
        (&mut two, &mut of_two),
        (&mut file, &mut of_file),
    ] {
        assert!(rest.next().is_none());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn imports_with_kills_of_the_server_and_the_import_write_each_row_once() {
    const ROWS: usize = 3000;
    const WRITERS: usize = 5;
    let place = prepared();
    let mut served = Served::at_reserved_port(&place, &["--durability", "memory"]);
    let rows: Vec<String> = (0..ROWS).map(|n| format!("{{\"id\":{n}}}\n")).collect();
    let wanted = rows.concat();
    place.write("rows.ndjson", &wanted);
    let line = |n: usize, at: &str| {
        format!("import rows.ndjson -t t{n} -k $.id --batch 20 --quiet --at {at}")
    };
    let import = |n: usize, at: &str| {
        let mut command = place.weir();
        command.args(line(n, at).split(' '));
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    // In each round, all importers start or resume, and the server is killed and restarted. In all
    // but the last round, the importers are killed too.
    for round in 0..4 {
        let mut running: Vec<Child> = (0..WRITERS).map(|n| import(n, &served.url)).collect();
        let written = |served: &Served| {
            let topics = served.run(&place, "topic ls -o jsonl --columns last").ok();
            let last = topics.lines();
            last.iter()
                .map(|row| row["last"].as_u64().unwrap())
                .sum::<u64>()
        };
        let goal = written(&served) + 400;
        while written(&served) < goal.min((ROWS * WRITERS) as u64) {}
        served = served.again(&place);
        for child in &mut running {
            if round < 3 {
                child.kill().unwrap();
                child.wait().unwrap();
            } else {
                assert_eq!(child.wait().unwrap().code(), Some(0));
            }
        }
    }
    for n in 0..WRITERS {
        place.run(&line(n, &served.url)).ok();
        let found = served
            .run(&place, &format!("export t{n} -o raw"))
            .ok()
            .text();
        assert!(found == wanted, "t{n}: each row once and in order");
    }
}

#[test]
fn a_server_answers_input_lines_when_they_arrive() {
    let place = prepared();
    let served = Served::new(&place, ":0", &[]);
    let mut child = place
        .weir()
        .args([
            "put",
            "t",
            "-",
            "--format",
            "jsonl",
            "-o",
            "jsonl",
            "--at",
            &served.url,
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for n in 0..3 {
        writeln!(input, "{{\"key\":\"k\",\"value\":{n}}}").unwrap();
        let verdict = lines.next().unwrap().unwrap();
        assert!(verdict.contains("\"effect\":\"VALID\""), "{verdict}");
    }
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_file_with_the_name_of_the_socket_is_kept_and_prevents_the_start() {
    let place = prepared();
    place.run("put t x --at data").ok();
    place.write("data/weir.sock", "mine");
    let done = place.run("serve --at data --http off --native :0").code(77);
    assert!(done.err.contains("not a socket"), "{}", done.err);
    assert_eq!(
        std::fs::read(place.path("data/weir.sock")).unwrap(),
        b"mine"
    );
}

#[test]
fn a_client_gets_the_owner_of_a_directory_and_can_use_its_socket() {
    use weir::{ConnectOptions, OpenOptions, StoreError, Weir, WeirError};
    let place = prepared();
    let (data, options) = (place.path("data"), OpenOptions::default());
    let connect = ConnectOptions::default();
    let served = Served::new(&place, "off", &[]);
    let locked = Weir::open(&data).unwrap_err();
    let WeirError::Store(StoreError::Locked { pid, socket, .. }) = &locked else {
        panic!("{locked}");
    };
    assert_eq!(*pid, served.child.id());
    assert_eq!(socket.as_deref(), Some(data.join("weir.sock").as_path()));
    let remote = Weir::open_or_connect(&data, &options, &connect).unwrap();
    remote.topic("t").unwrap().ensure().unwrap();
    // A write with a nonce needs a session, or the nonce would be lost.
    let put = weir::Operation::Put {
        key: b"",
        value: b"",
    };
    let client = weir::ClientId([1; 16]);
    let numbered = weir::Intention::new("t", put).under(client, 1);
    assert!(remote.propose(&[numbered]).is_err());
    assert_eq!(remote.session(client).try_next_nonce().unwrap(), 1);
    remote.close().unwrap();
    drop(served);
    // The remaining socket of the killed server has no listener.
    let local = Weir::open_or_connect(&data, &options, &connect).unwrap();
    assert!(local.local().is_some() && local.topic("t").unwrap().info().unwrap().live);
    let locked = Weir::open_or_connect(&data, &options, &connect).unwrap_err();
    let is_locked = matches!(locked, WeirError::Store(StoreError::Locked { .. }));
    assert!(is_locked, "{locked}");
    local.close().unwrap();
}

#[test]
fn a_bench_counts_the_requested_messages_and_reports_partial_results_when_interrupted() {
    let place = prepared();
    let served = Served::new(&place, ":0", &[]);
    for at in [served.url.as_str(), "data", "other"] {
        let lines = [
            "bench write -c 3 -m 100 --batch 7 --window 2 -t b",
            "bench read -c 2 -m 50 -t b",
            "bench read --single -c 2 -m 30 -t b",
            "bench tail -c 2 -m 40 -t c",
        ];
        // `data` is the store of that server, so this round needs a new topic.
        let topic = if at == "data" { "d" } else { "b" };
        for (line, messages) in lines.into_iter().zip([100, 50, 30, 80]) {
            let line = line.replace("-t b", &format!("-t {topic}"));
            let row = place.run(&format!("{line} --at {at} -o json")).ok().json();
            assert_eq!(row["messages"], messages, "{row}");
            assert_eq!(
                (&row["invalid"], &row["complete"]),
                (&0.into(), &true.into())
            );
            assert_eq!(row["durability"], "group");
            let us = |name: &str| row[name].as_u64().unwrap();
            let sorted = ["p50_us", "p90_us", "p99_us", "p999_us", "max_us"].map(us);
            assert!(sorted.is_sorted() && us("per_second") > 0, "{row}");
        }
        let info = place.run(&format!("topic show {topic} --at {at} -o json"));
        assert_eq!(info.ok().json()["last"], 101, "each message once");
    }
    let mut bench = place.weir();
    bench
        .args(["bench", "write", "-m", "1000000000", "-t", "long"])
        .args(["-o", "json", "--at", &served.url]);
    bench.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = bench.spawn().unwrap();
    // The measurement is running once some records are written.
    while served.run(&place, "get long 20").code != 0 {}
    let mut kill = place.command("/bin/sh");
    kill.args(["-c", &format!("kill -INT {}", child.id())]);
    assert!(kill.status().unwrap().success());
    let stopped = command_output(child.wait_with_output().unwrap()).code(130);
    let row = stopped.json();
    assert!(row["messages"].as_u64().unwrap() >= 18, "{row}");
    assert_eq!(row["complete"], false);
}

#[test]
fn a_query_of_a_directory_continues_when_a_server_starts_or_ends() {
    let place = Place::new();
    let put = |at: &str, n: u32| {
        let n = n.to_string();
        let words = ["put", "t", &n, "-q", "--at", at, "--lock-wait", "60s"];
        place.words(&words).ok();
    };
    put("data", 0);
    let mut command = place.weir();
    command.args("query -t t -f -n 7 -o raw --at data".split(' '));
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut shown = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || shown.next().unwrap().unwrap();
    assert_eq!(next(), "0");
    for n in [1, 3, 5] {
        let served = Served::new(&place, ":0", &[]);
        put(&served.url, n);
        assert_eq!(next(), n.to_string());
        drop(served);
        put("data", n + 1);
        assert_eq!(next(), (n + 1).to_string());
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_tail_of_a_directory_continues_when_a_server_starts_or_ends() {
    let place = prepared();
    place.run("put t here0 --at data").ok();
    let (mut child, mut shown) = follow(&place, &["t", "--at", "data", "-n", "7"]);
    assert_eq!(shown.next().unwrap().unwrap(), "here0");
    for round in 1..4 {
        let served = Served::new(&place, ":0", &[]);
        let put = |what: &str, at: &str| {
            let line = format!("put t {what}{round} --at {at} --lock-wait 60s");
            place.run(&line).ok();
        };
        put("there", &served.url);
        assert_eq!(shown.next().unwrap().unwrap(), format!("there{round}"));
        drop(served);
        put("here", "data");
        assert_eq!(shown.next().unwrap().unwrap(), format!("here{round}"));
    }
    assert!(shown.next().is_none(), "each once");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

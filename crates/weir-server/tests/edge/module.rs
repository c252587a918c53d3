//! Programs over HTTP: stored, described, and returned unchanged.

use std::path::Path;
use std::time::{Duration, Instant};

use weir::{Durability, Effect, Intention, OpenOptions, Operation, TopicOptions, Weir};
use weir_server::{Server, ServerConfig, Size};

use crate::client::{Client, Reply, TEST_TIMEOUT};
use crate::world::request;

/// A server whose store has an engine for programs.
struct ProgramServer {
    server: Server,
    weir: Weir,
    _directory: tempfile::TempDir,
}

impl ProgramServer {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = OpenOptions {
            durability: Durability::Memory,
            ..OpenOptions::default()
        };
        options.limits.value_bytes_max = 64 << 20;
        // `Weir` provides the engine.
        let weir = Weir::open_with(directory.path(), &options).unwrap();
        let mut config = ServerConfig::default();
        change(&mut config);
        config.native = None;
        config.http = Some(weir_server::Address("127.0.0.1:0".parse().unwrap()));
        let server = Server::start(config, weir.shared_store().unwrap()).unwrap();
        Self {
            server,
            weir,
            _directory: directory,
        }
    }

    /// Creates a topic with a program that has arguments of this many bytes.
    fn create(&self, topic: &str, args: usize) {
        let create = Operation::CreateProgram {
            options: &TopicOptions::default(),
            code: &prebuilt("nothing"),
            args: &vec![0; args],
        };
        self.execute(&[Intention::new(topic, create)]);
    }

    fn execute(&self, intentions: &[Intention<'_>]) {
        let store = self.weir.shared_store().unwrap();
        let outcomes = store.propose(intentions).unwrap().wait().unwrap();
        for outcome in outcomes.iter() {
            assert_eq!(outcome.commit().unwrap().effect, Effect::Valid);
        }
    }

    fn ask(&self, line: &str, fields: &str, body: &[u8]) -> Reply {
        let mut client = Client::connect(self.server.http_addr().unwrap());
        client.send(&request(line, fields, body));
        client.reply(line.starts_with("HEAD "))
    }
}

fn prebuilt(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/prebuilt");
    std::fs::read(folder.join(format!("{name}.wasm"))).unwrap()
}

#[test]
fn a_module_is_returned_unchanged() {
    let module = prebuilt("counter");
    let server = ProgramServer::new();
    let ask = |line: &str, fields: &str, body: &[u8]| server.ask(line, fields, body);
    let put = "PUT /v1/topics/sum/program";
    let wasm = "Content-Type: application/wasm";
    assert_eq!(ask(put, wasm, &module).status, 201);
    let get = "GET /v1/topics/sum/program";
    let description = ask(get, "", b"");
    let hash = description.json()["sha256"].as_str().unwrap().to_owned();
    assert_eq!(description.get("etag"), Some(&*format!("\"{hash}\"")));
    let code = ask(get, "Accept: application/wasm", b"");
    assert_eq!(
        (code.status, code.get("content-type")),
        (200, Some("application/wasm"))
    );
    assert!(code.body == module, "{} bytes", code.body.len());
    let condition = format!("Accept: application/wasm\nIf-None-Match: \"{hash}\"");
    assert_eq!(ask(get, &condition, b"").status, 304);
    let again = ask(get, &format!("If-None-Match: \"{hash}\""), b"");
    assert_eq!((again.status, again.body), (200, description.body));
    assert_eq!(ask(get, "Accept: text/html", b"").status, 406);
    // Also by its hash, while a topic uses it.
    let by_hash = format!("GET /v1/programs/{hash}");
    let code = ask(&by_hash, "", b"");
    assert_eq!(
        (code.status, code.get("content-type")),
        (200, Some("application/wasm"))
    );
    assert!(code.body == module, "{} bytes", code.body.len());
    assert!(code.get("cache-control").unwrap().contains("immutable"));
    let condition = format!("If-None-Match: \"{hash}\"");
    assert_eq!(ask(&by_hash, &condition, b"").status, 304);
    assert_eq!(ask(&by_hash, "Accept: text/html", b"").status, 406);
    assert_eq!(
        ask(
            &by_hash
                .to_uppercase()
                .replace("GET /V1/PROGRAMS", "GET /v1/programs"),
            "",
            b""
        )
        .status,
        400
    );
    let other = format!("GET /v1/programs/{}", "0".repeat(64));
    assert_eq!(ask(&other, "", b"").problem(), "not-found");
    // The program accepts eight bytes as a number, and rejects three bytes.
    let post = "POST /v1/topics/sum/events?key=n";
    let binary = "Content-Type: application/octet-stream";
    assert_eq!(ask(post, binary, &5_i64.to_be_bytes()).status, 201);
    assert_eq!(ask(post, binary, b"abc").problem(), "rejected");
}

#[test]
fn a_retry_of_a_put_succeeds_after_the_topic_was_destroyed() {
    let server = ProgramServer::new();
    let put = || {
        let fields = "Content-Type: application/wasm\nIdempotency-Key: \"k\"";
        server.ask("PUT /v1/topics/sum/program", fields, &prebuilt("counter"))
    };
    assert_eq!(put().status, 201);
    let destroyed = server.ask("DELETE /v1/topics/sum", "", b"");
    assert_eq!(destroyed.status, 200);
    let again = put();
    assert_eq!(again.status, 201, "{}", again.text());
    assert_eq!(again.get("weir-replayed"), Some("?1"));
    assert_eq!(again.get("location"), Some("/v1/topics/sum/program"));
    assert!(again.body.is_empty());
}

/// The store decides whether a topic exists, so a retry gets the first response.
#[test]
fn a_retry_of_a_creation_gets_201_while_the_topic_exists() {
    let server = ProgramServer::new();
    let put = |topic: &str, fields: &str| {
        let line = format!("PUT /v1/topics/{topic}/program");
        let fields = format!("Content-Type: application/wasm\n{fields}");
        server.ask(&line, &fields, &prebuilt("counter"))
    };
    for (topic, condition) in [("a", ""), ("b", "If-None-Match: *\n")] {
        let fields = format!("{condition}Idempotency-Key: \"k\"");
        assert_eq!(put(topic, &fields).status, 201);
        let again = put(topic, &fields);
        let result = (again.status, again.get("weir-replayed"));
        assert_eq!(result, (201, Some("?1")), "{topic}: {}", again.text());
    }
    let exists = put("b", "If-None-Match: *");
    assert_eq!((exists.status, &*exists.problem()), (412, "conflict"));
    let recreated = put("b", "Weir-Expect: incarnation=99");
    assert_eq!((recreated.status, &*recreated.problem()), (412, "conflict"));
    let absent = put("c", "If-Match: *");
    assert_eq!((absent.status, &*absent.problem()), (404, "no-topic"));
    let other = "0".repeat(64);
    for tags in [
        format!("If-Match: \"{other}\", \"{other}\""),
        format!("If-Match: \"{other}\"\nIf-Match: \"{other}\""),
        "If-Match:".to_owned(),
    ] {
        assert_eq!(put("b", &tags).status, 400, "{tags}");
    }
    let coded = put("b", &format!("If-Match: \"{other}-gzip\""));
    assert_eq!((coded.status, &*coded.problem()), (412, "conflict"));
}

/// The verdicts of a topic's program are counted by reason.
#[test]
fn metrics_count_the_verdicts_of_programs() {
    let server = ProgramServer::new();
    let deploy = |name: &str, module: &str| {
        let line = format!("PUT /v1/topics/{name}/program");
        let wasm = "Content-Type: application/wasm";
        assert_eq!(server.ask(&line, wasm, &prebuilt(module)).status, 201);
    };
    let series = |name: &str| {
        let page = server.ask("GET /metrics", "", b"");
        let mut lines = page.text().lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = value.unwrap_or_else(|| panic!("{name}"));
        value.parse::<u64>().unwrap()
    };
    assert_eq!(series("weir_programs"), 0);
    deploy("bad", "broken-as");
    deploy("quiet", "nothing");
    for value in ["fine", "fine", "assert", "more than sixteen bytes"] {
        server.ask("POST /v1/topics/bad/events", "", value.as_bytes());
    }
    assert_eq!(series("weir_programs"), 2);
    assert_eq!(series("weir_programs_left_out"), 0);
    let writes = |topic: &str, verdict: &str| {
        let (effect, reason) = verdict.split_once(' ').unwrap();
        let labels = format!("{{topic=\"{topic}\",effect=\"{effect}\",reason=\"{reason}\"}}");
        series(&format!("weir_program_writes_total{labels}"))
    };
    assert_eq!(writes("bad", "VALID "), 2);
    assert_eq!(writes("bad", "INVALID REJECTED"), 1);
    assert_eq!(writes("bad", "ERROR TRAP"), 1);
    assert_eq!(writes("bad", "ERROR OUT_OF_FUEL"), 0);
    assert_eq!(writes("quiet", "VALID "), 0);
    assert_eq!(series("weir_program_calls_total{topic=\"bad\"}"), 4);
    assert_eq!(series("weir_program_traps_total{topic=\"bad\"}"), 1);
    assert!(series("weir_program_fuel_total{topic=\"bad\"}") > 1000);
}

#[test]
fn a_retry_under_a_nonce_gets_201_while_the_topic_exists() {
    let server = ProgramServer::new();
    let put = || {
        let fields = "Content-Type: application/wasm\n\
            Weir-Client: 000102030405060708090a0b0c0d0e0f\nWeir-Nonce: 1";
        server.ask("PUT /v1/topics/sum/program", fields, &prebuilt("counter"))
    };
    assert_eq!(put().status, 201);
    let again = put();
    let result = (again.status, again.get("weir-replayed"));
    assert_eq!(result, (201, Some("?1")), "{}", again.text());
}

#[test]
fn a_key_is_refused_for_other_arguments_of_a_program() {
    let server = ProgramServer::new();
    let put = |args: &str| {
        let fields = format!(
            "Content-Type: application/wasm\nIdempotency-Key: \"k\"\nWeir-Program-Args: {args}"
        );
        server.ask("PUT /v1/topics/a/program", &fields, &prebuilt("nothing"))
    };
    assert_eq!(put("AQ==").status, 201);
    assert_eq!(put("AQ==").get("weir-replayed"), Some("?1"));
    assert_eq!(put("Ag==").problem(), "key-reused");
}

#[test]
fn a_page_of_topics_with_long_arguments_is_bounded() {
    let server = ProgramServer::new();
    for topic in ["a", "b", "c"] {
        server.create(topic, 700_000);
    }
    let names = |line: &str| {
        let reply = server.ask(line, "", b"");
        let json = reply.json();
        let topics = json["topics"].as_array().unwrap().iter();
        let names = topics.map(|topic| topic["name"].as_str().unwrap().to_owned());
        let next = reply.get("link").map(str::to_owned);
        (names.collect::<Vec<_>>(), next)
    };
    let (page, next) = names("GET /v1/topics");
    assert_eq!(page, ["a", "b"]);
    assert!(next.unwrap().contains("after=b"));
    assert_eq!(
        names("GET /v1/topics?after=b"),
        (vec!["c".to_owned()], None)
    );
}

#[test]
fn the_description_of_a_program_reserves_memory_before_its_arguments_are_copied() {
    const VALUE_BYTES: usize = 16 << 20;
    // With the unread value, the budget has 2 MiB.
    let server = ProgramServer::with(|config| {
        config.answers_budget = Some(Size(VALUE_BYTES + (2 << 20)));
        config.body_rate_after = Duration::from_mins(10);
        config.write_timeout = Duration::from_mins(10);
    });
    // The response alone would fit: it has 1.4 MB.
    server.create("program", 1 << 20);
    let (key, value) = (&b"large"[..], &vec![b'x'; VALUE_BYTES][..]);
    let options = &TopicOptions::default();
    let writes = [Operation::Create { options }, Operation::Put { key, value }];
    server.execute(&writes.map(|operation| Intention::new("t", operation)));
    let mut client = Client::connect(server.server.http_addr().unwrap());
    client.send(&request("GET /v1/topics/t/keys/large", "", b""));
    let head = client.head();
    assert_eq!(head.status, 200);
    let lines = ["GET /v1/topics/program", "GET /v1/topics/program/program"];
    for line in lines {
        assert_eq!(server.ask(line, "", b"").problem(), "busy", "{line}");
    }
    client.read_bytes(VALUE_BYTES);
    // The server frees the memory after it has sent the last bytes.
    let end = Instant::now() + TEST_TIMEOUT;
    for line in lines {
        let mut reply = server.ask(line, "", b"");
        while reply.status == 503 && Instant::now() < end {
            reply = server.ask(line, "", b"");
        }
        assert_eq!(reply.status, 200, "{line}: {}", reply.text());
    }
}

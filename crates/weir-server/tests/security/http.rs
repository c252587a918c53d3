//! Security of the HTTP port: bearer tokens, host names and rights, over TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConnection, StreamOwned};
use weir_server::Rate;
use weir_server::security::Token;

use crate::world::{Files, TEST_TIMEOUT, World, client, loopback};

fn world(rights: &[&str]) -> (World, Token) {
    let files = Files::new();
    files.certificate(&files.authority, &["localhost"]);
    let token = files.token("loader", rights);
    let world = files.start(|config| {
        config.http = Some(loopback());
        config.rate_bytes = Rate::Units(10_000);
    });
    (world, token)
}

/// Returns the whole response to one request.
fn ask(world: &World, line: &str, fields: &[&str], body: &str) -> String {
    ask_bytes(world, line, fields, body.as_bytes())
}

fn ask_bytes(world: &World, line: &str, fields: &[&str], body: &[u8]) -> String {
    ask_declared(world, line, fields, body, body.len() as u64)
}

/// As `ask_bytes`, with a declared length of the body.
fn ask_declared(world: &World, line: &str, fields: &[&str], body: &[u8], length: u64) -> String {
    let address = world.http.unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut config = client(&[&world.files.authority.pem], None);
    Arc::make_mut(&mut config).alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = "localhost".try_into().unwrap();
    let session = ClientConnection::new(config, name).unwrap();
    let mut stream = StreamOwned::new(session, socket);
    let fields: Vec<String> = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let fields = fields.concat();
    let host = format!("Host: localhost:{}", address.port());
    let request = format!(
        "{line} HTTP/1.1\r\n{host}\r\nContent-Length: {length}\r\nConnection: close\r\n{fields}\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    // A server may close without the close message of TLS.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).to_lowercase()
}

fn bearer(token: &Token) -> String {
    format!("Authorization: Bearer {}", token.expose())
}

const PUT: &str = "POST /v1/topics/t/events";
const JSON: &str = "Content-Type: application/json";

#[test]
fn a_bearer_token_grants_exactly_its_rights() {
    let (world, token) = world(&["put t"]);
    world.create("t");
    world.create("u");
    let own = bearer(&token);
    let answer = ask(&world, PUT, &[&own, JSON], "{\"n\":1}");
    assert!(answer.starts_with("http/1.1 20"), "{answer}");
    assert!(world.values("t").contains(&"{\"n\":1}".to_owned()));
    let other = ask(&world, "POST /v1/topics/u/events", &[&own, JSON], "{}");
    assert!(other.starts_with("http/1.1 403 "), "{other}");
    assert!(
        other.contains("\"right\":\"put\"") && other.contains("\"topic\":\"u\""),
        "{other}"
    );
    let read = ask(&world, "GET /v1/topics/t/events", &[&own], "");
    assert!(read.starts_with("http/1.1 403 "), "{read}");
    world.audited(&["\"denied\"", "\"put\"", "\"u\"", "loader"]);
}

#[test]
fn a_request_without_a_valid_token_gets_401_and_a_challenge() {
    let (world, token) = world(&["all **"]);
    world.create("t");
    let wrong = bearer(&Token::random().unwrap());
    let own = bearer(&token);
    for fields in [
        &[JSON][..],
        &[JSON, &wrong],
        &[JSON, "Authorization: Basic eDp5"],
        &[JSON, "Authorization: Bearer"],
    ] {
        let answer = ask(&world, PUT, fields, "{}");
        assert!(answer.starts_with("http/1.1 401 "), "{fields:?}: {answer}");
        assert!(answer.contains("\r\nwww-authenticate: bearer"), "{answer}");
    }
    // A token in the URL is refused, because URLs appear in logs of proxies.
    let line = format!("{PUT}?token={}", token.expose());
    let answer = ask(&world, &line, &[JSON], "{}");
    assert!(!answer.starts_with("http/1.1 2"), "{answer}");
    let twice = ask(&world, PUT, &[JSON, &own, &wrong], "{}");
    assert!(twice.starts_with("http/1.1 400 "), "{twice}");
    let health = ask(&world, "GET /healthz", &[], "");
    assert!(health.starts_with("http/1.1 200 "), "{health}");
    assert_eq!(world.values("t").len(), 1, "CREATE alone");
}

#[test]
fn a_foreign_host_or_origin_is_refused_for_every_principal() {
    let (world, token) = world(&["all **"]);
    world.create("t");
    let own = bearer(&token);
    let page = ask(
        &world,
        PUT,
        &[JSON, &own, "Origin: https://evil.example"],
        "{}",
    );
    assert!(page.starts_with("http/1.1 403 "), "{page}");
    // A page whose own host name resolves to this server (DNS rebinding).
    let absolute = "POST http://evil.example/v1/topics/t/events";
    let rebound = ask(&world, absolute, &[JSON, &own], "{}");
    assert!(!rebound.starts_with("http/1.1 2"), "{rebound}");
    assert_eq!(world.values("t").len(), 1, "CREATE alone");
}

#[test]
fn requests_over_the_rate_get_429_with_a_time_to_retry() {
    let (world, token) = world(&["all **"]);
    world.create("t");
    let own = bearer(&token);
    let large = format!("\"{}\"", "x".repeat(100_000));
    let first = ask(&world, PUT, &[JSON, &own], &large);
    assert!(
        first.starts_with("http/1.1 20"),
        "{}",
        &first[..200.min(first.len())]
    );
    let second = ask(&world, PUT, &[JSON, &own], "{}");
    assert!(second.starts_with("http/1.1 429 "), "{second}");
    assert!(second.contains("\r\nretry-after: "), "{second}");
}

/// The server does not read such a body. One request could lock out all clients of an address.
#[test]
fn a_body_over_the_limit_is_not_charged_to_the_rate_of_bytes() {
    let (world, token) = world(&["all **"]);
    world.create("t");
    let own = bearer(&token);
    let huge = 9_000_000_000_000_000_000;
    let refused = ask_declared(&world, PUT, &[JSON, &own], b"", huge);
    assert!(refused.starts_with("http/1.1 413 "), "{refused}");
    let unknown = ask_declared(&world, PUT, &[JSON], b"", huge);
    assert!(unknown.starts_with("http/1.1 401 "), "{unknown}");
    let next = ask(&world, PUT, &[JSON, &own], "{}");
    assert!(next.starts_with("http/1.1 201 "), "{next}");
}

/// The server does not read such a body. A few heads could lock out all clients of an address.
#[test]
fn the_body_of_a_denied_request_is_not_charged_to_the_rate_of_bytes() {
    let (world, token) = world(&["put t"]);
    world.create("t");
    world.create("u");
    let own = bearer(&token);
    // A hundred times the bytes of a second.
    let large = 1_000_000;
    let unknown = ask_declared(&world, PUT, &[JSON], b"", large);
    assert!(unknown.starts_with("http/1.1 401 "), "{unknown}");
    let other = "POST /v1/topics/u/events";
    let denied = ask_declared(&world, other, &[JSON, &own], b"", large);
    assert!(denied.starts_with("http/1.1 403 "), "{denied}");
    let next = ask(&world, PUT, &[JSON, &own], "{}");
    assert!(next.starts_with("http/1.1 201 "), "{next}");
}

#[test]
fn reads_of_the_status_and_the_metrics_are_not_recorded() {
    let (world, token) = world(&["admin"]);
    let own = bearer(&token);
    for line in ["GET /metrics", "GET /v1/status"] {
        let answer = ask(&world, line, &[&own], "");
        assert!(answer.starts_with("http/1.1 200 "), "{answer}");
    }
    // Records are written in the order of the actions.
    world.server.reload().unwrap();
    world.audited(&["reload"]);
    let values = world.values(weir_server::security::AUDIT_TOPIC);
    let is_read = |value: &String| value.contains("\"admin\"");
    assert!(!values.iter().any(is_read), "{values:#?}");
}

#[test]
fn metrics_count_denied_requests() {
    let (world, token) = world(&["admin"]);
    world.create("t");
    let own = bearer(&token);
    let wrong = bearer(&Token::random().unwrap());
    assert!(ask(&world, PUT, &[JSON, &own], "{}").starts_with("http/1.1 403 "));
    assert!(ask(&world, PUT, &[JSON, &wrong], "{}").starts_with("http/1.1 401 "));
    world.server.reload().unwrap();
    world.audited(&["reload"]);
    let metrics = ask(&world, "GET /metrics", &[&own], "");
    for line in [
        "weir_forbidden_total 1",
        "weir_unauthenticated_total 1",
        "weir_reloads_total 1",
        "weir_insecure{missing=\"tls\"} 0",
        "weir_audit_lost_total 0",
    ] {
        assert!(
            metrics.contains(&format!("\n{line}\n")),
            "{line}\n{metrics}"
        );
    }
    assert!(
        metrics.contains("\nweir_certificate_expires_seconds 25"),
        "{metrics}"
    );
}

#[test]
fn groups_need_their_right_and_those_of_the_dead_letter_topic() {
    let (world, token) = world(&["group t", "read u", "create,put t.dead"]);
    world.create("t");
    world.create("u");
    let own = bearer(&token);
    let ask = |line: &str, body: &str| ask(&world, line, &[&own, JSON], body);
    let assert_status = |answer: &str, status: &str| {
        let head = format!("http/1.1 {status} ");
        assert!(answer.starts_with(&head), "{answer}");
    };
    assert_status(&ask("PUT /v1/topics/t/groups/g", "{}"), "201");
    assert_status(&ask("GET /v1/topics/t/groups", ""), "200");
    assert_status(&ask("POST /v1/topics/t/groups/g/claim?member=a", ""), "200");
    assert_status(
        &ask("POST /v1/topics/t/groups/g/reset", "{\"to\":0}"),
        "200",
    );
    assert_status(&ask("PUT /v1/topics/u/groups/g", "{}"), "403");
    assert_status(&ask("GET /v1/topics/u/groups", ""), "403");
    assert_status(&ask("POST /v1/topics/u/groups/g/claim?member=a", ""), "403");
    let dead_letters = |topic: &str| format!("{{\"attempts_max\":1,\"dead_letters\":\"{topic}\"}}");
    assert_status(&ask("PUT /v1/topics/t/groups/h", &dead_letters("u")), "403");
    assert_status(
        &ask("PUT /v1/topics/t/groups/h", &dead_letters("t.dead")),
        "201",
    );
    assert_status(&ask("DELETE /v1/topics/t/groups/h", ""), "200");
}

#[test]
fn changes_of_options_need_the_right_to_create() {
    let (world, token) = world(&["put,delete,read t", "create u"]);
    world.create("t");
    world.create("u");
    let own = bearer(&token);
    let patch = |topic: &str| {
        let line = format!("PATCH /v1/topics/{topic}");
        let fields = [&own[..], "Content-Type: application/merge-patch+json"];
        ask(&world, &line, &fields, "{\"options\":{\"keys_max\":9}}")
    };
    let answer = patch("t");
    assert!(answer.starts_with("http/1.1 403 "), "{answer}");
    assert!(answer.contains("\"right\":\"create\""), "{answer}");
    let answer = patch("u");
    assert!(answer.starts_with("http/1.1 200 "), "{answer}");
}

#[test]
fn a_conflict_lists_records_only_with_the_right_to_read() {
    let (world, token) = world(&["put t", "put,read u"]);
    for topic in ["t", "u"] {
        world.create(topic);
        let own = bearer(&token);
        let ask = |condition: &str| {
            let line = format!("PUT /v1/topics/{topic}/keys/k");
            ask(
                &world,
                &line,
                &[&own, condition, "Prefer: conflicts=9"],
                "secret",
            )
        };
        assert!(ask("If-None-Match: *").starts_with("http/1.1 201 "));
        let late = ask("If-None-Match: *");
        assert!(late.starts_with("http/1.1 412 "), "{late}");
        assert_eq!(late.contains("secret"), topic == "u", "{late}");
    }
}

/// Every write of the port, with every right but its own, and with it. The rights equal those on
/// the native port.
#[test]
fn each_write_needs_the_rights_of_its_operations() {
    const RECORDS: &str = "POST /v1/topics/t.a/events?mode=records";
    const ATOMIC: &str = "POST /v1/topics/t.a/events?mode=records&atomic=true";
    const TXN: &str = "POST /v1/topics/t.a/transactions";
    let lines = "Content-Type: application/x-ndjson";
    let (put, delete) = (
        "{\"key\":\"k\",\"value\":1}",
        "{\"op\":\"delete\",\"key\":\"k\"}",
    );
    let both = &format!("{put}\n{delete}");
    let txn = |items: &[&str]| format!("{{\"operations\":[{}]}}", items.join(","));
    let (txn_put, txn_delete, txn_both) = (&txn(&[put]), &txn(&[delete]), &txn(&[put, delete]));
    let options = "{\"options\":{\"keys_max\":9}}";
    let patch = "Content-Type: application/merge-patch+json";
    let table: [(&str, &str, &str, &str); 16] = [
        ("create", "PUT /v1/topics/t.new", JSON, "{}"),
        ("create", "PATCH /v1/topics/t.a", patch, options),
        ("put", "POST /v1/topics/t.a/events", JSON, "1"),
        ("put", "PUT /v1/topics/t.a/keys/k", JSON, "1"),
        ("put", "POST /v1/topics/t.a/events", lines, "1\n2"),
        ("put", RECORDS, lines, put),
        ("put", ATOMIC, lines, put),
        ("put", TXN, JSON, txn_put),
        ("put,delete", RECORDS, lines, both),
        ("put,delete", ATOMIC, lines, both),
        ("put,delete", TXN, JSON, txn_both),
        ("delete", RECORDS, lines, delete),
        ("delete", ATOMIC, lines, delete),
        ("delete", TXN, JSON, txn_delete),
        ("delete", "DELETE /v1/topics/t.a/keys/k", JSON, ""),
        ("destroy", "DELETE /v1/topics/t.a", JSON, ""),
    ];
    let all = [
        "create", "destroy", "put", "delete", "read", "group", "program", "admin",
    ];
    let files = Files::new();
    files.certificate(&files.authority, &["localhost"]);
    let own: Vec<Token> = table
        .iter()
        .map(|(rights, ..)| files.token("own", &[&format!("{rights} t.*")]))
        .collect();
    let without: Vec<(&str, Token)> = ["create", "put", "delete", "destroy"]
        .iter()
        .map(|right| {
            let others = all.iter().filter(|other| *other != right);
            let others = others.copied().collect::<Vec<_>>().join(",");
            (*right, files.token("other", &[&format!("{others} **")]))
        })
        .collect();
    let world = files.start(|config| config.http = Some(loopback()));
    world.create("t.a");
    for ((rights, line, kind, body), own) in table.iter().zip(&own) {
        for (right, token) in &without {
            if rights.split(',').all(|needed| needed != *right) {
                continue;
            }
            let before = world.store.topic("t.a").unwrap().last;
            let denied = ask(&world, line, &[&bearer(token), kind], body);
            // A batch that has started reports the denial; items after it are not written.
            assert!(denied.contains("\"right\":"), "{line} {body}: {denied}");
            assert!(
                denied.starts_with("http/1.1 403 "),
                "{line} {body}: {denied}"
            );
            let after = world.store.topic("t.a").unwrap().last;
            let most = u64::from(*line == RECORDS && *rights == "put,delete");
            assert!(after.0 - before.0 <= most, "{line} {body} without {right}");
        }
        let done = ask(&world, line, &[&bearer(own), kind], body);
        assert!(done.starts_with("http/1.1 20"), "{line} {body}: {done}");
    }
}

#[test]
fn the_right_to_set_programs_does_not_create_topics() {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/prebuilt/counter.wasm");
    let module = std::fs::read(module).unwrap();
    let files = Files::new();
    files.certificate(&files.authority, &["localhost"]);
    let (only, both) = (
        files.token("only", &["program **"]),
        files.token("both", &["create,program **"]),
    );
    let folder = files.path("store");
    let options = weir::OpenOptions {
        durability: weir::Durability::Memory,
        ..weir::OpenOptions::default()
    };
    // `Weir` provides the engine.
    let weir = weir::Weir::open_with(&folder, &options).unwrap();
    let world = files.serve(weir.shared_store().unwrap(), |config| {
        config.http = Some(loopback());
    });
    let wasm = "Content-Type: application/wasm";
    let put = |token: &Token, topic: &str| {
        let line = format!("PUT /v1/topics/{topic}/program");
        ask_bytes(&world, &line, &[&bearer(token), wasm], &module)
    };
    let denied = put(&only, "new");
    assert!(denied.starts_with("http/1.1 403 "), "{denied}");
    assert!(denied.contains("\"right\":\"create\""), "{denied}");
    assert!(world.store.topic("new").is_none());
    let created = put(&both, "new");
    assert!(created.starts_with("http/1.1 201 "), "{created}");
    let replaced = put(&only, "new");
    assert!(replaced.starts_with("http/1.1 200 "), "{replaced}");
}

/// `read **` does not include the topics of the store.
#[test]
fn the_audit_log_needs_its_own_right_and_is_read_only() {
    let (world, token) = world(&["all **", "all .weir.**"]);
    let plain = world.files.token("plain", &["all **"]);
    world.server.reload().unwrap();
    world.audited(&["reload"]);
    let (may, may_not) = (bearer(&token), bearer(&plain));
    let read = "GET /v1/topics/.weir.audit/events?limit=100";
    let answer = ask(&world, read, &[&may], "");
    assert!(answer.starts_with("http/1.1 200 "), "{answer}");
    assert!(answer.contains("reload"), "{answer}");
    let answer = ask(&world, read, &[&may_not], "");
    assert!(answer.starts_with("http/1.1 403 "), "{answer}");
    for line in [
        "POST /v1/topics/.weir.audit/events",
        "PUT /v1/topics/.weir.other",
        "DELETE /v1/topics/.weir.audit",
    ] {
        let answer = ask(&world, line, &[&may, JSON], "{}");
        assert!(answer.starts_with("http/1.1 400 "), "{line}: {answer}");
        assert!(answer.contains("\"code\":321"), "{line}: {answer}");
    }
}

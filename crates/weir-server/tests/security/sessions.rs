//! Sessions belong to their principal, and each principal has a maximum number of them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use weir::Weir;
use weir_core::{ClientId, Intention, Operation};
use weir_server::security::Token;

use crate::hold::BlockedThread;
use crate::peer::{Peer, assert_line};
use crate::world::{Files, TEST_TIMEOUT, World, loopback};

const CLIENT: &str = "11111111111111111111111111111111";

/// Sends HELLO for a session.
fn hello(world: &World, token: &Token, client: &str, variables: &str) -> (Peer, String) {
    let mut peer = world.plain();
    let token = token.expose();
    let answer = peer.ask(&format!(
        ":_token\t{token}\n:_client\t{client}\n{variables}_request_hello"
    ));
    (peer, answer)
}

/// Returns one variable of a packet.
fn variable<'a>(packet: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = packet.lines().filter_map(|line| line.split_once('\t'));
    // If the value is long, its length follows the name.
    let named = |head: &str| head.split(' ').next() == Some(&format!(":{name}"));
    lines.find_map(|(head, value)| named(head).then_some(value))
}

/// Returns one header field of a response.
fn field(answer: &str, name: &str) -> Option<String> {
    let line = |line: &str| line.strip_prefix(&format!("{name}: ")).map(str::to_owned);
    answer.split("\r\n").find_map(line)
}

/// Returns the whole response to one request without TLS, in lower case.
fn ask(world: &World, line: &str, fields: &[String], body: &str) -> String {
    let address = world.http.unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let fields: Vec<String> = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let (fields, length) = (fields.concat(), body.len());
    let request = format!(
        "{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{fields}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.to_lowercase()
}

fn put(world: &World, token: &Token, client: &str, nonce: u64, body: &str) -> String {
    let fields = [
        format!("Authorization: Bearer {}", token.expose()),
        format!("Weir-Client: {client}"),
        format!("Weir-Nonce: {nonce}"),
    ];
    ask(world, "POST /v1/topics/t/events", &fields, body)
}

#[test]
fn a_client_id_gives_no_access_to_the_session_of_another_principal() {
    let files = Files::new();
    let [a, b] = ["a", "b"].map(|name| files.token(name, &["all **"]));
    let world = files.start(|_| {});
    world.create("t");
    let (mut peer_of_a, opened) = hello(&world, &a, CLIENT, "");
    assert_line(&opened, "_notice_hello");
    let (mut peer_of_b, opened) = hello(&world, &b, CLIENT, "");
    // Neither connection ends the session of the other or sees its nonces.
    assert_line(&opened, "_notice_hello");
    assert_eq!(variable(&opened, "_next"), Some("1"));
    let first = peer_of_b.put("t", "of b");
    assert!(first.contains("\n1 1 VALID 0 "), "{first}");
    let first = peer_of_a.put("t", "of a");
    assert!(first.contains("\n1 1 VALID 0 "), "{first}");
    drop(peer_of_a);
    // A principal that resumes gets the outcome of its own write.
    let (mut again, opened) = hello(&world, &a, CLIENT, ":_resume\t1\n");
    assert_eq!(variable(&opened, "_next"), Some("2"), "{opened}");
    let stored = again.read().expect("the stored outcome");
    assert!(stored.contains("\n1 1 VALID* 0 "), "{stored}");
    assert_eq!(world.values("t")[1..], ["of b", "of a"]);
}

#[test]
fn a_principal_keeps_its_sessions_over_both_ports_and_tokens() {
    let files = Files::new();
    let [old, new] = [(); 2].map(|()| files.token("a", &["all **"]));
    let b = files.token("b", &["all **"]);
    let world = files.start(|config| config.http = Some(loopback()));
    world.create("t");
    let (mut native, opened) = hello(&world, &old, CLIENT, "");
    assert_line(&native.put("t", "1"), "_notice_committed");
    let answer = put(&world, &new, CLIENT, 2, "2");
    assert!(answer.starts_with("http/1.1 201 "), "{answer}");
    let again = put(&world, &old, CLIENT, 2, "2");
    assert!(again.contains("\r\nweir-replayed: ?1\r\n"), "{again}");
    let other = put(&world, &b, CLIENT, 2, "2");
    assert!(other.starts_with("http/1.1 410 "), "{other}");
    // Readers see one id for both ports, and the writer gets it too.
    let shown = variable(&opened, "_client").unwrap_or_else(|| panic!("{opened}"));
    assert_eq!(field(&answer, "weir-client").as_deref(), Some(shown));
    assert_ne!(shown, CLIENT);
    for offset in [2, 3] {
        let bearer = format!("Authorization: Bearer {}", b.expose());
        let line = format!("GET /v1/topics/t/events/{offset}");
        let record = ask(&world, &line, &[bearer], "");
        assert_eq!(field(&record, "weir-client").as_deref(), Some(shown));
    }
}

#[test]
fn a_session_from_before_the_identities_is_not_executed_again() {
    let files = Files::new();
    let store = files.store();
    let world = files.serve(store, |config| {
        config.http = Some(loopback());
        config.identities = None;
    });
    world.create("t");
    let mut peer = world.plain();
    assert_line(
        &peer.ask(&format!(":_client\t{CLIENT}\n_request_hello")),
        "_notice_hello",
    );
    assert_line(&peer.put("t", "1"), "_notice_committed");
    drop(peer);
    let World {
        server,
        files,
        store,
        ..
    } = world;
    server.drain();
    server.wait().unwrap();
    let a = files.token("a", &["all **"]);
    let world = files.serve(store, |config| config.http = Some(loopback()));
    let (_, refused) = hello(&world, &a, CLIENT, ":_resume\t1\n");
    assert_line(&refused, "_error_session_expired");
    let answer = put(&world, &a, CLIENT, 1, "1");
    assert!(answer.starts_with("http/1.1 410 "), "{answer}");
    assert_eq!(world.values("t").len(), 2);
    // Without writes in flight, the client continues with a new session.
    let (mut peer, opened) = hello(&world, &a, CLIENT, "");
    assert_eq!(variable(&opened, "_next"), Some("1"));
    assert_line(&peer.put("t", "2"), "_notice_committed");
    assert_eq!(world.store.last_nonce(ClientId([0x11; 16])), 1);
}

#[test]
fn the_unix_socket_uses_the_sessions_without_a_principal() {
    let files = Files::new();
    files.token("a", &["all **"]);
    let socket = files.path("weir.sock");
    let world = files.start(|config| config.socket = Some(socket.clone()));
    world.create("t");
    let client = ClientId([0x11; 16]);
    let local = Weir::connect(&format!("unix:{}", socket.display())).unwrap();
    let put = Operation::Put {
        key: b"",
        value: b"1",
    };
    let mut session = local.session(client);
    session.execute(&[Intention::new("t", put)]).unwrap();
    assert_eq!(world.store.last_nonce(client), 1);
}

#[test]
fn the_number_of_sessions_per_principal_is_limited() {
    let files = Files::new();
    let [a, b] = ["a", "b"].map(|name| files.token(name, &["all **"]));
    let world = files.start(|config| {
        config.http = Some(loopback());
        config.sessions_per_principal_max = 2;
    });
    world.create("t");
    let id = |n: u8| format!("{n:032x}");
    // A session without a write is not counted.
    let (_, opened) = hello(&world, &a, &id(9), "");
    assert_line(&opened, "_notice_hello");
    for n in 1..=2 {
        let answer = put(&world, &a, &id(n), 1, "x");
        assert!(answer.starts_with("http/1.1 201 "), "{answer}");
    }
    let full = put(&world, &a, &id(3), 1, "x");
    assert!(full.starts_with("http/1.1 503 "), "{full}");
    assert!(field(&full, "retry-after").is_some(), "{full}");
    assert!(full.contains(r#""limit":2"#), "{full}");
    let (_, full) = hello(&world, &a, &id(4), "");
    assert_line(&full, "_failure_busy");
    assert_eq!(variable(&full, "_limit"), Some("2"), "{full}");
    assert!(variable(&full, "_retry_ms").is_some(), "{full}");
    // A batch with an idempotency key also needs a session.
    let fields = [
        format!("Authorization: Bearer {}", a.expose()),
        "Idempotency-Key: \"k\"".to_owned(),
        "Content-Type: application/x-ndjson".to_owned(),
    ];
    let batch = ask(&world, "POST /v1/topics/t/events", &fields, "1\n2\n");
    assert!(batch.starts_with("http/1.1 503 "), "{batch}");
    // Existing sessions continue, as do those of other principals.
    let answer = put(&world, &a, &id(2), 2, "x");
    assert!(answer.starts_with("http/1.1 201 "), "{answer}");
    let answer = put(&world, &b, &id(3), 1, "x");
    assert!(answer.starts_with("http/1.1 201 "), "{answer}");
    assert_eq!(world.store.sessions().0, 3);
}

#[test]
fn a_session_counts_until_the_verdict_of_its_write() {
    let files = Files::new();
    let a = files.token("a", &["all **"]);
    let world = files.start(|config| {
        config.http = Some(loopback());
        config.sessions_per_principal_max = 1;
        config.store_timeout = Duration::from_millis(100);
    });
    world.create("t");
    let _blocked = BlockedThread::new(&world.store, "t");
    let ask = |client: char| {
        let fields = [
            format!("Authorization: Bearer {}", a.expose()),
            format!("Weir-Client: {}", client.to_string().repeat(32)),
            "Weir-Nonce: 1".to_owned(),
        ];
        let body = r#"{"operations":[{"op":"put","key":"a","value":1}]}"#;
        ask(&world, "POST /v1/topics/t/transactions", &fields, body)
    };
    // The write is still in the queue, although the request has ended.
    let timed_out = ask('1');
    assert!(timed_out.starts_with("http/1.1 504 "), "{timed_out}");
    let full = ask('2');
    assert!(full.starts_with("http/1.1 503 "), "{full}");
}

#[test]
fn a_session_of_an_ended_connection_counts_until_the_verdict_of_its_write() {
    let files = Files::new();
    let a = files.token("a", &["all **"]);
    let world = files.start(|config| {
        config.http = Some(loopback());
        config.sessions_per_principal_max = 1;
    });
    world.create("t");
    let _blocked = BlockedThread::new(&world.store, "t");
    let mut stream = TcpStream::connect(world.native).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let token = a.expose();
    let hello_and_put = format!(
        "|\n\n:_token\t{token}\n:_client\t{CLIENT}\n:_received\t1\n_request_hello\n|\n\n\
         :_topic\tt\n_request_put\nx\n|\n"
    );
    stream.write_all(hello_and_put.as_bytes()).unwrap();
    let mut unread = [0; 4096];
    let has_received = |bytes: &[u8]| bytes.windows(16).any(|part| part == b"_notice_received");
    loop {
        let count = stream.peek(&mut unread).unwrap();
        if has_received(&unread[..count]) {
            break;
        }
    }
    // The client does not read the responses, so closing the connection resets it.
    drop(stream);
    let fields = [format!("Authorization: Bearer {token}")];
    let end = Instant::now() + TEST_TIMEOUT;
    while !ask(&world, "GET /metrics", &fields, "").contains("\nweir_native_connections 0\n") {
        assert!(Instant::now() < end, "the connection has not ended");
    }
    // The write is still in the queue.
    let (_, full) = hello(&world, &a, &"2".repeat(32), "");
    assert_line(&full, "_failure_busy");
}

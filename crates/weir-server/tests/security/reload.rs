//! Files that change while the server serves.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use weir_server::security::{IdentitiesFile, Token, now_ms};

use crate::peer::{Peer, assert_line};
use crate::world::{Authority, Files, TEST_TIMEOUT, client, loopback};

#[test]
fn a_revoked_token_is_refused_on_open_connections() {
    let files = Files::new();
    let token = files.token("a", &["all **"]);
    let world = files.start(|_| {});
    world.create("t");
    let mut writer = world.plain();
    assert_line(&writer.hello(token.expose()), "_notice_hello");
    assert_line(&writer.put("t", "1"), "_notice_committed");
    let mut listener = world.plain();
    assert_line(&listener.hello(token.expose()), "_notice_hello");
    listener.send(b":_tag\tl\n\n:_topic\tt\n:_after\ttail\n:_follow\t1\n:_bytes\t9999\n:_records\t99\n_request_listen\n|\n");
    assert_line(&listener.read().unwrap(), "_notice_listen");

    let path = world.files.path("identities.toml");
    let file = IdentitiesFile::read(&path).unwrap();
    file.without_token(token.id(), now_ms())
        .unwrap()
        .write()
        .unwrap();
    world.server.reload().unwrap();
    assert_line(&writer.put("t", "2"), "_error_unauthenticated");
    // A record that the listener must not receive.
    world.create("u");
    let put = weir_core::Operation::Put {
        key: &[],
        value: b"secret",
    };
    let put = weir_core::Intention::new("t", put);
    world.store.propose(&[put]).unwrap().wait().unwrap();
    let mut answers = String::new();
    while let Some(answer) = listener.read() {
        answers += &answer;
    }
    assert_line(&answers, "_failure_draining");
    assert_line(&answers, "_error_unauthenticated");
    assert!(!answers.contains("secret"), "{answers}");
}

#[test]
fn a_revoked_token_is_refused_at_the_end_of_a_long_poll() {
    let files = Files::new();
    let owner = files.token("owner", &["all **"]);
    let reader = files.token("reader", &["read t"]);
    let world = files.start(|config| config.http = Some(loopback()));
    world.create("t");
    let send = |token: &Token, target: &str| {
        let mut stream = TcpStream::connect(world.http.unwrap()).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let token = token.expose();
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\nPrefer: wait=60\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let answer = |mut stream: TcpStream| {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let targets = [
        "/v1/topics/t/events?after=1",
        "/ds/t?offset=now&live=long-poll",
    ];
    let polls = targets.map(|target| send(&reader, target));
    let end = Instant::now() + TEST_TIMEOUT;
    while !answer(send(&owner, "/metrics")).contains("kind=\"long-poll\"} 2") {
        assert!(Instant::now() < end, "the polls do not wait");
    }
    let path = world.files.path("identities.toml");
    let file = IdentitiesFile::read(&path).unwrap();
    let file = file.without_token(reader.id(), now_ms()).unwrap();
    file.write().unwrap();
    world.server.reload().unwrap();
    let put = weir_core::Operation::Put {
        key: &[],
        value: b"secret",
    };
    let put = weir_core::Intention::new("t", put);
    world.store.propose(&[put]).unwrap().wait().unwrap();
    for poll in polls {
        let answer = answer(poll);
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        assert!(!answer.contains("secret"), "{answer}");
    }
}

#[test]
fn a_revoked_token_is_refused_at_the_end_of_a_slow_body() {
    let files = Files::new();
    let token = files.token("slow", &["all **"]);
    let world = files.start(|config| config.http = Some(loopback()));
    world.create("t");
    let send = |line: &str| {
        let mut stream = TcpStream::connect(world.http.unwrap()).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let token = token.expose();
        let request = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\
             Content-Type: application/json\r\nExpect: 100-continue\r\n\
             Authorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        // The server has checked the right, and waits for the body.
        let mut answer = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
        stream.read_exact(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 100 "), "{line}");
        stream
    };
    let lines = [
        "PUT /v1/topics/new",
        "DELETE /v1/topics/t",
        "POST /ds/t",
        "GET /v1/topics/t/events",
        "GET /v1/status",
        "POST /v1/compact",
    ];
    let streams = lines.map(send);
    let path = world.files.path("identities.toml");
    let file = IdentitiesFile::read(&path).unwrap();
    let file = file.without_token(token.id(), now_ms()).unwrap();
    file.write().unwrap();
    world.server.reload().unwrap();
    for (line, mut stream) in lines.into_iter().zip(streams) {
        stream.write_all(b"{}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 401 "), "{line}: {answer}");
    }
    assert!(world.store.topic("new").is_none());
    assert_eq!(world.values("t").len(), 1, "CREATE alone");
}

#[test]
fn an_invalid_file_changes_nothing_and_is_reported() {
    let files = Files::new();
    files.certificate(&files.authority, &["localhost"]);
    let token = files.token("a", &["all **"]);
    let world = files.start(|_| {});
    let good = std::fs::read_to_string(world.files.path("identities.toml")).unwrap();

    // The new identities are valid, but the new certificate is not, so neither applies. The
    // certificate changes first, as the server may check its files between the two.
    world.files.write("server.pem", "not a certificate");
    let text = format!("{good}\n[[certificate]]\nname = \"x\"\n");
    world
        .files
        .write("identities.toml", &text.replace("all **", "read **"));
    let error = world.server.reload().unwrap_err().to_string();
    assert!(error.contains("server.pem"), "{error}");
    world.audited(&["\"failed\"", "reload", "server.pem"]);
    let mut peer = world.secure();
    assert_line(&peer.hello(token.expose()), "_notice_hello");
    assert_line(&peer.ask("_request_status"), "_data_status");

    world
        .files
        .certificate(&world.files.authority, &["localhost"]);
    world
        .files
        .write("identities.toml", &good.replace("[[token]]", "[[tokens]]"));
    let error = world.server.reload().unwrap_err().to_string();
    assert!(
        error.contains("identities.toml:1: unknown field"),
        "{error}"
    );
    assert_line(&world.secure().hello(token.expose()), "_notice_hello");

    world
        .files
        .write("identities.toml", &good.replace("all **", "read **"));
    world.server.reload().unwrap();
    assert_line(&peer.ask("_request_status"), "_error_forbidden");
}

#[test]
fn a_changed_file_is_detected() {
    let files = Files::new();
    files.token("a", &[]);
    let world = files.start(|_| {});
    let token = world.files.token("later", &["all **"]);
    world.audited(&["\"allowed\"", "reload"]);
    assert_line(&world.plain().hello(token.expose()), "_notice_hello");
}

#[test]
fn certificates_change_under_load_without_breaking_connections() {
    let files = Files::new();
    files.certificate(&files.authority, &["localhost"]);
    let world = Arc::new(files.start(|_| {}));
    world.create("t");
    let (end, written) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let writers: Vec<_> = (0..3)
        .map(|_| {
            let (end, written) = (Arc::clone(&end), Arc::clone(&written));
            let mut peer = world.secure();
            std::thread::spawn(move || {
                assert_line(&peer.hello(""), "_notice_hello");
                while !end.load(Ordering::Relaxed) {
                    assert_line(&peer.put("t", "x"), "_notice_committed");
                    written.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let progress = |from: u64| {
        while written.load(Ordering::Relaxed) < from + 20 {
            assert!(writers.iter().all(|writer| !writer.is_finished()));
            std::thread::yield_now();
        }
    };
    let mut authority = Authority::new("next");
    for round in 0..5 {
        world.files.certificate(&authority, &["localhost"]);
        world.server.reload().unwrap();
        // The new certificate is served at once, and the old one no longer.
        let config = client(&[&authority.pem], None);
        let mut peer = Peer::secure(world.native, "localhost", config).unwrap();
        assert_line(&peer.hello(""), "_notice_hello");
        let old = client(&[&world.files.authority.pem], None);
        assert!(Peer::secure(world.native, "localhost", old).is_err());
        progress(written.load(Ordering::Relaxed));
        authority = Authority::new(&format!("round {round}"));
    }
    end.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.join().unwrap();
    }
    let count = written.load(Ordering::Relaxed);
    assert_eq!(
        world.values("t").len() as u64,
        count + 1,
        "CREATE and every acknowledged put"
    );
}

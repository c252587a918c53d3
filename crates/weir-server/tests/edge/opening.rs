//! A server whose store is not open yet.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::Request;
use weir_server::{Opening, Server, ServerConfig};
use weir_store::Store;

use crate::client::{Client, Reply, TEST_TIMEOUT};
use crate::world::{options, request};

/// A server that waits for its store, whose open has this progress.
fn opening(done: &Arc<AtomicU64>) -> Opening {
    let mut config = ServerConfig::default();
    for (name, value) in [("http", ":0"), ("native", ":0"), ("threads", "1")] {
        let key = ServerConfig::KEYS.iter().find(|key| key.name == name);
        (key.expect(name).set)(&mut config, value).unwrap();
    }
    let done = Arc::clone(done);
    let bound = Server::bind(config).unwrap();
    bound.open(move || done.load(Ordering::Relaxed)).unwrap()
}

fn ask(address: SocketAddr, line: &str) -> Reply {
    let mut client = Client::connect(address);
    client.send(&request(line, "", b""));
    client.reply(line.starts_with("HEAD "))
}

#[test]
fn every_path_except_liveness_returns_503_with_the_progress() {
    let done = Arc::new(AtomicU64::new(42));
    let server = opening(&done);
    let address = server.http_addr().unwrap();
    for line in [
        "GET /v1/topics",
        "POST /v1/topics/t/events",
        "GET /readyz",
        "GET /metrics",
        "GET /",
    ] {
        let reply = ask(address, line);
        assert_eq!(reply.status, 503, "{line}: {reply:?}");
        assert_eq!(reply.get("retry-after"), Some("1"), "{reply:?}");
        assert_eq!(reply.get("content-type"), Some("application/problem+json"));
        assert_eq!(reply.problem(), "opening");
        assert_eq!(reply.json()["code"], 323);
        assert_eq!(reply.json()["percent_done"], 42);
    }
    assert_eq!(ask(address, "HEAD /v1/topics").status, 503);
    assert_eq!(ask(address, "GET /healthz").status, 200);
    // The percentage stays below 100 until the store is open.
    done.store(100, Ordering::Relaxed);
    assert_eq!(ask(address, "GET /").json()["percent_done"], 99);

    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(directory.path(), &options()).unwrap());
    let server = server.start(store).unwrap();
    assert_eq!(server.http_addr(), Some(address));
    assert_eq!(ask(address, "GET /readyz").status, 200);
    assert_eq!(ask(address, "PUT /v1/topics/t").status, 201);
}

#[test]
fn silent_connections_do_not_block_liveness_checks() {
    let server = opening(&Arc::new(AtomicU64::new(7)));
    let address = server.http_addr().unwrap();
    // More than the maximum number of connections, each of which would stay for ten seconds.
    let silent: Vec<_> = (0..300)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    assert_eq!(ask(address, "GET /healthz").status, 200);
    // The oldest of them was closed for the new connection.
    let mut oldest = &silent[0];
    oldest.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    assert!(matches!(oldest.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn a_native_client_is_refused_with_a_retryable_code() {
    let server = opening(&Arc::new(AtomicU64::new(7)));
    let address = server.native_addr().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream.write_all(b":_weir\thello\n_hello\n|\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("_failure_opening"), "{answer}");
    assert!(answer.contains("7 % done"), "{answer}");
}

#[tokio::test]
async fn http2_requests_are_answered() {
    let server = opening(&Arc::new(AtomicU64::new(7)));
    let address = server.http_addr().unwrap();
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let (requests, connection) = h2::client::handshake(socket).await.unwrap();
    let connection = tokio::spawn(connection);
    for (path, status) in [("/v1/topics", 503), ("/healthz", 200)] {
        let mut requests = requests.clone().ready().await.unwrap();
        let request = Request::get(format!("http://localhost{path}"));
        let request = request.body(()).unwrap();
        let (response, _) = requests.send_request(request, true).unwrap();
        let response = tokio::time::timeout(TEST_TIMEOUT, response).await.unwrap();
        assert_eq!(response.unwrap().status(), status, "{path}");
    }
    drop(server);
    // The connection ends with the server.
    drop(
        tokio::time::timeout(TEST_TIMEOUT, connection)
            .await
            .unwrap(),
    );
}

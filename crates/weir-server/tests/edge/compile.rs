//! Modules that take long to compile, on a server with one thread. Such a compilation blocks no
//! other request.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use hyper::Request;
use tokio::net::TcpStream;
use weir_core::{CodeHash, Program, ProgramHost, Refusal, Setup};
use weir_server::{Server, ServerConfig};
use weir_store::{OpenOptions, Store};

use crate::client::{Client, TEST_TIMEOUT};
use crate::world::{options, request};

/// An engine that reports its start, and waits for a signal.
#[derive(Debug)]
struct Slow {
    started: Mutex<Sender<()>>,
    finish: Mutex<Receiver<()>>,
}

impl ProgramHost for Slow {
    fn hash(&self, _: &[u8]) -> CodeHash {
        CodeHash([7; 32])
    }

    fn admit(&self, _: &[u8], _: &Setup) -> Result<Box<dyn Program>, Refusal> {
        let _ = self.started.lock().unwrap().send(());
        let _ = self.finish.lock().unwrap().recv();
        Err(Refusal::Bad("the test engine has no programs".to_owned()))
    }

    fn fingerprint(&self) -> String {
        "slow".to_owned()
    }
}

/// A server with one thread, whose engine is slow.
struct SlowServer {
    server: Server,
    /// Receives a message when a compilation starts.
    started: Receiver<()>,
    /// Dropping it ends all compilations.
    finish: Sender<()>,
    _directory: tempfile::TempDir,
}

impl SlowServer {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (start_sender, started) = channel();
        let (finish, finish_receiver) = channel();
        let host = Slow {
            started: Mutex::new(start_sender),
            finish: Mutex::new(finish_receiver),
        };
        let options = OpenOptions {
            host: Some(Arc::new(host)),
            ..options()
        };
        let store = Arc::new(Store::open(directory.path(), &options).unwrap());
        let mut config = ServerConfig::default();
        config.native = None;
        config.http = Some("127.0.0.1:0".parse().unwrap());
        config.threads = 1;
        Self {
            server: Server::start(config, store).unwrap(),
            started,
            finish,
            _directory: directory,
        }
    }

    fn client(&self) -> Client {
        Client::connect(self.server.http_addr().unwrap())
    }

    /// Sends a PUT of a module over HTTP/2, and cancels it while the module is compiled.
    async fn cancel_during_compilation(&self) {
        let socket = TcpStream::connect(self.server.http_addr().unwrap()).await;
        let handshake = h2::client::handshake(socket.unwrap()).await;
        let (requests, connection) = handshake.unwrap();
        tokio::spawn(connection);
        let mut requests = requests.ready().await.unwrap();
        let put = Request::put("http://localhost/v1/topics/t/program")
            .header("content-type", "application/wasm")
            .header("idempotency-key", "\"k\"");
        let (response, mut body) = requests.send_request(put.body(()).unwrap(), false).unwrap();
        body.send_data("module".into(), true).unwrap();
        self.started.recv_timeout(TEST_TIMEOUT).unwrap();
        // Resets the stream.
        drop((response, body));
        // The server processes frames in order.
        for _ in 0..2 {
            let get = Request::get("http://localhost/healthz").body(()).unwrap();
            requests = requests.ready().await.unwrap();
            let (response, _) = requests.send_request(get, true).unwrap();
            assert_eq!(response.await.unwrap().status(), 200);
        }
    }
}

const FIELDS: &str = "Content-Type: application/wasm";

#[test]
fn a_compilation_blocks_no_other_request() {
    let slow = SlowServer::new();
    let mut compiling = slow.client();
    compiling.send(&request("PUT /v1/topics/t/program", FIELDS, b"module"));
    slow.started.recv().unwrap();
    // If this request waits, every request waits.
    let mut other = slow.client();
    other.send(&request("GET /healthz", "", b""));
    let healthy = other.stream.peek(&mut [0]);
    drop(slow.finish);
    assert_eq!(healthy.unwrap(), 1);
    assert_eq!(compiling.reply(false).status, 422);
}

#[test]
fn an_idempotency_key_is_in_flight_during_a_canceled_compilation() {
    let slow = SlowServer::new();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(slow.cancel_during_compilation());
    let fields = format!("{FIELDS}\nIdempotency-Key: \"k\"");
    let put = request("PUT /v1/topics/t/program", &fields, b"module");
    let retry = |mut client: Client| {
        client.send(&put);
        client.reply(false)
    };
    let reply = retry(slow.client());
    assert_eq!((reply.status, &*reply.problem()), (409, "in-progress"));
    let address = slow.server.http_addr().unwrap();
    drop(slow.finish);
    let end = Instant::now() + TEST_TIMEOUT;
    let status = loop {
        assert!(Instant::now() < end, "the write has no verdict");
        let reply = retry(Client::connect(address));
        if reply.status != 409 {
            break reply.status;
        }
    };
    assert_eq!(status, 422);
}

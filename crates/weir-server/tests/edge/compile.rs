//! A module that takes long to compile blocks no other request, even on a server with one thread.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use weir_core::{CodeHash, Program, ProgramHost, Refusal, Setup};
use weir_server::{Server, ServerConfig};
use weir_store::{OpenOptions, Store};

use crate::client::Client;
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

#[test]
fn a_compilation_blocks_no_other_request() {
    let directory = tempfile::tempdir().unwrap();
    let (start_sender, started) = channel();
    let (finish_sender, finish) = channel();
    let host = Slow {
        started: Mutex::new(start_sender),
        finish: Mutex::new(finish),
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
    let server = Server::start(config, store).unwrap();
    let address = server.http_addr().unwrap();
    let mut slow = Client::connect(address);
    let fields = "Content-Type: application/wasm";
    slow.send(&request("PUT /v1/topics/t/program", fields, b"module"));
    started.recv().unwrap();
    // If this request waits, every request waits.
    let mut other = Client::connect(address);
    other.send(&request("GET /healthz", "", b""));
    let healthy = other.stream.peek(&mut [0]);
    drop(finish_sender);
    assert_eq!(healthy.unwrap(), 1);
    assert_eq!(slow.reply(false).status, 422);
}

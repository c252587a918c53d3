//! TLS clients that read responses late, or never. Their receive window is a pipe
//! of a few bytes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::serve;
use crate::config::ServerConfig;
use crate::http::exchange::{Input, Started};
use crate::http::head::{Head, HeadError};
use crate::http::problem::Problem;
use crate::http::reply::Reply;
use crate::http::responder::Responder;
use crate::http::self_signed;
use crate::limits::admission::Admission;
use crate::phase::Phase;

/// Much longer than any test needs: only a test that hangs reaches it.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Responds to every request with `count` bytes.
#[derive(Clone)]
struct Bytes {
    count: usize,
    config: Arc<ServerConfig>,
}

impl Responder for Bytes {
    fn config(&self) -> &ServerConfig {
        &self.config
    }

    fn start(&self, _: Head, _: &[u8]) -> Started {
        Started::Done(Reply::new(200).with("text/plain", vec![b'x'; self.count]))
    }

    async fn call(&self, _: Head, _: Input<'_>, _: Option<u64>) -> Reply {
        Reply::new(500)
    }

    fn refuse(&self, _: HeadError) -> Reply {
        Reply::new(400)
    }

    fn too_slow(&self) -> Reply {
        Reply::new(408)
    }

    fn refuse_with(&self, _: Problem) -> Reply {
        Reply::new(400)
    }

    fn admission(&self) -> Option<&Admission> {
        None
    }

    fn timed_out(&self, _: &'static str) {}
}

/// The TLS set-up of the server and of its clients.
struct TlsEnds {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
}

impl TlsEnds {
    fn new() -> Self {
        let (acceptor, connector) = self_signed::tls_ends();
        Self {
            acceptor,
            connector,
        }
    }

    /// Connects a client whose window is `window` bytes, and serves it.
    async fn connect(
        &self,
        window: usize,
        responder: Bytes,
        served: &mut JoinSet<()>,
    ) -> TlsStream<DuplexStream> {
        let (server_io, client_io) = duplex(window);
        let acceptor = self.acceptor.clone();
        served.spawn(async move {
            let stream = acceptor.accept(server_io).await.unwrap();
            let phase = watch::Sender::new(Phase::Open);
            serve(stream, responder, phase.subscribe()).await;
        });
        let name = "localhost".try_into().unwrap();
        self.connector.connect(name, client_io).await.unwrap()
    }
}

fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().build().unwrap();
    let done = async { tokio::time::timeout(TEST_TIMEOUT, test).await };
    assert!(runtime.block_on(done).is_ok(), "the test hangs");
}

#[test]
fn a_response_over_tls_arrives_whole_at_a_late_reader() {
    run(async {
        let (count, config) = (40_000, Arc::default());
        let mut served = JoinSet::new();
        let responder = Bytes { count, config };
        // The TLS session can hold the whole response, the window only a small part.
        let mut client = TlsEnds::new().connect(1000, responder, &mut served).await;
        for _ in 0..2 {
            let get = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
            client.write_all(get).await.unwrap();
            client.flush().await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(&vec![b'x'; count]) {
                assert!(client.read_buf(&mut answer).await.unwrap() > 0);
            }
        }
    });
}

#[test]
fn a_tls_client_that_reads_nothing_is_disconnected() {
    run(async {
        const WINDOW: usize = 4096;
        let ends = TlsEnds::new();
        let mut served = JoinSet::new();
        let mut clients = Vec::new();
        let config = Arc::new(ServerConfig {
            write_timeout: Duration::from_millis(200),
            ..ServerConfig::default()
        });
        // For at least one of these lengths, the response just fits into the window, but the close
        // message of TLS does not. That message is longer than one step of the loop.
        for count in (WINDOW - 1200..WINDOW).step_by(8) {
            let config = Arc::clone(&config);
            let responder = Bytes { count, config };
            let mut client = ends.connect(WINDOW, responder, &mut served).await;
            let get = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            client.write_all(get).await.unwrap();
            client.flush().await.unwrap();
            clients.push(client);
        }
        while let Some(ended) = served.join_next().await {
            ended.unwrap();
        }
    });
}

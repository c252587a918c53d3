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
use crate::http::head::{Bad, Head};
use crate::http::problem::Problem;
use crate::http::reply::Reply;
use crate::http::responder::Responder;
use crate::http::self_signed;
use crate::limits::admission::Admission;
use crate::phase::Phase;

/// Much longer than any test needs: a test reaches it only if it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

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

    fn refuse(&self, _: Bad) -> Reply {
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
struct Ends {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
}

impl Ends {
    fn new() -> Self {
        let (acceptor, connector) = self_signed::ends();
        Self {
            acceptor,
            connector,
        }
    }

    /// Connects a client whose window is `window` bytes, and serves it.
    async fn meet(
        &self,
        window: usize,
        host: Bytes,
        served: &mut JoinSet<()>,
    ) -> TlsStream<DuplexStream> {
        let (near, far) = duplex(window);
        let acceptor = self.acceptor.clone();
        served.spawn(async move {
            let stream = acceptor.accept(near).await.unwrap();
            let phase = watch::Sender::new(Phase::Open);
            serve(stream, host, phase.subscribe()).await;
        });
        let name = "localhost".try_into().unwrap();
        self.connector.connect(name, far).await.unwrap()
    }
}

fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().build().unwrap();
    let done = async { tokio::time::timeout(PATIENCE, test).await };
    assert!(runtime.block_on(done).is_ok(), "something waits for ever");
}

#[test]
fn an_answer_over_tls_arrives_to_its_end_though_it_is_taken_late() {
    run(async {
        let (count, config) = (40_000, Arc::default());
        let mut served = JoinSet::new();
        let host = Bytes { count, config };
        // The TLS session can hold the whole response, the window only a small part.
        let mut client = Ends::new().meet(1000, host, &mut served).await;
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
fn who_takes_nothing_over_tls_keeps_no_connection() {
    run(async {
        const WINDOW: usize = 4096;
        let ends = Ends::new();
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
            let host = Bytes { count, config };
            let mut client = ends.meet(WINDOW, host, &mut served).await;
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

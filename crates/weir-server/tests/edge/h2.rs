//! HTTP/2, frame by frame: requests, tails, shutdown, and clients that hold resources too long.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{Builder, SendRequest};
use hyper::{Method, Request};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::client::TEST_TIMEOUT;
use crate::hold::BlockedThread;
use crate::world::{World, with, world};

/// A connection; its task ends with it.
struct Client {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl Client {
    async fn connect(world: &World, window: u32) -> Self {
        let socket = TcpStream::connect(world.address).await.unwrap();
        let mut builder = Builder::new();
        builder.initial_window_size(window);
        let (requests, connection) = builder.handshake(socket).await.unwrap();
        Self {
            requests,
            connection: tokio::spawn(connection),
        }
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: &[u8],
    ) -> h2::client::ResponseFuture {
        let mut requests = self.requests.clone().ready().await.unwrap();
        let uri = format!("http://localhost{path}");
        let request = Request::builder().method(method).uri(uri);
        let request = request.body(()).unwrap();
        let (response, mut stream) = requests.send_request(request, body.is_empty()).unwrap();
        if !body.is_empty() {
            stream.send_data(body.to_vec().into(), true).unwrap();
        }
        response
    }

    async fn ask(&mut self, method: Method, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let response = self.send(method, path, body).await.await.unwrap();
        let status = response.status().as_u16();
        let mut stream = response.into_body();
        let mut body = Vec::new();
        while let Some(piece) = next(&mut stream).await {
            body.extend_from_slice(&piece);
        }
        (status, body)
    }

    /// Waits until the server has closed the connection.
    async fn wait_until_closed(self) {
        drop(self.requests);
        // The connection may end with or without an error.
        let _ = self.connection.await.unwrap();
    }
}

async fn next(stream: &mut RecvStream) -> Option<Bytes> {
    let piece = stream.data().await?.unwrap();
    stream.flow_control().release_capacity(piece.len()).unwrap();
    Some(piece)
}

const WINDOW: u32 = 65_535;

fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    let done = async { tokio::time::timeout(TEST_TIMEOUT, test).await };
    assert!(
        runtime.block_on(done).is_ok(),
        "the test exceeded its timeout"
    );
}

const EVENTS: &str = "/v1/topics/t/events";

#[test]
fn requests_of_one_connection_are_processed_concurrently() {
    let world = world();
    run(async {
        let mut client = Client::connect(&world, WINDOW).await;
        let mut waiting = Vec::new();
        for n in 0..50 {
            let body = format!("{{\"n\":{n}}}");
            waiting.push(client.send(Method::POST, EVENTS, body.as_bytes()).await);
        }
        for response in waiting {
            assert_eq!(response.await.unwrap().status(), 201);
        }
        let (status, body) = client.ask(Method::GET, "/v1/topics/t/events/2", b"").await;
        // Streams may complete in any order.
        assert!(status == 200 && body.starts_with(b"{\"n\":"), "{body:?}");
        // Larger than any window.
        let large = format!("\"{}\"", "x".repeat(300_000));
        let (status, _) = client
            .ask(Method::PUT, "/v1/topics/t/keys/k", large.as_bytes())
            .await;
        assert_eq!(status, 201);
        let (status, body) = client.ask(Method::GET, "/v1/topics/t/keys/k", b"").await;
        assert_eq!((status, body.len()), (200, large.len()));
    });
}

#[test]
fn a_tail_follows_until_the_server_drains() {
    let mut world = world();
    run(async {
        let mut client = Client::connect(&world, WINDOW).await;
        let response = client
            .send(Method::GET, "/v1/topics/t/events?live=sse", b"")
            .await;
        let mut tail = response.await.unwrap().into_body();
        let (status, _) = client.ask(Method::POST, EVENTS, b"\"news\"").await;
        assert_eq!(status, 201);
        let mut received = Vec::new();
        while !String::from_utf8_lossy(&received).contains("news") {
            received.extend_from_slice(&next(&mut tail).await.unwrap());
        }
        world.server.as_ref().unwrap().drain();
        while next(&mut tail).await.is_some() {}
        client.wait_until_closed().await;
    });
    world.server.take().unwrap().wait().unwrap();
}

#[test]
fn a_drain_answers_every_request_that_has_started() {
    let mut world = world();
    let blocked = BlockedThread::new(&world.store, "t");
    run(async {
        let mut client = Client::connect(&world, WINDOW).await;
        let mut waiting = Vec::new();
        for _ in 0..16 {
            waiting.push(client.send(Method::POST, EVENTS, b"\"mine\"").await);
        }
        // The server processes frames in order, so it has received all requests.
        let (status, _) = client.ask(Method::GET, "/healthz", b"").await;
        assert_eq!(status, 200);
        world.server.as_ref().unwrap().drain();
        drop(blocked);
        for response in waiting {
            assert_eq!(response.await.unwrap().status(), 201);
        }
        client.wait_until_closed().await;
    });
    world.server.take().unwrap().wait().unwrap();
}

#[test]
fn a_canceled_write_counts_until_its_verdict() {
    let world = world();
    let blocked = BlockedThread::new(&world.store, "t");
    run(async {
        let mut client = Client::connect(&world, WINDOW).await;
        let body = br#"{"operations":[{"op":"put","key":"a","value":1}]}"#;
        let path = "/v1/topics/t/transactions";
        let response = client.send(Method::POST, path, body).await;
        while world.in_flight_bytes() == 0 {
            client.ask(Method::GET, "/healthz", b"").await;
        }
        // Resets the stream.
        drop(response);
        for _ in 0..50 {
            client.ask(Method::GET, "/healthz", b"").await;
            assert!(world.in_flight_bytes() > 0);
        }
        drop(blocked);
        // Awaits a response, so that the timeout of the test can end the loop.
        while world.in_flight_bytes() > 0 {
            client.ask(Method::GET, "/healthz", b"").await;
        }
    });
}

#[test]
fn a_client_that_grants_no_window_is_disconnected() {
    let world = with(&[("write_timeout", "1s")]);
    assert_eq!(world.ask("PUT /v1/topics/t", "", b"").status, 201);
    let value = vec![b'x'; 200_000];
    assert_eq!(world.ask("PUT /v1/topics/t/keys/k", "", &value).status, 201);
    run(async {
        // This client answers every PING.
        let mut client = Client::connect(&world, 1000).await;
        let response = client.send(Method::GET, "/v1/topics/t/keys/k", b"").await;
        let unread = response.await.unwrap();
        client.wait_until_closed().await;
        drop(unread);
        let mut other = Client::connect(&world, WINDOW).await;
        let (status, body) = other.ask(Method::GET, "/v1/topics/t/keys/k", b"").await;
        assert_eq!((status, body.len()), (200, value.len()));
    });
}

#[test]
fn an_idle_client_is_disconnected() {
    let world = with(&[("idle_timeout", "1s")]);
    run(async {
        let mut client = Client::connect(&world, WINDOW).await;
        assert_eq!(client.ask(Method::GET, "/healthz", b"").await.0, 200);
        // Kept open, so that the server closes the connection.
        let handle = client.requests.clone();
        client.wait_until_closed().await;
        drop(handle);
    });
}

#[test]
fn a_body_sent_byte_by_byte_times_out() {
    let settings = [("body_rate_after", "200ms"), ("body_rate_min", "1GiB")];
    let world = with(&settings);
    assert_eq!(world.ask("PUT /v1/topics/t", "", b"").status, 201);
    run(async {
        let mut client = Client::connect(&world, WINDOW).await;
        let requests = client.requests.clone().ready().await;
        let request = Request::post(format!("http://localhost{EVENTS}"));
        let request = request.body(()).unwrap();
        let (response, mut stream) = requests.unwrap().send_request(request, false).unwrap();
        stream.send_data(b"123"[..].into(), false).unwrap();
        let mut interval = tokio::time::interval(Duration::from_millis(20));
        let mut response = std::pin::pin!(response);
        let status = loop {
            tokio::select! {
                biased;
                response = response.as_mut() => break response.unwrap().status(),
                _ = interval.tick() => drop(stream.send_data(b"4"[..].into(), false)),
            }
        };
        assert_eq!(status, 408);
        assert_eq!(client.ask(Method::GET, "/healthz", b"").await.0, 200);
    });
}

#[test]
fn the_number_of_tails_of_a_connection_is_limited() {
    let world = world();
    run(async {
        let mut client = Client::connect(&world, WINDOW).await;
        let mut tails = Vec::new();
        for n in 0..51 {
            let response = client
                .send(Method::GET, "/v1/topics/t/events?live=sse", b"")
                .await;
            let response = response.await.unwrap();
            assert_eq!(response.status(), if n < 50 { 200 } else { 503 });
            tails.push(response.into_body());
        }
        tails.clear();
        assert_eq!(client.ask(Method::GET, "/healthz", b"").await.0, 200);
    });
}

#[test]
fn a_long_poll_that_is_reset_is_no_longer_counted() {
    let world = world();
    run(async {
        let mut client = Client::connect(&world, WINDOW).await;
        let target = "/v1/topics/t/events?after=1&wait=60";
        let poll = client.send(Method::GET, target, b"").await;
        wait_for_polls(&mut client, 1).await;
        drop(poll);
        wait_for_polls(&mut client, 0).await;
    });
}

/// Waits until the metrics count this number of long polls.
async fn wait_for_polls(client: &mut Client, count: usize) {
    let line = format!("weir_http_tails{{kind=\"long-poll\"}} {count}\n");
    loop {
        let (_, page) = client.ask(Method::GET, "/metrics", b"").await;
        if String::from_utf8(page).unwrap().contains(&line) {
            return;
        }
    }
}

#[test]
fn reset_streams_do_not_affect_other_clients() {
    let world = world();
    run(async {
        let flooding = Client::connect(&world, WINDOW).await;
        for _ in 0..1000 {
            let Ok(mut requests) = flooding.requests.clone().ready().await else {
                break;
            };
            let request = Request::get("http://localhost/v1/topics/t/events?wait=30");
            let Ok((_, mut stream)) = requests.send_request(request.body(()).unwrap(), false)
            else {
                break;
            };
            stream.send_reset(h2::Reason::CANCEL);
        }
        let mut other = Client::connect(&world, WINDOW).await;
        let (status, _) = other.ask(Method::POST, EVENTS, b"1").await;
        assert_eq!(status, 201);
        drop(flooding);
    });
}

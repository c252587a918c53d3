//! The endpoints below `/bench` served by axum on one thread, as in its manual: a router, an
//! extractor, and `axum::serve`. The only limit is that of bodies, and there are no deadlines.
//!
//! `axum-bench --listen ADDRESS` serves until it is killed.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::process::ExitCode;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{DefaultBodyLimit, FromRequest as _, Request};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::any;
use axum::serve::ListenerExt as _;
use rust_hyper::bench::{self, Answer, BODY_MAX, is_echo};
use rust_hyper::locked;
use rust_hyper::respond::{listen, of, respond, too_large};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--version"] => {
            println!("axum {}, hyper {}", locked("axum"), locked("hyper"));
            ExitCode::SUCCESS
        }
        ["--listen", address] => match address.parse().map(serve) {
            Ok(Ok(())) => ExitCode::SUCCESS,
            Ok(Err(error)) => fail(&error.to_string()),
            Err(_) => fail("not an address"),
        },
        _ => fail("usage: axum-bench --listen ADDRESS | --version"),
    }
}

fn fail(what: &str) -> ExitCode {
    eprintln!("axum-bench: {what}");
    ExitCode::from(2)
}

fn serve(address: SocketAddr) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let app = Router::new()
        .route("/bench/json", any(answer))
        .route("/bench/echo", any(answer))
        .route("/bench/zlib", any(answer))
        .route("/bench/cpu", any(answer))
        .fallback(answer)
        .layer(DefaultBodyLimit::max(BODY_MAX));
    runtime.block_on(async {
        let listener = listen(address)?.tap_io(|stream| {
            // An error here is a client that disconnected.
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, app).await
    })
}

async fn answer(request: Request) -> Response {
    // The extractor reads up to the limit, and does not refuse by the announced length alone.
    if request.body().size_hint().lower() > BODY_MAX as u64 {
        return too_large().map(Body::new);
    }
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let response = match Bytes::from_request(request, &()).await {
        Ok(body) if is_echo(method.as_str(), uri.path()) => {
            of(200, "application/octet-stream", body)
        }
        Ok(body) => respond(bench::answer(
            method.as_str(),
            uri.path(),
            uri.query(),
            &body,
        )),
        Err(error) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => too_large(),
        Err(_) => respond(Answer::error(400, "bad request")),
    };
    response.map(Body::new)
}

//! The endpoints below `/bench` served by hyper on one thread, as in its manual: the only limit is
//! that of bodies, and there are no deadlines.
//!
//! `hyper-bench --listen ADDRESS` serves until it is killed.
#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rust_hyper::bench::{self, Answer, BODY_MAX, is_echo};
use rust_hyper::locked;
use rust_hyper::respond::{listen, of, respond, too_large};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--version"] => {
            println!("hyper {}, tokio {}", locked("hyper"), locked("tokio"));
            ExitCode::SUCCESS
        }
        ["--listen", address] => match address.parse().map(serve) {
            Ok(Ok(())) => ExitCode::SUCCESS,
            Ok(Err(error)) => fail(&error.to_string()),
            Err(_) => fail("not an address"),
        },
        _ => fail("usage: hyper-bench --listen ADDRESS | --version"),
    }
}

fn fail(what: &str) -> ExitCode {
    eprintln!("hyper-bench: {what}");
    ExitCode::from(2)
}

fn serve(address: SocketAddr) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let listener = listen(address)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(async move {
                // An error here is a client that disconnected.
                let _ = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(answer))
                    .await;
            });
        }
    })
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let (method, path) = (head.method.as_str(), head.uri.path());
    if body.size_hint().lower() > BODY_MAX as u64 {
        return Ok(too_large());
    }
    let body = match Limited::new(body, BODY_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Ok(too_large()),
        Err(_) => return Ok(respond(Answer::error(400, "bad request"))),
    };
    if is_echo(method, path) {
        return Ok(of(200, "application/octet-stream", body));
    }
    let query = head.uri.query();
    Ok(respond(bench::answer(method, path, query, &body)))
}

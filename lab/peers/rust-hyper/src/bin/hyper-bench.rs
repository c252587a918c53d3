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
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rust_hyper::bench::{self, Answer, BODY_MAX, is_echo};
use rust_hyper::locked;
use tokio::net::TcpSocket;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4_096;

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
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        println!("listening on {}", listener.local_addr()?);
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

fn too_large() -> Response<Full<Bytes>> {
    let mut response = respond(Answer::error(413, "too large"));
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}

fn respond(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = of(answer.status, answer.media_type, answer.body.into());
    if !answer.allow.is_empty() {
        let allow = HeaderValue::from_static(answer.allow);
        response.headers_mut().insert(ALLOW, allow);
    }
    response
}

fn of(status: u16, media_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    let kind = HeaderValue::from_static(media_type);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

//! hyper on one thread: POST answers the body, GET a small JSON object.
//!
//! `hyper-echo --listen ADDRESS` serves until it is killed.
#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
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
        _ => fail("usage: hyper-echo --listen ADDRESS | --version"),
    }
}

fn fail(what: &str) -> ExitCode {
    eprintln!("hyper-echo: {what}");
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
                // An error here is a client that went away.
                let _ = http1::Builder::new()
                    .pipeline_flush(true)
                    .serve_connection(TokioIo::new(stream), service_fn(answer))
                    .await;
            });
        }
    })
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (kind, body) = match *request.method() {
        Method::POST => match request.into_body().collect().await {
            Ok(body) => ("application/octet-stream", body.to_bytes()),
            Err(_) => return Ok(status(StatusCode::BAD_REQUEST)),
        },
        Method::GET => (
            "application/json",
            Bytes::from_static(br#"{"message":"Hello, World!"}"#),
        ),
        _ => return Ok(status(StatusCode::METHOD_NOT_ALLOWED)),
    };
    let mut response = Response::new(Full::new(body));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

//! Responses of the contenders over hyper, and their socket.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::net::{TcpListener, TcpSocket};

use crate::bench::Answer;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4_096;

/// Listens at `address`, and prints the address. Must be called within a runtime.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    println!("listening on {}", listener.local_addr()?);
    Ok(listener)
}

/// The response to a body above the limit, after which the connection is closed.
pub fn too_large() -> Response<Full<Bytes>> {
    let mut response = respond(Answer::error(413, "too large"));
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}

/// The response with an answer.
pub fn respond(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = of(answer.status, answer.media_type, answer.body.into());
    if !answer.allow.is_empty() {
        let allow = HeaderValue::from_static(answer.allow);
        response.headers_mut().insert(ALLOW, allow);
    }
    response
}

/// A response.
pub fn of(status: u16, media_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    let kind = HeaderValue::from_static(media_type);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

//! HTTP/1.1 connections of the edge for a service of the lab, which compares them with other
//! servers.
//!
//! The connections run the code of the edge, with its limits and deadlines. Invariant: this module
//! has no shortcut that the edge lacks.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::watch;

use super::h1;
use super::head::{Head, HeadError};
use super::problem::{Kind, Problem};
use super::reply::{Body, Reply};
use super::responder::Responder;
use crate::config::ServerConfig;
use crate::http::exchange::{Input, Started, whole};
use crate::limits::admission::Admission;
use crate::limits::budget::Reservation;
use crate::phase::Phase;

/// A request whose body has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method; `OTHER` for methods that HTTP does not define.
    pub method: &'a str,
    /// The path, still percent-encoded.
    pub path: &'a str,
    /// The query after the question mark, still percent-encoded.
    pub query: Option<&'a str>,
    /// The body.
    pub body: &'a [u8],
}

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The value of `content-type`.
    pub media_type: &'static str,
    /// The value of `allow`; empty: the field is omitted.
    pub allow: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

/// A service of the lab.
pub struct Stack<F> {
    answer: F,
    config: ServerConfig,
    body_max: usize,
    phase: watch::Sender<Phase>,
}

impl<F> std::fmt::Debug for Stack<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack")
            .field("body_max", &self.body_max)
            .finish_non_exhaustive()
    }
}

impl<F: Fn(&Request<'_>) -> Response + Send + Sync + 'static> Stack<F> {
    /// Creates a service that calls `answer`. Bodies of more than `body_max` bytes get a 413 with
    /// the body `{"error":"too large"}`.
    pub fn new(answer: F, body_max: usize) -> Arc<Self> {
        Arc::new(Self {
            answer,
            config: ServerConfig::default(),
            body_max,
            phase: watch::Sender::new(Phase::Open),
        })
    }

    /// Serves a connection until it ends. Closes the connection if the client speaks HTTP/2.
    pub async fn serve(self: Arc<Self>, stream: TcpStream) {
        let phase = self.phase.subscribe();
        h1::serve(stream, StackResponder(self), phase).await;
    }

    fn reply(&self, head: &Head, body: &[u8]) -> Reply {
        let response = (self.answer)(&Request {
            method: head.method.name(),
            path: head.path(),
            query: head.query(),
            body,
        });
        let mut reply = Reply::new(response.status);
        if !response.allow.is_empty() {
            reply.add("allow", response.allow);
        }
        let reply = reply.with(response.media_type, response.body);
        if head.method == crate::http::head::Method::Head {
            reply.without_body()
        } else {
            reply
        }
    }
}

/// The service of one connection.
struct StackResponder<F>(Arc<Stack<F>>);

impl<F> Clone for StackResponder<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// A response without a request, after which the connection closes.
fn closing_reply(status: u16, body: &'static [u8]) -> Reply {
    let mut reply = Reply::new(status);
    reply.add("content-type", "application/json");
    reply.body = Body::Bytes(bytes::Bytes::from_static(body));
    reply.close = true;
    reply
}

impl<F: Fn(&Request<'_>) -> Response + Send + Sync + 'static> Responder for StackResponder<F> {
    fn config(&self) -> &ServerConfig {
        &self.0.config
    }

    fn start(&self, head: Head, body: &[u8]) -> Started {
        Started::Done(self.0.reply(&head, body))
    }

    async fn call(&self, head: Head, input: Input<'_>, length: Option<u64>) -> Reply {
        let max = self.0.body_max;
        if length.is_some_and(|length| length > max as u64) {
            return closing_reply(413, br#"{"error":"too large"}"#);
        }
        match whole(input, max, &mut Reservation::unlimited()).await {
            Ok(body) => self.0.reply(&head, &body),
            Err(Problem {
                kind: Kind::TooLarge,
                ..
            }) => closing_reply(413, br#"{"error":"too large"}"#),
            Err(_) => closing_reply(400, br#"{"error":"bad request"}"#),
        }
    }

    fn refuse(&self, bad: HeadError) -> Reply {
        let status = match bad {
            HeadError::Syntax(_) => 400,
            HeadError::Target => 414,
            HeadError::Fields => 431,
            HeadError::Coding => 501,
            HeadError::Version => 505,
        };
        closing_reply(status, br#"{"error":"bad request"}"#)
    }

    fn too_slow(&self) -> Reply {
        closing_reply(408, br#"{"error":"too slow"}"#)
    }

    fn refuse_with(&self, problem: Problem) -> Reply {
        closing_reply(problem.kind.status(), br#"{"error":"bad request"}"#)
    }

    fn admission(&self) -> Option<&Admission> {
        None
    }

    fn timed_out(&self, _what: &'static str) {}
}

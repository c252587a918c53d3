//! HTTP while the store is opening. Every request gets a 503 with the progress and a time to retry,
//! except `/healthz`, which gets a 200.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::State;
use crate::config::ServerConfig;
use crate::http::exchange::{Input, Started};
use crate::http::h1::{self, Rewound};
use crate::http::h2::ControlFrameLimit;
use crate::http::head::{Head, HeadError, Method};
use crate::http::problem::{Kind, Problem};
use crate::http::reply::{Body, Reply};
use crate::http::responder::Responder;
use crate::limits::STREAMS_MAX;
use crate::limits::admission::Admission;
use crate::phase::Phase;

/// Responds to the request of one connection, then closes it. The client reconnects to a server
/// that may be open by then.
pub(crate) async fn answer<S>(io: S, state: Arc<State>, phase: watch::Receiver<Phase>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = HttpConnection(Arc::clone(&state));
    let Some((io, first)) = h1::serve(io, connection, phase).await else {
        return;
    };
    let io = TokioIo::new(ControlFrameLimit::new(Rewound::new(first, io)));
    let time = state.config.head_timeout;
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let response = response(&reply(&state, request.uri().path()));
        async move { Ok::<_, Infallible>(response) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX);
    // Errors of the connection concern the peer, not the server.
    drop(tokio::time::timeout(time, builder.serve_connection(io, service)).await);
}

fn reply(state: &State, path: &str) -> Reply {
    let mut reply = if path == "/healthz" {
        Reply::new(200)
            .field("cache-control", "no-store")
            .with("text/plain; charset=utf-8", "ok\n")
    } else {
        state.problem().reply("")
    };
    reply.close = true;
    reply
}

/// Converts a response to HTTP/2.
fn response(reply: &Reply) -> Response<String> {
    let body = match &reply.body {
        Body::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    };
    let mut response = Response::builder().status(reply.status);
    for name in ["content-type", "cache-control", "retry-after"] {
        if let Some(value) = reply.get(name) {
            response = response.header(name, value);
        }
    }
    response.body(body).unwrap_or_default()
}

impl State {
    fn problem(&self) -> Problem {
        let percent = self.percent();
        Problem::new(Kind::Opening, format!("{percent} % of the log is applied"))
            .code(weir_core::ErrorCode::Opening)
            .number("percent_done", percent)
    }
}

/// The service of one connection.
#[derive(Clone)]
struct HttpConnection(Arc<State>);

impl HttpConnection {
    fn reply(&self, head: &Head) -> Reply {
        let reply = reply(&self.0, head.path());
        if head.method == Method::Head {
            reply.without_body()
        } else {
            reply
        }
    }
}

impl Responder for HttpConnection {
    fn config(&self) -> &ServerConfig {
        &self.0.config
    }

    fn start(&self, head: Head, _body: &[u8]) -> Started {
        Started::Done(self.reply(&head))
    }

    async fn call(&self, head: Head, _input: Input<'_>, _length: Option<u64>) -> Reply {
        self.reply(&head)
    }

    fn refuse(&self, _error: HeadError) -> Reply {
        let problem = Problem::bad("the head of the request is malformed");
        let mut reply = problem.reply("");
        reply.close = true;
        reply
    }

    fn too_slow(&self) -> Reply {
        let mut reply = Problem::new(Kind::TooSlow, "").reply("");
        reply.close = true;
        reply
    }

    fn refuse_with(&self, problem: Problem) -> Reply {
        let mut reply = problem.reply("");
        reply.close = true;
        reply
    }

    fn admission(&self) -> Option<&Admission> {
        None
    }

    fn timed_out(&self, _what: &'static str) {}
}

//! The service of one HTTP/1.1 connection.

use std::sync::Arc;

use crate::config::ServerConfig;
use crate::http::exchange::{Input, Started};
use crate::http::head::{Bad, Head};
use crate::http::problem::{Kind, Problem};
use crate::http::reply::Reply;
use crate::http::responder::Responder;
use crate::limits::admission::Admission;
use crate::resources::context::{Edge, Peer};

/// The requests of one connection to the edge.
#[derive(Clone, Debug)]
pub(crate) struct HttpConnection {
    pub(crate) edge: Arc<Edge>,
    pub(crate) peer: Peer,
}

impl Responder for HttpConnection {
    fn config(&self) -> &ServerConfig {
        &self.edge.shared.config
    }

    fn start(&self, head: Head, body: &[u8]) -> Started {
        self.edge.start(head, self.peer.clone(), body)
    }

    async fn call(&self, head: Head, input: Input<'_>, length: Option<u64>) -> Reply {
        let peer = self.peer.clone();
        self.edge.call(head, peer, input, length).await
    }

    fn refuse(&self, bad: Bad) -> Reply {
        self.edge.refuse(bad)
    }

    fn too_slow(&self) -> Reply {
        let problem = Problem::new(Kind::TooSlow, "the header fields took too long");
        self.edge.finish_bare(problem)
    }

    fn refuse_with(&self, problem: Problem) -> Reply {
        self.edge.finish_bare(problem)
    }

    fn admission(&self) -> Option<&Admission> {
        Some(&self.edge.shared.admission)
    }

    fn timed_out(&self, what: &'static str) {
        self.edge.shared.metrics.timeout(what);
    }
}

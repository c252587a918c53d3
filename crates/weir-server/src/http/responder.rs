//! The service that responds to the requests of a connection.

use std::future::Future;

use crate::config::ServerConfig;
use crate::http::exchange::{Input, Started};
use crate::http::head::{Head, HeadError};
use crate::http::problem::Problem;
use crate::http::reply::Reply;
use crate::limits::admission::Admission;

/// The service, as a connection sees it. Each connection has its own clone, which is cheap.
pub(crate) trait Responder: Clone + Send + Sync {
    /// Limits and deadlines of connections.
    fn config(&self) -> &ServerConfig;

    /// Starts a request whose body has arrived.
    fn start(&self, head: Head, body: &[u8]) -> Started;

    /// Runs a request whose body is still arriving; `length` is the declared length.
    fn call(
        &self,
        head: Head,
        input: Input<'_>,
        length: Option<u64>,
    ) -> impl Future<Output = Reply> + Send;

    /// The response to a head that is refused.
    fn refuse(&self, bad: HeadError) -> Reply;

    /// The response to a head that took too long.
    fn too_slow(&self) -> Reply;

    /// The response to a request that the connection refuses.
    fn refuse_with(&self, problem: Problem) -> Reply;

    /// The memory budget for slow clients; `None`: no limit.
    fn admission(&self) -> Option<&Admission>;

    /// Counts a missed deadline: that of `head`, `body` or `write`.
    fn timed_out(&self, what: &'static str);
}

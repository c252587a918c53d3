//! The service that answers the requests of a connection.

use std::future::Future;

use crate::config::ServerConfig;
use crate::http::exchange::{Input, Started};
use crate::http::head::{Bad, Head};
use crate::http::problem::Problem;
use crate::http::reply::Reply;
use crate::limits::admission::Admission;

/// What a connection needs of the service; one for each connection, cheap to clone.
pub(crate) trait Responder: Clone + Send + Sync {
    /// Limits and times of connections.
    fn config(&self) -> &ServerConfig;

    /// Begins a request whose body is there.
    fn start(&self, head: Head, body: &[u8]) -> Started;

    /// Carries out a request whose body is still coming; `length` is the
    /// declared one.
    fn call(
        &self,
        head: Head,
        input: Input<'_>,
        length: Option<u64>,
    ) -> impl Future<Output = Reply> + Send;

    /// The answer to a head that is refused.
    fn refuse(&self, bad: Bad) -> Reply;

    /// The answer to a head that took too long.
    fn too_slow(&self) -> Reply;

    /// The answer to something that is not a request.
    fn refuse_with(&self, problem: Problem) -> Reply;

    /// The budget for what clients take at leisure; none: there is no limit.
    fn admission(&self) -> Option<&Admission>;

    /// Counts a deadline that was missed: that of `head`, `body` or `write`.
    fn timed_out(&self, what: &'static str);
}

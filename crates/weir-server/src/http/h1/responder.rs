//! Whoever answers the requests of a connection of HTTP/1.1.

use std::future::Future;

use crate::config::ServerConfig;
use crate::http::head::{Bad, Head};
use crate::http::reply::Reply;
use crate::limits::admission::Admission;
use crate::service::{Input, Started};

/// What a connection needs from behind it; one for each connection, cheap to
/// copy.
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

    /// The budget for what clients take at leisure; none: there is no limit.
    fn admission(&self) -> Option<&Admission>;

    /// Counts a deadline that was missed: that of `head`, `body` or `write`.
    fn timed_out(&self, what: &'static str);
}

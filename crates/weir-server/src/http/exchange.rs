//! One request and its response, independent of the version of the protocol.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use weir_core::ErrorCode;

use super::problem::{Kind, Problem};
use super::reply::{Boxed, Reply};
use crate::limits::budget::{BudgetExhausted, Reservation};

/// Why a body did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// The client closed the connection, or ended the body early.
    Cut,
    /// The body arrived too slowly.
    Slow,
    /// The chunked coding of the body is malformed.
    Framing,
}

/// A body that is still arriving.
pub(crate) trait BodySource: Send {
    /// Returns the next piece, never empty; `None` at the end.
    fn next(&mut self) -> Boxed<'_, Result<Option<Bytes>, BodyError>>;

    /// With `holds`, the bytes read so far occupy memory that other requests wait for. The body
    /// must then arrive at the minimum rate.
    fn require_minimum_rate(&mut self, holds: bool);
}

/// The body of a request.
pub(crate) enum Input<'a> {
    Whole(Bytes),
    Source(&'a mut dyn BodySource),
}

/// A write that waits for the store.
pub(crate) trait Pending: Send {
    /// Polls for the response.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Reply>;

    /// Returns the response for a store that exceeded its time limit.
    fn expire(&mut self) -> Reply;
}

/// A response, or the operation that it waits for.
pub(crate) enum Started {
    Done(Reply),
    Commit(Box<dyn Pending>),
    Later(Boxed<'static, Reply>),
    /// The response was already returned.
    Returned,
}

impl Started {
    /// Polls for the response.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Reply> {
        match self {
            Self::Done(_) => {}
            Self::Commit(commit) => return commit.poll(context),
            Self::Later(future) => return future.as_mut().poll(context),
            Self::Returned => return Poll::Pending,
        }
        match std::mem::replace(self, Self::Returned) {
            Self::Done(reply) => Poll::Ready(reply),
            other => {
                *self = other;
                Poll::Pending
            }
        }
    }

    /// Whether the response must be ready within `store_timeout`.
    pub(crate) fn expires(&self) -> bool {
        matches!(self, Self::Commit(_))
    }

    /// Returns the response for a request that exceeded `store_timeout`.
    pub(crate) fn expire(&mut self) -> Reply {
        match self {
            Self::Commit(commit) => commit.expire(),
            _ => Problem::new(Kind::Internal, "a request without a time limit expired").reply(""),
        }
    }
}

impl Future for Started {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        Started::poll(&mut self, context)
    }
}

/// Reads the whole body, up to `max` bytes. `reservation` covers the memory of a large body.
pub(crate) async fn whole(
    input: Input<'_>,
    max: usize,
    reservation: &mut Reservation,
) -> Result<Bytes, Problem> {
    let source = match input {
        Input::Whole(bytes) if bytes.len() > max => {
            return Err(too_large(max, reservation));
        }
        Input::Whole(bytes) => return Ok(bytes),
        Input::Source(source) => source,
    };
    let mut body: Vec<u8> = Vec::new();
    loop {
        source.require_minimum_rate(reservation.is_held());
        let Some(piece) = source.next().await.map_err(body_problem)? else {
            return Ok(body.into());
        };
        let length = body.len() + piece.len();
        if length > max {
            return Err(too_large(max, reservation));
        }
        if length > body.capacity() {
            // The buffer grows with the bytes that arrive, never with an announced length.
            let size = length.max(body.capacity().saturating_mul(2).min(max));
            source.require_minimum_rate(false);
            reservation.cover(size).await.map_err(busy)?;
            body.reserve_exact(size - body.len());
        }
        body.extend_from_slice(&piece);
    }
}

/// The problem of a body of more than `max` bytes. It names the setting if the memory budget
/// imposes the limit.
pub(crate) fn too_large(max: usize, reservation: &Reservation) -> Problem {
    let problem = Problem::too_large("the body", max);
    if reservation.is_budget(max) {
        problem.text("setting", "memory_max")
    } else {
        problem
    }
}

/// The problem of a request for which other requests leave no capacity.
pub(crate) fn busy(exhausted: BudgetExhausted) -> Problem {
    let problem = Problem::new(Kind::Busy, exhausted.text).code(ErrorCode::Busy);
    problem.number("limit", exhausted.limit as u64)
}

/// The problem of a request whose body does not arrive.
pub(crate) fn body_problem(error: BodyError) -> Problem {
    match error {
        BodyError::Cut => Problem::bad("the body ends early"),
        BodyError::Slow => Problem::new(Kind::TooSlow, "the body arrived too slowly"),
        BodyError::Framing => Problem::bad("the chunked coding of the body is malformed"),
    }
}

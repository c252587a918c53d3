//! One request and its answer, whatever the version of the protocol.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use weir_core::ErrorCode;

use super::problem::{Kind, Problem};
use super::reply::{Boxed, Reply};
use crate::limits::budget::{BudgetExhausted, Reservation};

/// What went wrong with a body on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// The client went away, or ended early.
    Cut,
    /// It came too slowly.
    Slow,
    /// Its chunks cannot be read.
    Framing,
}

/// A body that is still coming.
pub(crate) trait BodySource: Send {
    /// The next piece, not empty; `None` at the end.
    fn next(&mut self) -> Boxed<'_, Result<Option<Bytes>, BodyError>>;

    /// Whether what was read of it holds memory that others wait for: then it
    /// must come faster.
    fn hurry(&mut self, holds: bool);
}

/// The body of a request.
pub(crate) enum Input<'a> {
    Whole(Bytes),
    Source(&'a mut dyn BodySource),
}

/// A write that waits for the store.
pub(crate) trait Pending: Send {
    /// The answer, once it is there.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Reply>;

    /// The answer after the store took longer than it may.
    fn expire(&mut self) -> Reply;
}

/// An answer, or what it waits for.
pub(crate) enum Started {
    Done(Reply),
    Commit(Box<dyn Pending>),
    Later(Boxed<'static, Reply>),
    /// It was given already.
    Gone,
}

impl Started {
    /// The answer, once it is there.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Reply> {
        match self {
            Self::Done(_) => {}
            Self::Commit(commit) => return commit.poll(context),
            Self::Later(future) => return future.as_mut().poll(context),
            Self::Gone => return Poll::Pending,
        }
        match std::mem::replace(self, Self::Gone) {
            Self::Done(reply) => Poll::Ready(reply),
            other => {
                *self = other;
                Poll::Pending
            }
        }
    }

    /// Whether it must be there within the time for the store.
    pub(crate) fn expires(&self) -> bool {
        matches!(self, Self::Commit(_))
    }

    /// The answer when it is not.
    pub(crate) fn expire(&mut self) -> Reply {
        match self {
            Self::Commit(commit) => commit.expire(),
            _ => Problem::new(Kind::Internal, "nothing was waited for").reply(""),
        }
    }
}

impl Future for Started {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        Started::poll(&mut self, context)
    }
}

/// The whole body, up to `max` bytes. What is large of it takes reservation.
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
        source.hurry(reservation.is_held());
        let Some(piece) = source.next().await.map_err(lost)? else {
            return Ok(body.into());
        };
        let length = body.len() + piece.len();
        if length > max {
            return Err(too_large(max, reservation));
        }
        if length > body.capacity() {
            // It grows with what arrives, never with what is announced.
            let size = length.max(body.capacity().saturating_mul(2).min(max));
            source.hurry(false);
            reservation.cover(size).await.map_err(busy)?;
            body.reserve_exact(size - body.len());
        }
        body.extend_from_slice(&piece);
    }
}

/// The problem of a body of more than `max` bytes. It names the setting if the memory is what
/// bounds it.
pub(crate) fn too_large(max: usize, reservation: &Reservation) -> Problem {
    let problem = Problem::too_large("the body", max);
    if reservation.is_budget(max) {
        problem.text("setting", "memory_max")
    } else {
        problem
    }
}

/// The problem of a request for which there is no memory.
pub(crate) fn busy(_: BudgetExhausted) -> Problem {
    Problem::new(Kind::Busy, ErrorCode::Busy.sentence()).code(ErrorCode::Busy)
}

/// The problem of a request whose body does not arrive.
pub(crate) fn lost(error: BodyError) -> Problem {
    match error {
        BodyError::Cut => Problem::bad("the body ends early"),
        BodyError::Slow => Problem::new(Kind::TooSlow, "the body came too slowly"),
        BodyError::Framing => Problem::bad("the chunks of the body cannot be read"),
    }
}

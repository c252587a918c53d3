//! Reading records for an answer: few at a time, and only with memory for what comes of it.
//!
//! Reading a page holds memory and may wait for a slow disk; rendering it costs processor time.
//! Two kinds of permits bound how many do so at once, in the order in which they came.
//! `Shared::readers` is for both, and wide: a thousand readers must not hold a thousand blocks
//! that nobody takes, but a few that wait for the disk must not stop all others.
//! `Shared::renderers` is for the processor, and narrow: they must not keep the commit thread from
//! it. It is given back while the disk is waited for. Blocks that are in memory need neither.
//!
//! Invariants:
//! - a thread that holds a permit to read waits for nothing but the disk and a permit to render;
//! - a thread that holds a permit to render waits for nothing;
//! - bytes that found no memory are dropped before a request waits for memory.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::exchange::busy;
use crate::http::offload;
use crate::http::problem::Problem;
use crate::limits::budget::Reservation;
use crate::shared::Shared;

/// What became of an attempt to read.
pub(crate) enum Attempt<T> {
    /// It is complete, and covered by the reservation.
    Done(T),
    /// Nothing was kept: so many bytes must be covered first.
    Lacks(usize),
}

/// The permit to render, as the thread that works on an answer holds it.
pub(crate) struct Processor {
    renderers: Arc<Semaphore>,
    /// `None` while the disk is waited for.
    permit: Option<OwnedSemaphorePermit>,
}

impl Processor {
    /// Reads what may have to be waited for, without the permit. Blocks the thread.
    pub(crate) fn released<T>(&mut self, read: impl FnOnce() -> T) -> T {
        self.permit = None;
        let read = read();
        let acquired = Arc::clone(&self.renderers).acquire_owned();
        // The semaphore is never closed.
        self.permit = Handle::current().block_on(acquired).ok();
        read
    }
}

/// Runs an attempt until it is done: on a thread that may wait, with a permit for readers, and
/// again after more memory was reserved.
pub(crate) async fn read<T, W>(
    shared: &Shared,
    reservation: Reservation,
    work: W,
) -> Result<(T, Reservation), Problem>
where
    T: Send + 'static,
    W: FnMut(&mut Reservation, &mut Processor) -> Result<Attempt<T>, Problem> + Send + 'static,
{
    let mut state = (reservation, work);
    loop {
        let permit = Arc::clone(&shared.readers).acquire_owned().await;
        let mut processor = Processor {
            renderers: Arc::clone(&shared.renderers),
            permit: None,
        };
        let (attempt, after) = offload::run(move || {
            let (mut reservation, mut work) = state;
            let attempt = work(&mut reservation, &mut processor)?;
            drop((processor, permit));
            Ok((attempt, (reservation, work)))
        })
        .await?;
        state = after;
        match attempt {
            Attempt::Done(made) => return Ok((made, state.0)),
            Attempt::Lacks(bytes) => state.0.cover(bytes).await.map_err(busy)?,
        }
    }
}

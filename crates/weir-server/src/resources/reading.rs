//! Reading records for an answer: few at a time, and only with memory for what comes of it.
//!
//! Reading and rendering a page costs processor time and memory. Permits (`Shared::readers`) bound
//! how many do that at once, in the order in which they came, so that a thousand readers neither
//! keep the commit thread from its processor nor hold a thousand blocks that nobody takes. Short
//! blocks that are in memory need none.
//!
//! Invariants:
//! - a thread that holds a permit waits for nothing but the disk;
//! - bytes that found no memory are dropped before a request waits for memory.

use std::sync::Arc;

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

/// Runs an attempt until it is done: on a thread that may wait, with a permit for readers, and
/// again after more memory was reserved.
pub(crate) async fn read<T, W>(
    shared: &Shared,
    reservation: Reservation,
    work: W,
) -> Result<(T, Reservation), Problem>
where
    T: Send + 'static,
    W: FnMut(&mut Reservation) -> Result<Attempt<T>, Problem> + Send + 'static,
{
    let mut state = (reservation, work);
    loop {
        let permit = Arc::clone(&shared.readers).acquire_owned().await;
        let (attempt, after) = offload::run(move || {
            let (mut reservation, mut work) = state;
            let attempt = work(&mut reservation)?;
            drop(permit);
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

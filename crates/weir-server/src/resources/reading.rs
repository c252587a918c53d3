//! Reading records for an answer: few at a time, and only with memory for what comes of it.
//!
//! The threads of `Shared::readers` do it, few at a time and with a lower priority than the thread
//! that serves the sockets and the one that commits, so that a thousand readers neither keep
//! those from a processor nor hold a thousand blocks that nobody takes. Short blocks that are in
//! memory need none of them.
//!
//! Invariants:
//! - a block of more than [`BLOCK_BYTES_FREE`] bytes is covered before it is read;
//! - bytes that found no memory are dropped before a request waits for memory.

use weir_store::TopicReader;

use crate::http::exchange::busy;
use crate::http::offload;
use crate::http::problem::Problem;
use crate::limits::BLOCK_BYTES_FREE;
use crate::limits::budget::Reservation;
use crate::shared::Shared;

/// Covers the next block of a reader and its rendering, beside the `held` bytes that were made of
/// other blocks. `Some`: the reservation lacks so many bytes, and the block must not be read.
pub(crate) fn lacks_block(
    reader: &TopicReader,
    held: usize,
    reservation: &mut Reservation,
) -> Option<usize> {
    let block = reader.next_page_bytes();
    if block <= BLOCK_BYTES_FREE {
        return None;
    }
    // In base64 it takes a third more.
    let bytes = held + 2 * block + block / 3;
    (!reservation.try_cover(bytes)).then_some(bytes)
}

/// Bytes of a block beside a value, which need no reservation.
const BLOCK_HEAD_BYTES: usize = 1 << 10;

/// As [`lacks_block`], for a value that is sent from the block itself.
pub(crate) fn lacks_bytes(reader: &TopicReader, reservation: &mut Reservation) -> Option<usize> {
    let block = reader.next_page_bytes();
    let bytes = block.saturating_sub(BLOCK_HEAD_BYTES);
    (block > BLOCK_BYTES_FREE && !reservation.try_cover(bytes)).then_some(bytes)
}

/// What became of an attempt to read.
pub(crate) enum Attempt<T> {
    /// It is complete, and covered by the reservation.
    Done(T),
    /// Nothing was kept: so many bytes must be covered first.
    Lacks(usize),
}

/// Runs an attempt until it is done: on a thread of the readers, and again after more memory
/// was reserved. BUSY when no thread was free within two seconds.
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
        let permit = shared.readers.permit().await.map_err(busy)?;
        let done = shared.readers.run(move || {
            let (mut reservation, mut work) = state;
            let attempt = work(&mut reservation)?;
            drop(permit);
            Ok((attempt, (reservation, work)))
        });
        let done = done.await.map_err(|_| offload::ended())?;
        let (attempt, after) = done?;
        state = after;
        match attempt {
            Attempt::Done(made) => return Ok((made, state.0)),
            Attempt::Lacks(bytes) => state.0.cover(bytes).await.map_err(busy)?,
        }
    }
}

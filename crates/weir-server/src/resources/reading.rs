//! Reads records for a response, with a bound on concurrency and memory.
//!
//! The threads of `Shared::readers` run these reads. They are few, and have a lower priority than
//! the threads that serve the sockets and commit. So a thousand readers neither use up the
//! processors nor hold a thousand unsent blocks. Short blocks in memory are read without these
//! threads.
//!
//! Invariants:
//! - A block of more than [`BLOCK_BYTES_FREE`] bytes is reserved before it is read.
//! - A request drops bytes without a reservation before it waits for memory.

use weir_store::TopicReader;

use crate::http::exchange::busy;
use crate::http::offload;
use crate::http::problem::Problem;
use crate::limits::BLOCK_BYTES_FREE;
use crate::limits::budget::Reservation;
use crate::shared::Shared;

/// Reserves memory for the next block of a reader and its rendering, in addition to `held` bytes
/// that other blocks produced. Returns the missing bytes if they are not free; then the block must
/// not be read.
pub(crate) fn reserve_block(
    reader: &TopicReader,
    held: usize,
    reservation: &mut Reservation,
) -> Option<usize> {
    let block = reader.next_page_bytes();
    if block <= BLOCK_BYTES_FREE {
        return None;
    }
    // Base64 needs a third more.
    let bytes = held + 2 * block + block / 3;
    (!reservation.try_cover(bytes)).then_some(bytes)
}

/// Bytes of a block around a value, which need no reservation.
const BLOCK_HEAD_BYTES: usize = 1 << 10;

/// As [`reserve_block`], for a value that is sent from the block itself.
pub(crate) fn reserve_value(reader: &TopicReader, reservation: &mut Reservation) -> Option<usize> {
    let block = reader.next_page_bytes();
    let bytes = block.saturating_sub(BLOCK_HEAD_BYTES);
    (block > BLOCK_BYTES_FREE && !reservation.try_cover(bytes)).then_some(bytes)
}

/// Result of an attempt to read.
pub(crate) enum Attempt<T> {
    /// The attempt is complete, and its memory is reserved.
    Done(T),
    /// Nothing is retained: this many bytes must be reserved first.
    NeedsMemory(usize),
}

/// Runs an attempt on a reader thread, and repeats it with more memory until it is complete. Fails
/// with BUSY if no thread or no memory is free within two seconds.
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
        let result = shared.readers.run(move || {
            let (mut reservation, mut work) = state;
            let attempt = work(&mut reservation)?;
            drop(permit);
            Ok((attempt, (reservation, work)))
        });
        let result = result.await.map_err(|_| offload::panicked())?;
        let (attempt, next_state) = result?;
        state = next_state;
        match attempt {
            Attempt::Done(result) => return Ok((result, state.0)),
            Attempt::NeedsMemory(bytes) => state.0.cover(bytes).await.map_err(busy)?,
        }
    }
}

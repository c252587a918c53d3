//! The items of a body that is still arriving, in order.
//!
//! Invariants:
//! - Memory contains one item, and the bytes that arrived with it.
//! - All of this memory is reserved.

use bytes::Bytes;

use crate::http::exchange::{Input, body_problem, busy};
use crate::http::problem::Problem;
use crate::limits::budget::Reservation;
use crate::resources::framing::Framing;

/// Reads the items of a body that is still arriving. Holds one item and the bytes that arrived with
/// it.
pub(super) struct ItemStream<'a> {
    pub(super) input: Input<'a>,
    /// Memory for the item, and for items that are not written yet.
    pub(super) reservation: Reservation,
    pub(super) buffer: Vec<u8>,
    pub(super) from: usize,
    pub(super) is_end: bool,
}

impl ItemStream<'_> {
    /// Whether the next item may have to arrive first.
    pub(super) fn is_arriving(&self) -> bool {
        !self.is_end && matches!(self.input, Input::Source(_))
    }

    /// Returns the position of the next item in the buffer, and how many bytes it used.
    /// `pending_bytes` is the memory of earlier items.
    pub(super) async fn item(
        &mut self,
        framing: Framing,
        value_max: usize,
        pending_bytes: usize,
    ) -> Result<Option<(std::ops::Range<usize>, usize)>, Problem> {
        let delimiter = if framing == Framing::Lines {
            b'\n'
        } else {
            0x1e
        };
        let mut seen = self.from;
        loop {
            let rest = self.buffer.get(seen..).unwrap_or_default();
            if let Some(at) = rest.iter().position(|byte| *byte == delimiter) {
                let end = seen + at;
                let range = self.from..end;
                let used = end + 1 - self.from;
                self.from = end + 1;
                return Ok(Some((range, used)));
            }
            if self.is_end {
                let range = self.from..self.buffer.len();
                self.from = self.buffer.len();
                return Ok((!range.is_empty()).then(|| (range.clone(), range.len())));
            }
            self.buffer.drain(..self.from);
            self.from = 0;
            if self.buffer.len() > value_max.saturating_mul(2) + (64 << 10) {
                return Err(Problem::too_large("an item", value_max));
            }
            seen = self.buffer.len();
            // Items that were written use no memory.
            self.reservation.shrink(seen + pending_bytes);
            let is_large = self.reservation.is_held();
            let piece = match &mut self.input {
                Input::Whole(bytes) => {
                    Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty())
                }
                Input::Source(source) => {
                    source.require_minimum_rate(is_large);
                    let piece = source.next().await.map_err(body_problem)?;
                    let more = piece.as_ref().map_or(0, Bytes::len);
                    let covered = self.reservation.cover(seen + more + pending_bytes).await;
                    covered.map_err(busy)?;
                    piece
                }
            };
            match piece {
                Some(piece) => self.buffer.extend_from_slice(&piece),
                None => self.is_end = true,
            }
        }
    }
}

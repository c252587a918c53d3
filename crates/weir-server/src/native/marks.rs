//! Marks: positions up to which the listeners of a connection have sent all records.
//!
//! Invariant: the position of a mark is read from the store before the listeners are checked. So
//! every record up to it was sent before the mark, or belongs to a listener that the mark lists as
//! lagging. A pause between marks keeps a busy store from sending one for each batch.

use std::time::{Duration, Instant};

use weir_core::IntentionOffset;
use weir_protocol::{Encoder, Message, Packet};
use weir_store::Store;

use super::buffer::Outgoing;

/// Pause between two marks.
const MARK_PAUSE: Duration = Duration::from_millis(20);

/// The positions of the store before the listeners are checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    applied: IntentionOffset,
    settled: IntentionOffset,
    created: IntentionOffset,
}

/// The last mark that was sent, and whether the next one is due.
#[derive(Debug, Default)]
pub(super) struct ProgressMarks {
    /// Whether any listener wants marks.
    wanted: bool,
    /// A listener was added that has no mark yet.
    is_new: bool,
    sent: Option<(IntentionOffset, usize)>,
    checked: Option<Instant>,
}

impl ProgressMarks {
    /// Records that a listener was added.
    pub(super) fn add_listener(&mut self, wants_marks: bool) {
        self.wanted |= wants_marks;
        self.is_new |= wants_marks;
    }

    /// Reads the positions of the store, before the listeners are checked.
    pub(super) fn read_positions(&self, store: &Store) -> Option<Mark> {
        self.wanted.then(|| Mark {
            // In this order, because a value that is read later is at least as new.
            settled: store.applied(),
            created: store.newest_topic(),
            applied: store.applied(),
        })
    }

    /// Whether a mark is due.
    pub(super) fn is_due(&self, mark: &Mark, sent: bool) -> bool {
        let waited = self.checked.is_none_or(|at| at.elapsed() >= MARK_PAUSE);
        let has_changed = self
            .sent
            .is_none_or(|(sent, lagging)| sent < mark.settled || lagging > 0);
        self.is_new || (has_changed && (sent || waited))
    }

    /// Sends the mark, which lists `lagging` as lagging. Returns false if there was nothing new to
    /// send.
    pub(super) fn send(
        &mut self,
        mark: &Mark,
        is_wanted: bool,
        lagging: &[&[u8]],
        encoder: &mut Encoder,
        out: &mut Outgoing,
    ) -> bool {
        self.wanted = is_wanted;
        self.checked = Some(Instant::now());
        let sent = Some((mark.settled, lagging.len()));
        if !is_wanted || (!self.is_new && self.sent == sent) {
            return false;
        }
        self.is_new = false;
        self.sent = sent;
        let lagging = lagging.join(&b'\n');
        let message = Message::AppliedResponse {
            applied: mark.applied.0,
            settled: mark.settled.0,
            created: mark.created.0,
            lagging: &lagging,
        };
        encoder.encode(&Packet::new(message), &mut out.bytes);
        true
    }

    /// Time of the next check.
    pub(super) fn next_check(&self) -> Option<Instant> {
        if !self.wanted {
            return None;
        }
        Some(self.checked.map_or_else(Instant::now, |at| at + MARK_PAUSE))
    }
}

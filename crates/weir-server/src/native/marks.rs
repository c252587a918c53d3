//! Marks: up to which intention the listeners of a connection have everything.
//!
//! Invariant: a mark is what the store had settled before the listeners were
//! looked at, so that every record up to it is in front of the mark or belongs
//! to a listener that the mark excepts. Marks have a pause, so that a busy store
//! does not send one for each batch.

use std::time::{Duration, Instant};

use weir_core::IntentionOffset;
use weir_protocol::{Encoder, Message, Packet};
use weir_store::Store;

use super::buffer::Outgoing;

/// Pause between two marks that nothing else asks for.
const MARK_PAUSE: Duration = Duration::from_millis(20);

/// How far the store had got when a look began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    applied: IntentionOffset,
    settled: IntentionOffset,
    created: IntentionOffset,
}

/// The last mark that a connection was sent, and whether the next one is due.
#[derive(Debug, Default)]
pub(super) struct ProgressMarks {
    /// Whether any listener wants them.
    wanted: bool,
    /// A listener came that was told nothing.
    news: bool,
    told: Option<(IntentionOffset, usize)>,
    looked: Option<Instant>,
}

impl ProgressMarks {
    /// A listener came.
    pub(super) fn renew(&mut self, wants: bool) {
        self.wanted |= wants;
        self.news |= wants;
    }

    /// What holds before the listeners are looked at.
    pub(super) fn begin(&self, store: &Store) -> Option<Mark> {
        self.wanted.then(|| Mark {
            // What is made later may be known earlier, not the other way.
            settled: store.applied(),
            created: store.newest_topic(),
            applied: store.applied(),
        })
    }

    /// Whether it is time to tell.
    pub(super) fn is_due(&self, mark: &Mark, sent: bool) -> bool {
        let waited = self.looked.is_none_or(|at| at.elapsed() >= MARK_PAUSE);
        let moved = self
            .told
            .is_none_or(|(told, lagging)| told < mark.settled || lagging > 0);
        self.news || (moved && (sent || waited))
    }

    /// Tells it; these listeners are excepted. False when nothing was said.
    pub(super) fn send(
        &mut self,
        mark: &Mark,
        any: bool,
        lagging: &[&[u8]],
        encoder: &mut Encoder,
        out: &mut Outgoing,
    ) -> bool {
        self.wanted = any;
        self.looked = Some(Instant::now());
        let told = Some((mark.settled, lagging.len()));
        if !any || (!self.news && self.told == told) {
            return false;
        }
        self.news = false;
        self.told = told;
        let lagging = lagging.join(&b'\n');
        let message = Message::AppliedIs {
            applied: mark.applied.0,
            settled: mark.settled.0,
            created: mark.created.0,
            lagging: &lagging,
        };
        encoder.encode(&Packet::new(message), &mut out.bytes);
        true
    }

    /// When it is looked at again.
    pub(super) fn due(&self) -> Option<Instant> {
        if !self.wanted {
            return None;
        }
        Some(self.looked.map_or_else(Instant::now, |at| at + MARK_PAUSE))
    }
}

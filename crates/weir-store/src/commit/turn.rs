//! Decides when the commit thread admits the slow lane beside other work.

use std::time::{Duration, Instant};

/// Percentage of time that the slow lane may use for its applies while other callers propose
/// batches. It may use all the time while there are no other callers.
const SLOW_SHARE_PERCENT: u32 = 25;
/// Other callers count as waiting for this long after their last batch, because a caller needs a
/// moment before its next call.
const OTHERS_ACTIVE_FOR: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(super) struct SlowTurn {
    /// When the slow lane may have its next turn while others have work.
    due: Option<Instant>,
    /// Until when other callers count as waiting.
    others_until: Option<Instant>,
}

impl SlowTurn {
    /// Records that a batch of the quick lane was taken.
    pub(super) fn record_others(&mut self, now: Instant) {
        self.others_until = now.checked_add(OTHERS_ACTIVE_FOR);
    }

    /// Records that applying batches of the slow lane took `time`.
    pub(super) fn record_apply(&mut self, time: Duration, now: Instant) {
        if !time.is_zero() {
            let pause = time * (100 - SLOW_SHARE_PERCENT) / SLOW_SHARE_PERCENT;
            self.due = now.checked_add(pause);
        }
    }

    /// When the slow lane has its next turn; not before `now`.
    pub(super) fn due_at(&self, now: Instant) -> Instant {
        let not_before_now = |at: Option<Instant>| at.map_or(now, |at| at.max(now));
        not_before_now(self.due).min(not_before_now(self.others_until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_lane_pauses_only_while_others_are_active() {
        let ms = Duration::from_millis;
        let start = Instant::now();
        let mut turn = SlowTurn::default();
        assert_eq!(turn.due_at(start), start);
        turn.record_apply(ms(2), start);
        assert_eq!(turn.due_at(start), start, "no other caller is active");
        turn.record_others(start);
        assert_eq!(
            turn.due_at(start),
            start + ms(6),
            "three times as long as it took"
        );
        assert_eq!(turn.due_at(start + ms(4)), start + ms(6));
        turn.record_apply(ms(50), start);
        assert_eq!(
            turn.due_at(start + ms(4)),
            start + ms(10),
            "the other callers are no longer active"
        );
        assert_eq!(turn.due_at(start + ms(10)), start + ms(10));
    }
}

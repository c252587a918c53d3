//! When the commit thread admits the slow lane beside other work.

use std::time::{Duration, Instant};

/// Share of the time that the slow lane may take for its applies while others
/// propose batches; all of it while nobody else does.
const SLOW_SHARE_PERCENT: u32 = 25;
/// Others count as waiting for this long after their last batch: a caller that
/// was answered needs a moment for its next call.
const OTHERS_FOR: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(super) struct SlowTurn {
    /// When the slow lane may have its next turn beside others.
    due: Option<Instant>,
    /// When somebody else is not taken into account any more.
    others_until: Option<Instant>,
}

impl SlowTurn {
    /// A batch of the quick lane was taken.
    pub(super) fn others(&mut self, now: Instant) {
        self.others_until = now.checked_add(OTHERS_FOR);
    }

    /// Batches of the slow lane were applied, and took so long.
    pub(super) fn used(&mut self, time: Duration, now: Instant) {
        if !time.is_zero() {
            let pause = time * (100 - SLOW_SHARE_PERCENT) / SLOW_SHARE_PERCENT;
            self.due = now.checked_add(pause);
        }
    }

    /// Time until the slow lane has its next turn.
    pub(super) fn due_in(&self, now: Instant) -> Duration {
        let left = |at: Option<Instant>| at.map_or(Duration::ZERO, |at| at - now.min(at));
        left(self.due).min(left(self.others_until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_lane_pauses_for_others_and_only_for_them() {
        let ms = Duration::from_millis;
        let start = Instant::now();
        let mut turn = SlowTurn::default();
        assert_eq!(turn.due_in(start), ms(0));
        turn.used(ms(2), start);
        assert_eq!(turn.due_in(start), ms(0), "nobody else is there");
        turn.others(start);
        assert_eq!(turn.due_in(start), ms(6), "three times as long as it took");
        assert_eq!(turn.due_in(start + ms(4)), ms(2));
        turn.used(ms(50), start);
        assert_eq!(turn.due_in(start + ms(4)), ms(6), "the others have gone");
        assert_eq!(turn.due_in(start + ms(10)), ms(0));
    }
}

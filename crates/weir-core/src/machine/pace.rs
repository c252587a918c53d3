//! How much of a batch is applied in one piece, and what its calls count for.
//!
//! What must never happen here: a time that decides what comes of a call. It
//! decides when a call is judged, and by which thread.

use super::deferred::COSTLY_FUEL;
use crate::ids::TopicId;

/// How much of a batch is applied in one piece.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Items at most.
    pub items_max: u32,
    /// Ends behind the item with which its programs have used as much.
    pub fuel_max: u64,
    /// Whether it ends behind a costly call, and before one of a program that
    /// was costly lately or that nobody knows.
    pub stops: bool,
}

/// A call that took long, or may.
#[derive(Clone, Copy, Debug)]
pub struct Costly {
    /// The topic whose program was called; none where a program begins.
    pub topic: Option<TopicId>,
    /// What it used; 0 for one that stands before the next item.
    pub fuel: u64,
}

/// Tells how many nanoseconds have passed, for scheduling only.
pub type Watch<'a> = &'a mut dyn FnMut() -> u64;

/// Looks at the watch behind the first call of a slice and behind every so many
/// more, fewer while they take long: a look costs as much as a short call.
pub(super) struct Pace<'a> {
    watch: Watch<'a>,
    /// When it was looked at last.
    pub(super) now: u64,
    /// Calls until it is looked at again, and how many there were from then on.
    left: u64,
    stride: u64,
    /// Something that called no program was applied since then.
    plain: bool,
}

impl<'a> Pace<'a> {
    /// Calls between two looks.
    const STRIDE_MAX: u64 = 8;

    pub(super) fn new(watch: Watch<'a>) -> Self {
        Self {
            watch,
            now: 0,
            left: 1,
            stride: 1,
            plain: false,
        }
    }

    /// A call comes: what was applied before it is not its time.
    pub(super) fn before_call(&mut self) {
        if std::mem::take(&mut self.plain) {
            self.now = (self.watch)();
            (self.left, self.stride) = (1, 1);
        }
    }

    /// What a call that used this fuel counts for. Time counts no further than
    /// to be costly: it may have been somebody else's.
    pub(super) fn of_call(&mut self, fuel: u64) -> u64 {
        if fuel == 0 {
            self.plain = true;
            return 0;
        }
        self.left -= 1;
        if self.left > 0 {
            return fuel;
        }
        let now = (self.watch)();
        let took = now.saturating_sub(self.now) / self.stride;
        self.now = now;
        self.stride = if took < COSTLY_FUEL / 16 {
            Self::STRIDE_MAX.min(2 * self.stride)
        } else {
            1
        };
        self.left = self.stride;
        fuel.max(took.min(COSTLY_FUEL))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_time_of_plain_items_is_not_that_of_the_next_call() {
        let now = Cell::new(0);
        let mut watch = || now.get();
        let mut pace = Pace::new(&mut watch);
        let pass = |time: u64| now.set(now.get() + time);
        for _ in 0..10 {
            pass(3 * COSTLY_FUEL);
            assert_eq!(pace.of_call(0), 0);
            pace.before_call();
            pass(1_000);
            assert_eq!(pace.of_call(10), 1_000);
        }
        // One that does take long is seen, behind plain ones as well.
        assert_eq!(pace.of_call(0), 0);
        pace.before_call();
        pass(2 * COSTLY_FUEL);
        assert_eq!(pace.of_call(10), COSTLY_FUEL);
    }
}

//! Pauses between the parts of a log or snapshot that a leader sends to a member that catches up
//! (docs/decisions/0096).
//!
//! Invariants: only a member without a vote that lacks many entries is throttled; without writes
//! there is no pause; the sum of the pauses of one catch-up is bounded.

use std::time::Duration;

use tokio::time::Instant;
use weir_store::LogIndex;

/// A member that lacks at most this many entries is not throttled.
const NEAR_ENTRIES: u64 = 256;
/// A pause is this many times as long as the transfer of the part before it.
const PAUSE_FACTOR: u32 = 2;
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Limit on the sum of the pauses of one client. A snapshot and the entries of the log have separate
/// clients, so a catch-up may pause for twice this time.
const PAUSES_MAX: Duration = Duration::from_mins(1);
/// Time after the last growth of the log until which clients are assumed to write.
const WRITING: Duration = Duration::from_millis(100);

/// Whether a member that has all entries up to `sent` lacks many entries of a log up to `newest`.
pub(crate) fn is_far_behind(sent: LogIndex, newest: LogIndex) -> bool {
    newest.0.saturating_sub(sent.0) > NEAR_ENTRIES
}

/// The state of one catch-up.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    /// The newest entry of the log after the last part.
    newest: Option<LogIndex>,
    /// When the log was last found to have grown.
    grown: Option<Instant>,
    /// End of the last pause: the read of the next part begins then.
    resumed: Option<Instant>,
    /// Sum of the pauses.
    paused: Duration,
}

impl Throttle {
    /// The pause after a part that was sent from `begun` to `now`. `newest` is the newest entry of
    /// the log.
    pub(crate) fn pause(&mut self, begun: Instant, now: Instant, newest: LogIndex) -> Duration {
        if self.newest.is_some_and(|before| before < newest) {
            self.grown = Some(now);
        }
        self.newest = Some(newest);
        let is_written = self
            .grown
            .is_some_and(|grown| now.duration_since(grown) <= WRITING);
        let begun = self.resumed.unwrap_or(begun);
        let pause = if is_written {
            let pause = now.duration_since(begun).saturating_mul(PAUSE_FACTOR);
            pause
                .min(PAUSE_MAX)
                .min(PAUSES_MAX.saturating_sub(self.paused))
        } else {
            Duration::ZERO
        };
        self.paused += pause;
        self.resumed = Some(now + pause);
        pause
    }

    #[cfg(test)]
    pub(crate) fn has_paused(&self) -> bool {
        !self.paused.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn only_a_member_that_lacks_many_entries_is_far_behind() {
        let is_far = |sent, newest| is_far_behind(LogIndex(sent), LogIndex(newest));
        assert!(is_far(0, NEAR_ENTRIES + 1) && is_far(7, NEAR_ENTRIES + 8));
        assert!(!is_far(0, NEAR_ENTRIES) && !is_far(7, NEAR_ENTRIES + 7) && !is_far(9, 8));
    }

    #[test]
    fn a_part_is_followed_by_twice_its_time_while_the_log_grows() {
        let start = Instant::now();
        let mut throttle = Throttle::default();
        // It is not known yet whether clients write.
        let first = throttle.pause(start, start + 10 * MS, LogIndex(1_000));
        assert_eq!(first, Duration::ZERO);
        // The read of the second part began when the first one was sent.
        let second = throttle.pause(start + 13 * MS, start + 20 * MS, LogIndex(1_001));
        assert_eq!(second, 20 * MS);
        // The pause until 40 ms does not count as a transfer. The log grew 25 ms ago.
        let third = throttle.pause(start + 41 * MS, start + 45 * MS, LogIndex(1_001));
        assert_eq!(third, 10 * MS);
        // It has not grown for more than 100 ms.
        let fourth = throttle.pause(start + 56 * MS, start + 121 * MS, LogIndex(1_001));
        assert_eq!(fourth, Duration::ZERO);
        let fifth = throttle.pause(start + 122 * MS, start + 141 * MS, LogIndex(1_002));
        assert_eq!(fifth, 40 * MS);
    }

    #[test]
    fn one_pause_and_the_sum_of_all_pauses_are_bounded() {
        let mut now = Instant::now();
        let mut throttle = Throttle::default();
        let mut pauses = Vec::new();
        for newest in 0..100 {
            let begun = now;
            now += Duration::from_secs(2);
            let pause = throttle.pause(begun, now, LogIndex(newest));
            now += pause;
            pauses.push(pause);
        }
        assert_eq!(pauses.iter().max(), Some(&PAUSE_MAX));
        assert_eq!(pauses.iter().sum::<Duration>(), PAUSES_MAX);
        assert_eq!(pauses.last(), Some(&Duration::ZERO));
    }
}

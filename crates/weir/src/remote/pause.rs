//! The pauses between retries of a client.
//!
//! Invariant: a pause is at least as long as the server requested, and ends within the patience of
//! the caller.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

use weir_core::ErrorCode;
use weir_protocol::{Message, Packet, is_retryable};

/// First pause before a retry.
pub(super) const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// Longest pause, unless the server names one.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Shortest pause after the second and each later refusal by a cluster without a leader.
const LEADER_PAUSE_MIN: Duration = Duration::from_millis(10);
/// Longest pause while a cluster has no leader, unless the server names a longer one.
const LEADER_PAUSE_MAX: Duration = Duration::from_millis(100);

/// The pause after refusal number `number` (from 0) of a series. The server requested a pause of
/// `requested`. A transfer of leadership takes some milliseconds, an election about a second.
pub(super) fn pause_after_refusal(
    requested: Duration,
    code: Option<ErrorCode>,
    number: u32,
) -> Duration {
    if code != Some(ErrorCode::NoLeader) {
        return requested;
    }
    let longest = requested.max(LEADER_PAUSE_MAX);
    let first = if number == 0 {
        requested
    } else {
        requested.max(LEADER_PAUSE_MIN)
    };
    first.saturating_mul(1 << number.min(8)).min(longest)
}

/// A random number from 0 to 1.
pub(super) fn random_fraction() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

/// The pauses of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackOff {
    pause: Duration,
    refusals: u32,
    /// Whether the request is sent again until the node has applied the intention that it names.
    until_applied: bool,
}

impl Default for BackOff {
    fn default() -> Self {
        Self {
            pause: PAUSE_FIRST,
            refusals: 0,
            until_applied: false,
        }
    }
}

impl BackOff {
    /// `until_applied`: the request is also sent again after `LAGGING`.
    pub(super) fn of_request(until_applied: bool) -> Self {
        Self {
            until_applied,
            ..Self::default()
        }
    }

    /// The pause before the request is sent again. `None` if the answer is final, or if no time is
    /// left.
    pub(super) fn of(&mut self, answer: &Packet<'_>, until: Option<Instant>) -> Option<Duration> {
        let Message::Refusal(refusal) = &answer.message else {
            return None;
        };
        let code = refusal.code()?;
        let waits = self.until_applied && code == ErrorCode::Lagging;
        if !(is_retryable(code) || waits) || code == ErrorCode::Redirect {
            return None;
        }
        let requested = refusal.retry_ms.map(Duration::from_millis);
        let requested =
            requested.map(|requested| pause_after_refusal(requested, Some(code), self.refusals));
        self.refusals = self.refusals.saturating_add(1);
        let pause = requested.unwrap_or(self.pause);
        if requested.is_none() {
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        // A part of the pause is random, so that clients do not retry at the same time.
        let pause = pause.saturating_add(pause.mul_f64(random_fraction() / 8.0));
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        left.is_none_or(|left| pause < left).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_for_a_leader_grow_to_a_limit_and_others_are_those_of_the_server() {
        let ms = Duration::from_millis;
        let leader = |requested, number| {
            pause_after_refusal(ms(requested), Some(ErrorCode::NoLeader), number)
        };
        assert_eq!(
            [leader(10, 0), leader(10, 1), leader(10, 3)],
            [ms(10), ms(20), ms(80)]
        );
        assert_eq!([leader(10, 4), leader(10, u32::MAX)], [ms(100), ms(100)]);
        assert_eq!([leader(0, 0), leader(0, 1)], [ms(0), ms(20)]);
        assert_eq!(leader(700, 9), ms(700));
        assert_eq!(
            pause_after_refusal(ms(10), Some(ErrorCode::Busy), 5),
            ms(10)
        );
    }
}

//! The clock of a store: its time stamps records and ends leases.
//!
//! The time advances with the monotonic clock. A jump of the wall clock therefore ends no lease
//! early or late and expires no session (docs/operating/clocks.md).
//!
//! Invariants:
//!
//! - The time never goes back, within a run or over restarts.
//! - The time is at most [`TIME_AHEAD_MS_MAX`] ahead of the monotonic clock, until a wall clock
//!   that jumped has kept its new time for [`ACCEPT_JUMP_AFTER`].
//! - All opens together add at most [`CLOSED_MS_MAX`] to the newest stamps, plus one minute for
//!   each open. The sum starts again when a process has agreed with the wall clock for
//!   [`ACCEPT_JUMP_AFTER`]. The bound does not apply if the caller trusts the wall clock.

use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_core::exact::to_u32;

/// Maximum number of milliseconds by which the wall clock may be ahead of the store's time and
/// still be followed at once.
pub const TIME_AHEAD_MS_MAX: u64 = 1_000;
/// After a jump, the time for which the wall clock must keep its new time before the store accepts
/// it. Measured on the monotonic clock.
pub const ACCEPT_JUMP_AFTER: Duration = Duration::from_mins(10);
/// Maximum number of milliseconds that opens may add because the wall clock alone shows that the
/// store was closed. It bounds the sum of all opens since a run confirmed the time, and is half of
/// the time after which an idle session expires.
pub const CLOSED_MS_MAX: u64 = weir_core::limits::SESSION_TTL_MS / 2;

/// Source of time; tests replace it.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Milliseconds since 1970-01-01 UTC; may jump in both directions.
    fn wall_ms(&self) -> u64;
    /// Time since a fixed moment in the past. Never goes back, and advances while the machine
    /// sleeps.
    fn monotonic(&self) -> Duration;
}

/// The clocks of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall_ms(&self) -> u64 {
        now_ms()
    }

    fn monotonic(&self) -> Duration {
        #[cfg(target_os = "linux")]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let id = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(id);
        let seconds = time.tv_sec.cast_unsigned();
        Duration::new(
            seconds,
            to_u32(time.tv_nsec, "a second has 10^9 nanoseconds"),
        )
    }
}

/// Milliseconds of the wall clock since 1970-01-01 UTC; 0 if the clock shows an earlier time.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Difference between the wall clock and the newest stamp when a store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReport {
    /// Milliseconds by which the wall clock is ahead of the time that the store started with. The
    /// store accepts the wall clock after [`ACCEPT_JUMP_AFTER`], or at once if the caller asks for
    /// it.
    pub ahead_ms: u64,
    /// Milliseconds by which the wall clock is before the newest stamp. The store continues from
    /// that stamp.
    pub back_ms: u64,
}

/// The clock of an open store.
#[derive(Debug)]
pub(crate) struct StoreClock {
    source: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The store's time when the monotonic clock showed `base`.
    base_ms: u64,
    base: Duration,
    /// The newest time that was returned.
    last_ms: u64,
    jump: Option<Jump>,
    /// The moment since which the wall clock agrees with the store's time.
    agrees_since: Option<Duration>,
    /// Opens have moved the time, and no run has confirmed it yet.
    is_unconfirmed: bool,
}

/// A time that the wall clock jumped to.
#[derive(Clone, Copy, Debug)]
struct Jump {
    /// When the wall clock jumped, and the time that it showed then.
    since: Duration,
    wall_ms: u64,
}

impl StoreClock {
    /// Continues after the newest stamp of the log (0 for an empty log), and moves the time by at
    /// most `move_ms_max`.
    pub(crate) fn new(
        source: Arc<dyn Clock>,
        newest_ms: u64,
        move_ms_max: u64,
    ) -> (Self, ClockReport) {
        let (wall_ms, base) = (source.wall_ms(), source.monotonic());
        let most_ms = match newest_ms {
            0 => u64::MAX,
            newest_ms => newest_ms.saturating_add(move_ms_max),
        };
        let base_ms = wall_ms.clamp(newest_ms, most_ms);
        let report = ClockReport {
            ahead_ms: wall_ms.saturating_sub(base_ms),
            back_ms: newest_ms.saturating_sub(wall_ms),
        };
        let state = Mutex::new(State {
            base_ms,
            base,
            last_ms: base_ms,
            jump: None,
            agrees_since: None,
            is_unconfirmed: false,
        });
        (Self { source, state }, report)
    }

    /// Records that opens have moved the time and that a run must confirm it.
    pub(crate) fn await_confirmation(&self) {
        self.state.lock().is_unconfirmed = true;
    }

    /// Whether the wall clock has agreed with the store's time for [`ACCEPT_JUMP_AFTER`]. Returns
    /// `true` once after [`await_confirmation`](Self::await_confirmation).
    pub(crate) fn take_confirmation(&self) -> bool {
        let now = self.source.monotonic();
        let mut state = self.state.lock();
        let agreed = |since: Duration| now.saturating_sub(since) >= ACCEPT_JUMP_AFTER;
        let confirmed = state.is_unconfirmed && state.agrees_since.is_some_and(agreed);
        state.is_unconfirmed &= !confirmed;
        confirmed
    }

    /// The store's time, milliseconds since 1970-01-01 UTC.
    pub(crate) fn now_ms(&self) -> u64 {
        let (wall_ms, now) = (self.source.wall_ms(), self.source.monotonic());
        let mut state = self.state.lock();
        let steady_ms = state.base_ms.saturating_add(millis(now, state.base));
        let ahead_ms = wall_ms.saturating_sub(steady_ms);
        let time_ms = if ahead_ms <= TIME_AHEAD_MS_MAX {
            if state.jump.take().is_some() {
                tracing::info!("the wall clock is back near the time of the store");
            }
            let is_behind = steady_ms.saturating_sub(wall_ms) > TIME_AHEAD_MS_MAX;
            state.agrees_since = match state.agrees_since {
                _ if is_behind => None,
                since => since.or(Some(now)),
            };
            wall_ms.max(steady_ms)
        } else if state.accepts_jump(wall_ms, now, ahead_ms) {
            (state.base_ms, state.base) = (wall_ms, now);
            // The wall clock has agreed with itself since the jump.
            state.agrees_since = state.jump.take().map(|jump| jump.since);
            tracing::warn!(
                ahead_ms,
                "the wall clock has run steadily for ten minutes and is accepted"
            );
            wall_ms
        } else {
            state.agrees_since = None;
            steady_ms
        };
        state.last_ms = state.last_ms.max(time_ms);
        state.last_ms
    }
}

impl State {
    /// Whether the wall clock has kept the time that it jumped to for [`ACCEPT_JUMP_AFTER`].
    fn accepts_jump(&mut self, wall_ms: u64, now: Duration, ahead_ms: u64) -> bool {
        let kept = self.jump.filter(|jump| {
            let expected_ms = jump.wall_ms.saturating_add(millis(now, jump.since));
            wall_ms.abs_diff(expected_ms) <= TIME_AHEAD_MS_MAX
        });
        let Some(jump) = kept else {
            tracing::warn!(
                ahead_ms,
                "the wall clock is ahead of the time of the store; it is accepted when it has run \
                 steadily for ten minutes"
            );
            self.jump = Some(Jump {
                since: now,
                wall_ms,
            });
            return false;
        };
        now.saturating_sub(jump.since) >= ACCEPT_JUMP_AFTER
    }
}

/// Milliseconds from `since` to `now`.
fn millis(now: Duration, since: Duration) -> u64 {
    u64::try_from(now.saturating_sub(since).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const START_MS: u64 = 1_790_000_000_000;
    const HOUR_MS: u64 = 3_600_000;

    /// Both clocks, advanced by the test.
    #[derive(Debug, Default)]
    struct ByHand {
        wall_ms: AtomicU64,
        monotonic_ms: AtomicU64,
    }

    impl ByHand {
        fn new(wall_ms: u64) -> Arc<Self> {
            let clock = Self::default();
            clock.wall_ms.store(wall_ms, Ordering::SeqCst);
            Arc::new(clock)
        }

        /// Advances both clocks, as real time does.
        fn pass(&self, ms: u64) {
            self.wall_ms.fetch_add(ms, Ordering::SeqCst);
            self.monotonic_ms.fetch_add(ms, Ordering::SeqCst);
        }

        fn jump_to(&self, wall_ms: u64) {
            self.wall_ms.store(wall_ms, Ordering::SeqCst);
        }
    }

    impl Clock for ByHand {
        fn wall_ms(&self) -> u64 {
            self.wall_ms.load(Ordering::SeqCst)
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.monotonic_ms.load(Ordering::SeqCst))
        }
    }

    fn clock(
        newest_ms: u64,
        wall_ms: u64,
        believe: bool,
    ) -> (Arc<ByHand>, StoreClock, ClockReport) {
        let source = ByHand::new(wall_ms);
        let most = if believe { u64::MAX } else { CLOSED_MS_MAX };
        let (clock, report) = StoreClock::new(Arc::clone(&source) as _, newest_ms, most);
        (source, clock, report)
    }

    #[test]
    fn it_follows_a_wall_clock_that_is_right() {
        let (source, clock, report) = clock(0, START_MS, false);
        assert_eq!(report, ClockReport::default());
        source.pass(5_000);
        assert_eq!(clock.now_ms(), START_MS + 5_000);
        source.jump_to(START_MS + 5_000 + TIME_AHEAD_MS_MAX);
        assert_eq!(clock.now_ms(), START_MS + 5_000 + TIME_AHEAD_MS_MAX);
    }

    #[test]
    fn a_jump_forward_and_back_leaves_nothing() {
        let (source, clock, _) = clock(0, START_MS, false);
        source.pass(1_000);
        source.jump_to(START_MS + 25 * HOUR_MS);
        assert_eq!(clock.now_ms(), START_MS + 1_000);
        source.jump_to(START_MS + 1_000 + TIME_AHEAD_MS_MAX + 1);
        assert_eq!(clock.now_ms(), START_MS + 1_000, "one past the bound");
        source.jump_to(START_MS + 1_000);
        source.pass(1_000);
        assert_eq!(clock.now_ms(), START_MS + 2_000);
    }

    #[test]
    fn a_jump_back_does_not_stop_it() {
        let (source, clock, _) = clock(0, START_MS, false);
        source.jump_to(START_MS - 25 * HOUR_MS);
        source.pass(1_500);
        assert_eq!(clock.now_ms(), START_MS + 1_500);
    }

    #[test]
    fn a_jump_that_lasts_is_believed_after_a_while() {
        let (source, clock, _) = clock(0, START_MS, false);
        source.jump_to(START_MS + 25 * HOUR_MS);
        assert_eq!(clock.now_ms(), START_MS);
        let long = u64::try_from(ACCEPT_JUMP_AFTER.as_millis()).unwrap();
        source.pass(long - 1);
        assert_eq!(clock.now_ms(), START_MS + long - 1);
        source.pass(1);
        assert_eq!(clock.now_ms(), START_MS + 25 * HOUR_MS + long);
    }

    #[test]
    fn an_open_believes_half_of_the_life_of_a_session() {
        let (_, clock_, report) = clock(START_MS, START_MS + CLOSED_MS_MAX, false);
        assert_eq!(
            (clock_.now_ms(), report.ahead_ms),
            (START_MS + CLOSED_MS_MAX, 0)
        );
        let wall_ms = START_MS + 25 * HOUR_MS;
        let (_, clock_, report) = clock(START_MS, wall_ms, false);
        assert_eq!(clock_.now_ms(), START_MS + CLOSED_MS_MAX);
        assert_eq!(report.ahead_ms, 13 * HOUR_MS);
        let (_, clock_, report) = clock(START_MS, wall_ms, true);
        assert_eq!((clock_.now_ms(), report.ahead_ms), (wall_ms, 0));
        // After an open with a wall clock that was wrong, the store continues from its newest
        // stamp.
        let (source, clock_, report) = clock(START_MS, START_MS - HOUR_MS, true);
        assert_eq!(report.back_ms, HOUR_MS);
        source.pass(1);
        assert_eq!(clock_.now_ms(), START_MS + 1);
    }
}

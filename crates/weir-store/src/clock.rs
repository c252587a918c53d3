//! The clock of a store: its time stamps records and ends leases.
//!
//! The time advances with the monotonic clock. A jump of the wall clock therefore ends no lease
//! early or late and expires no session (docs/operating/clocks.md).
//!
//! Invariants:
//!
//! - The time never goes back, within a run or over restarts. Before the start of the clock,
//!   readers see a time that can go back; no stamp depends on it.
//! - The time is at most [`TIME_AHEAD_MS_MAX`] ahead of the monotonic clock, until a wall clock
//!   that jumped has kept its new time for [`ACCEPT_JUMP_AFTER`].
//! - All opens together add at most [`CLOSED_MS_MAX`] to the newest stamps, plus one minute for
//!   each open. If the wall clock jumps after the first reading, the open does not add the jump. The
//!   sum starts again when a process has agreed with the wall clock for [`ACCEPT_JUMP_AFTER`]. The
//!   bound does not apply if the caller trusts the wall clock.

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

/// Source of time; tests replace it, and a node of a cluster bounds it.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Milliseconds since 1970-01-01 UTC; may jump in both directions. 0 if it is not known yet:
    /// the time then advances with the monotonic clock alone.
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

/// Difference between the wall clock and the newest stamp when a store was opened. All fields are
/// 0 for a node of a cluster, whose wall clock is not known at its open.
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
    /// The store's time when the monotonic clock showed `base`; 0 in a store without stamps.
    base_ms: u64,
    base: Duration,
    /// The newest time that was returned.
    last_ms: u64,
    /// Before the start: the maximum number of milliseconds by which the start may move the time.
    start_ms_max: Option<u64>,
    /// Before the start: the first known wall clock. It shows how long the store was closed.
    first: Option<WallReading>,
    /// When the wall clock jumped.
    jump: Option<WallReading>,
    /// The moment since which the wall clock agrees with the store's time.
    agrees_since: Option<Duration>,
    /// Opens have moved the time, and no run has confirmed it yet.
    is_unconfirmed: bool,
}

/// The time that the wall clock showed at a moment.
#[derive(Clone, Copy, Debug)]
struct WallReading {
    at: Duration,
    wall_ms: u64,
}

impl WallReading {
    /// The time that the wall clock shows at a later moment, if it has not jumped since.
    fn expected_ms(self, now: Duration) -> u64 {
        self.wall_ms.saturating_add(millis(now, self.at))
    }
}

impl StoreClock {
    /// Continues after the newest stamp of the log (0 for an empty log). [`start`](Self::start)
    /// then moves the time by at most `start_ms_max`; `u64::MAX` if the caller trusts the wall
    /// clock.
    pub(crate) fn new(source: Arc<dyn Clock>, newest_ms: u64, start_ms_max: u64) -> Self {
        let state = Mutex::new(State {
            base_ms: newest_ms,
            base: source.monotonic(),
            last_ms: newest_ms,
            start_ms_max: Some(start_ms_max),
            first: None,
            jump: None,
            agrees_since: None,
            is_unconfirmed: false,
        });
        Self { source, state }
    }

    /// Moves the time to the wall clock, once, by the time for which the store was closed. Returns
    /// `None` if this was done before, or if the wall clock is not known yet. `record_move` receives
    /// the number of milliseconds, unless the caller trusts the wall clock; if it returns `false`,
    /// the time is not moved.
    ///
    /// The open calls this, then only the thread that stamps, before it stamps. `newest_ms` is the
    /// newest stamp.
    pub(crate) fn start(
        &self,
        newest_ms: u64,
        record_move: impl FnOnce(u64) -> bool,
    ) -> Option<ClockReport> {
        let is_trusted = self.state.lock().start_ms_max? == u64::MAX;
        let (wall_ms, now) = (self.source.wall_ms(), self.source.monotonic());
        let (steady_ms, start_ms, has_stamps) = {
            let mut state = self.state.lock();
            let steady_ms = state.steady_ms(newest_ms, now);
            let start_ms = state.start_ms(wall_ms, steady_ms, now)?;
            (steady_ms, start_ms, state.base_ms > 0)
        };
        // Nothing expires in a store without stamps.
        let moved_ms = if has_stamps { start_ms - steady_ms } else { 0 };
        let start_ms = if is_trusted || record_move(moved_ms) {
            start_ms
        } else {
            steady_ms
        };
        let mut state = self.state.lock();
        state.base_ms = state.steady_ms(0, now).max(start_ms);
        state.base = now;
        state.start_ms_max = None;
        Some(ClockReport {
            ahead_ms: wall_ms.saturating_sub(start_ms),
            back_ms: steady_ms.saturating_sub(wall_ms),
        })
    }

    /// Whether the clock has started. Later calls of [`start`](Self::start) do not move the time.
    pub(crate) fn has_started(&self) -> bool {
        self.state.lock().start_ms_max.is_none()
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

    /// The store's time, milliseconds since 1970-01-01 UTC. `newest_ms` is the newest stamp.
    pub(crate) fn now_ms(&self, newest_ms: u64) -> u64 {
        let (wall_ms, now) = (self.source.wall_ms(), self.source.monotonic());
        let mut state = self.state.lock();
        let steady_ms = state.steady_ms(newest_ms, now);
        if state.start_ms_max.is_some() {
            let agrees = wall_ms.abs_diff(steady_ms) <= TIME_AHEAD_MS_MAX;
            if !agrees || state.base_ms == 0 {
                // No stamp depends on this time: the thread that stamps starts the clock before.
                return state.start_ms(wall_ms, steady_ms, now).unwrap_or(steady_ms);
            }
            // The time for which the store was closed is in the stamps of another node. If the wall
            // clock is ahead later, it has jumped.
            state.start_ms_max = None;
            state.is_unconfirmed = true;
        }
        let ahead_ms = wall_ms.saturating_sub(steady_ms);
        let time_ms = if ahead_ms <= TIME_AHEAD_MS_MAX {
            // An unknown wall clock does not show whether the jump has ended.
            if wall_ms > 0 && state.jump.take().is_some() {
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
            state.agrees_since = state.jump.take().map(|jump| jump.at);
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
    /// The time that the monotonic clock alone gives. Continues from the newest stamp if another
    /// node chose that stamp: this clock has not returned it.
    fn steady_ms(&mut self, newest_ms: u64, now: Duration) -> u64 {
        let steady_ms = self.base_ms.saturating_add(millis(now, self.base));
        if newest_ms <= steady_ms.max(self.last_ms) {
            return steady_ms;
        }
        (self.base_ms, self.base) = (newest_ms, now);
        newest_ms
    }

    /// The time that the clock starts with. `None` if it has started, or if the wall clock is not
    /// known.
    fn start_ms(&mut self, wall_ms: u64, steady_ms: u64, now: Duration) -> Option<u64> {
        let start_ms_max = self.start_ms_max.filter(|_| wall_ms > 0)?;
        if self.base_ms == 0 || start_ms_max == u64::MAX {
            return Some(wall_ms.max(steady_ms));
        }
        let most_ms = steady_ms.saturating_add(start_ms_max);
        let first = *self.first.get_or_insert_with(|| {
            if wall_ms > most_ms {
                let ahead_ms = wall_ms - most_ms;
                tracing::warn!(
                    ahead_ms,
                    "the wall clock is further ahead of the newest timestamp than a restart may \
                     move the time of the store; check the date, or start with `--believe-clock`"
                );
            }
            WallReading { at: now, wall_ms }
        });
        let most_ms = most_ms.min(first.expected_ms(now)).max(steady_ms);
        Some(wall_ms.clamp(steady_ms, most_ms))
    }

    /// Whether the wall clock has kept the time that it jumped to for [`ACCEPT_JUMP_AFTER`].
    fn accepts_jump(&mut self, wall_ms: u64, now: Duration, ahead_ms: u64) -> bool {
        let kept = self
            .jump
            .filter(|jump| wall_ms.abs_diff(jump.expected_ms(now)) <= TIME_AHEAD_MS_MAX);
        let Some(jump) = kept else {
            tracing::warn!(
                ahead_ms,
                "the wall clock is ahead of the time of the store; it is accepted when it has run \
                 steadily for ten minutes"
            );
            self.jump = Some(WallReading { at: now, wall_ms });
            return false;
        };
        now.saturating_sub(jump.at) >= ACCEPT_JUMP_AFTER
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
    struct ManualClock {
        wall_ms: AtomicU64,
        monotonic_ms: AtomicU64,
    }

    impl ManualClock {
        fn new(wall_ms: u64) -> Arc<Self> {
            let clock = Self::default();
            clock.wall_ms.store(wall_ms, Ordering::SeqCst);
            Arc::new(clock)
        }

        /// Advances both clocks, as real time does.
        fn advance(&self, ms: u64) {
            self.wall_ms.fetch_add(ms, Ordering::SeqCst);
            self.monotonic_ms.fetch_add(ms, Ordering::SeqCst);
        }

        fn jump_to(&self, wall_ms: u64) {
            self.wall_ms.store(wall_ms, Ordering::SeqCst);
        }
    }

    impl Clock for ManualClock {
        fn wall_ms(&self) -> u64 {
            self.wall_ms.load(Ordering::SeqCst)
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.monotonic_ms.load(Ordering::SeqCst))
        }
    }

    fn start_clock(
        newest_ms: u64,
        wall_ms: u64,
        trusts_wall_clock: bool,
    ) -> (Arc<ManualClock>, StoreClock, ClockReport) {
        let source = ManualClock::new(wall_ms);
        let most = if trusts_wall_clock {
            u64::MAX
        } else {
            CLOSED_MS_MAX
        };
        let clock = StoreClock::new(Arc::clone(&source) as _, newest_ms, most);
        let report = clock.start(newest_ms, |_| true).unwrap();
        (source, clock, report)
    }

    #[test]
    fn the_time_follows_a_correct_wall_clock() {
        let (source, clock, report) = start_clock(0, START_MS, false);
        assert_eq!(report, ClockReport::default());
        source.advance(5_000);
        assert_eq!(clock.now_ms(0), START_MS + 5_000);
        source.jump_to(START_MS + 5_000 + TIME_AHEAD_MS_MAX);
        assert_eq!(clock.now_ms(0), START_MS + 5_000 + TIME_AHEAD_MS_MAX);
    }

    #[test]
    fn a_jump_forward_and_back_does_not_change_the_time() {
        let (source, clock, _) = start_clock(0, START_MS, false);
        source.advance(1_000);
        source.jump_to(START_MS + 25 * HOUR_MS);
        assert_eq!(clock.now_ms(0), START_MS + 1_000);
        source.jump_to(START_MS + 1_000 + TIME_AHEAD_MS_MAX + 1);
        assert_eq!(clock.now_ms(0), START_MS + 1_000, "one past the bound");
        source.jump_to(START_MS + 1_000);
        source.advance(1_000);
        assert_eq!(clock.now_ms(0), START_MS + 2_000);
    }

    #[test]
    fn a_jump_back_does_not_stop_the_time() {
        let (source, clock, _) = start_clock(0, START_MS, false);
        source.jump_to(START_MS - 25 * HOUR_MS);
        source.advance(1_500);
        assert_eq!(clock.now_ms(0), START_MS + 1_500);
    }

    #[test]
    fn a_jump_that_lasts_is_accepted_after_ten_minutes() {
        let (source, clock, _) = start_clock(0, START_MS, false);
        source.jump_to(START_MS + 25 * HOUR_MS);
        assert_eq!(clock.now_ms(0), START_MS);
        let long = u64::try_from(ACCEPT_JUMP_AFTER.as_millis()).unwrap();
        source.advance(long - 1);
        assert_eq!(clock.now_ms(0), START_MS + long - 1);
        source.advance(1);
        assert_eq!(clock.now_ms(0), START_MS + 25 * HOUR_MS + long);
    }

    #[test]
    fn an_open_adds_at_most_half_of_the_life_of_a_session() {
        let (_, clock, report) = start_clock(START_MS, START_MS + CLOSED_MS_MAX, false);
        assert_eq!(
            (clock.now_ms(0), report.ahead_ms),
            (START_MS + CLOSED_MS_MAX, 0)
        );
        let wall_ms = START_MS + 25 * HOUR_MS;
        let (_, clock, report) = start_clock(START_MS, wall_ms, false);
        assert_eq!(clock.now_ms(0), START_MS + CLOSED_MS_MAX);
        assert_eq!(report.ahead_ms, 13 * HOUR_MS);
        let (_, clock, report) = start_clock(START_MS, wall_ms, true);
        assert_eq!((clock.now_ms(0), report.ahead_ms), (wall_ms, 0));
        // After an open with a wall clock that was wrong, the store continues from its newest
        // stamp.
        let (source, clock, report) = start_clock(START_MS, START_MS - HOUR_MS, true);
        assert_eq!(report.back_ms, HOUR_MS);
        source.advance(1);
        assert_eq!(clock.now_ms(0), START_MS + 1);
    }

    /// A node of a cluster knows its wall clock only after a majority has reported its clocks.
    #[test]
    fn an_unknown_wall_clock_does_not_move_the_time() {
        let source = ManualClock::new(0);
        let clock = StoreClock::new(Arc::clone(&source) as _, START_MS, CLOSED_MS_MAX);
        let advance = |ms| source.monotonic_ms.fetch_add(ms, Ordering::SeqCst);
        advance(5_000);
        assert_eq!(clock.start(0, |_| unreachable!()), None);
        assert_eq!(clock.now_ms(0), START_MS + 5_000);
        // A stamp of another leader; the time continues from it.
        let stamp_ms = START_MS + HOUR_MS;
        assert_eq!(clock.now_ms(stamp_ms), stamp_ms);
        advance(5_000);
        assert_eq!(clock.now_ms(stamp_ms), stamp_ms + 5_000);
        // Readers see the time that the clock will start with.
        source.jump_to(START_MS + 25 * HOUR_MS);
        let start_ms = stamp_ms + 5_000 + CLOSED_MS_MAX;
        assert_eq!(clock.now_ms(stamp_ms), start_ms);
        let mut recorded_ms = 0;
        let report = clock.start(stamp_ms, |moved_ms| {
            recorded_ms = moved_ms;
            true
        });
        assert_eq!(recorded_ms, CLOSED_MS_MAX);
        assert_eq!(report.unwrap().ahead_ms, START_MS + 25 * HOUR_MS - start_ms);
        advance(1);
        assert_eq!(clock.now_ms(stamp_ms), start_ms + 1);
        assert_eq!(clock.start(stamp_ms, |_| unreachable!()), None, "once");
    }

    /// The first known wall clock shows how long the store was closed.
    #[test]
    fn a_jump_before_the_first_stamp_is_not_time_that_the_store_was_closed() {
        let source = ManualClock::new(0);
        let clock = StoreClock::new(Arc::clone(&source) as _, START_MS, CLOSED_MS_MAX);
        source.jump_to(START_MS + HOUR_MS);
        assert_eq!(clock.now_ms(START_MS), START_MS + HOUR_MS);
        assert!(!clock.has_started(), "nothing was stamped yet");
        source.advance(2 * HOUR_MS);
        source.jump_to(START_MS + 10 * HOUR_MS);
        let mut recorded_ms = 0;
        let report = clock.start(START_MS, |moved_ms| {
            recorded_ms = moved_ms;
            true
        });
        let start_ms = START_MS + 3 * HOUR_MS;
        assert_eq!((recorded_ms, clock.now_ms(START_MS)), (HOUR_MS, start_ms));
        assert_eq!(report.unwrap().ahead_ms, START_MS + 10 * HOUR_MS - start_ms);
    }

    /// The time that an open may add does not cover a jump while the node follows a leader.
    #[test]
    fn a_node_that_agrees_with_the_stamps_of_a_leader_has_started() {
        let source = ManualClock::new(0);
        let clock = StoreClock::new(Arc::clone(&source) as _, START_MS, CLOSED_MS_MAX);
        let stamp_ms = START_MS + HOUR_MS;
        source.jump_to(stamp_ms);
        assert_eq!(clock.now_ms(START_MS), stamp_ms);
        assert!(
            !clock.has_started(),
            "the stamps are an hour older than the wall clock"
        );
        assert_eq!(clock.now_ms(stamp_ms), stamp_ms);
        assert!(clock.has_started());
        source.jump_to(stamp_ms + HOUR_MS);
        assert_eq!(clock.start(stamp_ms, |_| unreachable!()), None);
        assert_eq!(clock.now_ms(stamp_ms), stamp_ms);
    }

    #[test]
    fn a_jump_is_remembered_while_the_wall_clock_is_unknown() {
        let (source, clock, _) = start_clock(0, START_MS, false);
        let (jumped_ms, long) = (START_MS + 25 * HOUR_MS, ACCEPT_JUMP_AFTER.as_millis());
        let long = u64::try_from(long).unwrap();
        source.jump_to(jumped_ms);
        assert_eq!(clock.now_ms(0), START_MS);
        source.jump_to(0);
        assert_eq!(clock.now_ms(0), START_MS);
        source.jump_to(jumped_ms);
        source.advance(long);
        assert_eq!(clock.now_ms(0), jumped_ms + long);
    }

    #[test]
    fn a_store_without_stamps_starts_with_any_wall_clock() {
        let source = ManualClock::new(0);
        let clock = StoreClock::new(Arc::clone(&source) as _, 0, 0);
        source.advance(5_000);
        source.jump_to(START_MS);
        let report = clock.start(0, |moved_ms| moved_ms == 0);
        assert_eq!(report, Some(ClockReport::default()));
        assert_eq!(clock.now_ms(0), START_MS);
    }

    /// Stamps of this clock are no reason to follow a wall clock that runs fast.
    #[test]
    fn own_stamps_do_not_move_the_time() {
        let (source, clock, _) = start_clock(START_MS, START_MS, false);
        source.jump_to(START_MS + TIME_AHEAD_MS_MAX);
        let stamp_ms = clock.now_ms(START_MS);
        assert_eq!(stamp_ms, START_MS + TIME_AHEAD_MS_MAX);
        source.jump_to(START_MS + TIME_AHEAD_MS_MAX + 1);
        assert_eq!(clock.now_ms(stamp_ms), stamp_ms);
        source.jump_to(START_MS);
        source.monotonic_ms.fetch_add(500, Ordering::SeqCst);
        assert_eq!(clock.now_ms(stamp_ms), stamp_ms);
    }
}

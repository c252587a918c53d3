//! Wakes tasks at given times. One thread serves the process; it starts at the first use.
//!
//! Invariants:
//! - The thread sleeps until the earliest deadline, and wakes only for an
//!   earlier one, so that a distant deadline costs no context switch.
//! - The thread does not wait or call foreign code while it holds the lock.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

static CLOCK: Clock = Clock {
    state: Mutex::new(State {
        alarms: BTreeMap::new(),
        last: 0,
        wakes: None,
        runs: false,
    }),
    earlier: Condvar::new(),
};

struct Clock {
    state: Mutex<State>,
    earlier: Condvar,
}

struct State {
    alarms: BTreeMap<(Instant, u64), Waker>,
    last: u64,
    /// When the thread wakes by itself; `None`: only when it is notified.
    wakes: Option<Instant>,
    runs: bool,
}

fn lock() -> MutexGuard<'static, State> {
    CLOCK.state.lock()
}

/// A time at which a task is woken, at most once.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<(Instant, u64)>);

impl Alarm {
    /// Wakes the task at `at`. Replaces the time set before.
    pub(crate) fn set(&mut self, at: Instant, waker: &Waker) {
        let mut state = lock();
        if let Some(before) = self.0.take() {
            state.alarms.remove(&before);
        }
        state.last += 1;
        let key = (at, state.last);
        state.alarms.insert(key, waker.clone());
        self.0 = Some(key);
        if !state.runs {
            let thread = std::thread::Builder::new().name("weir-clock".into());
            state.runs = thread.spawn(run).is_ok();
        }
        if state.wakes.is_none_or(|wakes| at < wakes) {
            CLOCK.earlier.notify_one();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(key) = self.0.take() {
            lock().alarms.remove(&key);
        }
    }
}

fn run() {
    let mut state = lock();
    loop {
        let now = Instant::now();
        while let Some(entry) = state.alarms.first_entry()
            && entry.key().0 <= now
        {
            let waker = entry.remove();
            drop(state);
            // The waker is foreign code: its panic must not end the clock thread.
            let woken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
            drop(woken);
            state = lock();
        }
        state.wakes = state.alarms.keys().next().map(|(at, _)| *at);
        match state.wakes {
            None => CLOCK.earlier.wait(&mut state),
            Some(at) => {
                CLOCK.earlier.wait_until(&mut state, at);
            }
        }
    }
}

/// A future that completes at a given time.
pub(crate) struct Until {
    at: Instant,
    alarm: Alarm,
}

impl Until {
    pub(crate) fn new(at: Instant) -> Self {
        Self {
            at,
            alarm: Alarm::default(),
        }
    }
}

impl Future for Until {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.at {
            return Poll::Ready(());
        }
        let at = self.at;
        self.alarm.set(at, context.waker());
        Poll::Pending
    }
}

//! Deadlines and cancellation of calls that wait.
//!
//! A call that waits for a server ends when its deadline passes or when another thread cancels it.
//!
//! Invariants:
//! - A wait without a deadline lasts as long as the patience of the connection.
//! - A write that was sent, and for whose verdict the call no longer waits, is reported as
//!   `INDETERMINATE`.
//! - A claim is not abandoned while its response is in transit.
//! - A call of a session, or of a write that it sent, ends after its store was closed, although the
//!   session has a connection of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use weir::{ErrorCode, Outcomes, Proposal, interruptible};

use crate::error::Fail;

/// How often a wait checks whether it must end.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The deadline and cancellation of a handle of a store, and of everything opened through it.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// Whether the handle is derived from another handle.
    pub(crate) derived: bool,
    /// Longest wait of a call for a server.
    pub(crate) limit: Option<Duration>,
    /// Set when every wait must end.
    pub(crate) cancelled: AtomicBool,
    /// The scope of the parent handle, and the number of scopes above this one.
    above: Option<(Arc<Self>, usize)>,
}

/// Largest depth of handles that are derived from one another.
const DEPTH_MAX: usize = 64;

impl Scope {
    /// The scope of a handle that is derived from the handle with this scope.
    pub(crate) fn within(self: &Arc<Self>, limit: Option<Duration>) -> Result<Self, Fail> {
        let depth = self.above.as_ref().map_or(0, |(_, depth)| *depth) + 1;
        if depth > DEPTH_MAX {
            return Err(Fail::of(ErrorCode::TooManyHandles));
        }
        Ok(Self {
            derived: true,
            limit: [limit, self.limit].into_iter().flatten().min(),
            cancelled: AtomicBool::new(false),
            above: Some((Arc::clone(self), depth)),
        })
    }

    /// Whether this scope, or one above it, was cancelled.
    pub(crate) fn is_over(&self) -> bool {
        let mut scope = self;
        loop {
            if scope.cancelled.load(Ordering::Acquire) {
                return true;
            }
            let Some((above, _)) = &scope.above else {
                return false;
            };
            scope = above;
        }
    }
}

/// Something that can end a wait.
pub(crate) trait CancelSource {
    /// Whether the wait must end.
    fn is_over(&self) -> bool;

    /// As `is_over`, and clears a cancellation that applies to one call only.
    fn take(&self) -> bool {
        self.is_over()
    }

    /// After the store was closed: how long a sent write may still wait for its verdict. `None`
    /// while the store is open, and if the close itself ends the waits.
    fn drain_limit(&self) -> Option<Duration> {
        None
    }
}

/// When the waits of one call must end.
pub(crate) struct WaitContext {
    end: Option<Instant>,
    every: Duration,
    watch: Option<Arc<dyn CancelSource>>,
}

fn check_cancelled(watch: &dyn CancelSource) -> Result<(), Fail> {
    if watch.take() {
        return Err(Fail::of(ErrorCode::Cancelled));
    }
    Ok(())
}

impl WaitContext {
    /// For a call that begins now.
    pub(crate) fn new(scope: &Scope, watch: Option<Arc<dyn CancelSource>>) -> Self {
        let limit = scope.limit;
        let every = limit.map_or(CHECK_INTERVAL, |limit| limit.min(CHECK_INTERVAL));
        Self {
            end: limit.and_then(|limit| Instant::now().checked_add(limit)),
            every: every.max(Duration::from_millis(1)),
            watch,
        }
    }

    /// Whether a deadline or another thread can end the waits.
    pub(crate) fn can_end(&self) -> bool {
        self.end.is_some() || self.watch.is_some()
    }

    /// Runs `call`, which waits for a server.
    ///
    /// # Errors
    /// Those of the call; `Cancelled`, `Deadline` or `Closed` if the wait ended early.
    pub(crate) fn run<T>(&self, call: impl FnOnce() -> Result<T, Fail>) -> Result<T, Fail> {
        self.run_until_ended(call, |is_cancelled| {
            Fail::of(if is_cancelled {
                ErrorCode::Cancelled
            } else {
                ErrorCode::Deadline
            })
        })
    }

    /// As `run`, for a write. If the wait ended early, the write may still be executed:
    /// `Indeterminate`.
    pub(crate) fn write<T>(&self, call: impl FnOnce() -> Result<T, Fail>) -> Result<T, Fail> {
        self.run_until_ended(call, |_| Fail::of(ErrorCode::Indeterminate))
    }

    /// Runs `call`. If the wait ended early, returns `Closed` if the store was closed, else the error
    /// of `ended`, whose argument is whether the wait was cancelled.
    fn run_until_ended<T>(
        &self,
        call: impl FnOnce() -> Result<T, Fail>,
        ended: impl FnOnce(bool) -> Fail,
    ) -> Result<T, Fail> {
        let Some(watch) = &self.watch else {
            return call();
        };
        check_cancelled(&**watch)?;
        let (source, end) = (Arc::clone(watch), self.end);
        let must_end = move || {
            source.is_over()
                || source.drain_limit().is_some()
                || end.is_some_and(|end| end <= Instant::now())
        };
        match interruptible(self.every, Arc::new(must_end), call) {
            Err(fail) if fail.code == ErrorCode::Cancelled => {
                let is_cancelled = watch.take();
                if !is_cancelled && watch.drain_limit().is_some() {
                    return Err(Fail::of(ErrorCode::Closed));
                }
                Err(ended(is_cancelled))
            }
            done => done,
        }
    }

    /// Waits for verdicts, also those of a local store.
    pub(crate) fn verdicts(&self, mut proposal: Proposal) -> Result<Outcomes, Fail> {
        let Some(watch) = &self.watch else {
            return Ok(proposal.wait()?);
        };
        let mut end = self.end;
        loop {
            let left = |end: Instant| end.saturating_duration_since(Instant::now());
            let time = end.map_or(self.every, |end| left(end).min(self.every));
            proposal = match proposal.wait_for(time) {
                Ok(outcomes) => return Ok(outcomes?),
                Err(proposal) => proposal,
            };
            let now = Instant::now();
            if watch.take() || end.is_some_and(|end| end <= now) {
                return Err(Fail::of(ErrorCode::Indeterminate));
            }
            // Later rounds do not extend it: the earlier time applies.
            if let Some(limit) = watch.drain_limit() {
                end = [end, now.checked_add(limit)].into_iter().flatten().min();
            }
        }
    }
}

/// Whether a wait in a handle must end: because it was cancelled, because the handle was released,
/// or because the store was closed.
#[derive(Debug)]
pub(crate) struct CancelToken {
    cancelled: AtomicBool,
    freed: AtomicBool,
    closed: Arc<AtomicBool>,
    scope: Arc<Scope>,
    /// How often a wait checks it.
    every: Duration,
    /// As `every`, while a request to a server has no response; `None` if the request ends by
    /// itself.
    unanswered: Option<Duration>,
    /// How long a sent write waits for its verdict after the store was closed; `None` if the close
    /// ends the waits.
    drain: Option<Duration>,
    /// When this time ends. A wait that notices the close sets it.
    drain_end: OnceLock<Option<Instant>>,
}

impl CancelSource for CancelToken {
    fn is_over(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
            || self.freed.load(Ordering::Acquire)
            || self.scope.is_over()
    }

    fn take(&self) -> bool {
        // The token ends one call; the other conditions end all calls. The token is not read again
        // after the swap: a token set in between would end both this call and the next one.
        self.cancelled.swap(false, Ordering::AcqRel)
            || self.freed.load(Ordering::Acquire)
            || self.scope.is_over()
    }

    fn drain_limit(&self) -> Option<Duration> {
        self.drain.filter(|_| self.is_closed())
    }
}

impl CancelToken {
    /// The token of a handle that is opened in this scope. `every` is the pause between two checks
    /// of the token. `closed` is set when the store of the scope is closed.
    pub(crate) fn new(
        (closed, scope): (&Arc<AtomicBool>, &Arc<Scope>),
        every: Duration,
        unanswered: Option<Duration>,
        drain: Option<Duration>,
    ) -> Arc<Self> {
        Arc::new(Self {
            cancelled: AtomicBool::new(false),
            freed: AtomicBool::new(false),
            closed: Arc::clone(closed),
            scope: Arc::clone(scope),
            every,
            unanswered,
            drain,
            drain_end: OnceLock::new(),
        })
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Whether the store was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Fails if the store was closed.
    pub(crate) fn check_open(&self) -> Result<(), Fail> {
        if self.is_closed() {
            return Err(Fail::of(ErrorCode::Closed));
        }
        Ok(())
    }

    /// Whether the store was closed so long ago that no verdict is awaited.
    fn is_drained(&self, now: Instant) -> bool {
        let Some(limit) = self.drain_limit() else {
            return false;
        };
        let end = self.drain_end.get_or_init(|| now.checked_add(limit));
        end.is_some_and(|end| end <= now)
    }

    pub(crate) fn free(&self) {
        self.freed.store(true, Ordering::Release);
    }

    /// For a call without a timeout that begins now.
    pub(crate) fn wait_context(self: &Arc<Self>) -> WaitContext {
        WaitContext::new(&self.scope, Some(Arc::<Self>::clone(self)))
    }

    /// Calls `attempt` until it returns a value or the timeout passes. Its argument is the time until
    /// which it may wait; `None` means that it must not wait.
    pub(crate) fn wait<T>(
        self: &Arc<Self>,
        timeout_ms: u64,
        mut attempt: impl FnMut(Option<Instant>) -> Result<Option<T>, Fail>,
    ) -> Result<Option<T>, Fail> {
        self.wait_on(timeout_ms, |until| {
            self.check_open()?;
            attempt(until)
        })
    }

    /// As `wait`, but continues after the store was closed: at a session of a server, until the time for
    /// verdicts after the close has ended.
    pub(crate) fn wait_on<T>(
        self: &Arc<Self>,
        timeout_ms: u64,
        mut attempt: impl FnMut(Option<Instant>) -> Result<Option<T>, Fail>,
    ) -> Result<Option<T>, Fail> {
        let begun = Instant::now();
        let end = begun.checked_add(Duration::from_millis(timeout_ms));
        // Fetching an available result has no deadline except that of the handle.
        let deadline = match timeout_ms {
            0 => self.scope.limit.and_then(|limit| begun.checked_add(limit)),
            _ => end,
        };
        check_cancelled(&**self)?;
        let mut until = None;
        loop {
            let found = match self.unanswered {
                None => attempt(until)?,
                Some(every) => {
                    let token = Arc::clone(self);
                    let is_late = move || deadline.is_some_and(|end| end <= Instant::now());
                    let must_end = move || token.is_over() || is_late();
                    match interruptible(every, Arc::new(must_end), || attempt(until)) {
                        Err(fail) if fail.code == ErrorCode::Cancelled => {
                            check_cancelled(&**self)?;
                            if timeout_ms == 0 {
                                return Err(Fail::of(ErrorCode::Deadline));
                            }
                            None
                        }
                        found => found?,
                    }
                }
            };
            if found.is_some() {
                return Ok(found);
            }
            check_cancelled(&**self)?;
            let now = Instant::now();
            if self.is_drained(now) {
                return Err(Fail::of(ErrorCode::Indeterminate));
            }
            if end.is_some_and(|end| end <= now) {
                return Ok(None);
            }
            let next_check = now.checked_add(self.every);
            until = [end, next_check].into_iter().flatten().min();
        }
    }
}

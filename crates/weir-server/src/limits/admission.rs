//! Limits the writes that wait for the store at a time.
//!
//! `Store::propose` blocks while the queue of the store is full, which would stop a whole reactor
//! thread. So this module counts the bytes of proposals without a verdict. HTTP refuses a request
//! that would exceed the limit; the native port stops reading. The limit is below that of the
//! queue, so `propose` never blocks.
//!
//! A write of the native port that does not fit takes priority after some attempts ([`NextWrite`]).
//! Otherwise, smaller writes could use all released bytes for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_store::Proposal;

use crate::limits::budget::{BudgetExhausted, MemoryBudget};
use crate::limits::memory::MemoryLimits;

/// Texts for clients when a limit is reached.
const BODIES_USED_UP: [&str; 2] = [
    "the memory for incomplete bodies is used up (bodies_budget)",
    "incomplete bodies of the principal use half of the memory for bodies (bodies_budget)",
];
pub(crate) const ANSWERS_USED_UP: &str = "the memory for responses is used up (answers_budget)";
const ANSWERS_SHARE_USED_UP: &str =
    "responses to the principal use half of the memory for responses (answers_budget)";
pub(crate) const LISTENERS_USED_UP: &str =
    "the memory for keys and queries of listeners is used up (answers_budget)";

/// Maximum number of claims of groups that wait for costly calls; each one occupies a thread.
pub(crate) const COSTLY_CLAIMS_MAX: usize = 64;

/// Maximum number of writes with programs that are compiled at a time. Each one holds its memory
/// until it is compiled.
pub(crate) const COMPILES_MAX: usize = 2;

/// Longest wait for a permit to compile.
const COMPILE_WAIT: Duration = Duration::from_secs(10);

/// The counters, shared by all ports of a server.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    limits: MemoryLimits,
    bytes: Arc<AtomicUsize>,
    costly: Arc<AtomicUsize>,
    priority: Arc<Priority>,
    costly_priority: Arc<Priority>,
    costly_claims: Arc<AtomicUsize>,
    /// Unfinished packets and bodies, of all connections of all ports together.
    pub(crate) bodies: MemoryBudget,
    /// Responses that wait for their readers.
    pub(crate) answers: MemoryBudget,
    /// Keys and queries of the listeners of all connections of the native port.
    pub(crate) listeners: MemoryBudget,
    /// HTTP/2 streams in addition to the first one of each connection.
    streams: Arc<AtomicUsize>,
    compiles: Arc<Semaphore>,
}

impl Default for Admission {
    fn default() -> Self {
        Self::new(MemoryLimits::default())
    }
}

/// A budget and its use, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) used_name: &'static str,
    pub(crate) used: usize,
    pub(crate) max_name: &'static str,
    pub(crate) max: usize,
}

/// Admission of a number of bytes, released when dropped. The caller must hold it until the
/// proposal has a verdict.
#[derive(Debug)]
pub(crate) struct Permit {
    counter: Arc<AtomicUsize>,
    amount: usize,
    /// The priority of the write, if it has waited for it.
    _priority: Option<PriorityGuard>,
}

/// A write with priority. Its bytes are counted before it is admitted, so that other writes do
/// not use bytes that are released meanwhile.
#[derive(Debug)]
pub(crate) struct NextWrite {
    permit: Permit,
    max: usize,
}

impl NextWrite {
    /// Admits the write if it fits. A write above the limit is admitted when no other is in
    /// progress.
    pub(crate) fn admit(self: Box<Self>) -> Result<Permit, Box<Self>> {
        let counted = self.permit.counter.load(Ordering::Acquire);
        if counted <= self.max.max(self.permit.amount) {
            Ok(self.permit)
        } else {
            Err(self)
        }
    }
}

/// The right of one waiting write to be admitted next.
#[derive(Debug, Default)]
struct Priority(Mutex<PriorityTimes>);

#[derive(Debug, Default)]
struct PriorityTimes {
    /// When a write took priority; `None`: no write has it.
    since: Option<Instant>,
    /// When the next write may take it.
    next: Option<Instant>,
}

impl PriorityTimes {
    /// Takes priority; `false`: another write has it, or had it a short time ago.
    fn begin(&mut self, now: Instant) -> bool {
        let is_free = self.since.is_none() && self.next.is_none_or(|next| next <= now);
        if is_free {
            self.since = Some(now);
        }
        is_free
    }

    /// Ends the priority. The next write can take it after a pause of three times its length, so
    /// that other writes are admitted for most of the time.
    fn end(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            let held = now.saturating_duration_since(since);
            self.next = now.checked_add(held.saturating_mul(3));
        }
    }
}

/// The priority of one write, which lasts until its verdict.
#[derive(Debug)]
struct PriorityGuard(Arc<Priority>);

impl Drop for PriorityGuard {
    fn drop(&mut self) {
        self.0.0.lock().end(Instant::now());
    }
}

impl Admission {
    pub(crate) fn new(limits: MemoryLimits) -> Self {
        let answers = [ANSWERS_USED_UP, ANSWERS_SHARE_USED_UP];
        Self {
            limits,
            bytes: Arc::default(),
            costly: Arc::default(),
            priority: Arc::default(),
            costly_priority: Arc::default(),
            costly_claims: Arc::default(),
            bodies: MemoryBudget::with_shares(BODIES_USED_UP, limits.bodies, limits.small),
            answers: MemoryBudget::with_shares(answers, limits.answers, limits.small),
            listeners: MemoryBudget::new(LISTENERS_USED_UP, limits.answers, limits.small),
            streams: Arc::default(),
            compiles: Arc::new(Semaphore::new(COMPILES_MAX)),
        }
    }

    /// The limits from which the budgets were created.
    pub(crate) fn limits(&self) -> &MemoryLimits {
        &self.limits
    }

    /// Admits this many bytes. `None`: the limit is reached, so respond with BUSY or stop
    /// reading. A single call above the limit is admitted when no other is in progress.
    pub(crate) fn admit(&self, bytes: usize) -> Option<Permit> {
        admit(&self.bytes, bytes, self.limits.writes)
    }

    /// As `admit`, for a write that the store would queue after costly calls (`Store::is_costly`).
    pub(crate) fn admit_costly(&self, bytes: usize) -> Option<Permit> {
        admit(&self.costly, bytes, self.limits.costly)
    }

    /// The error of a write that a lane does not admit.
    pub(crate) fn exhausted(&self, is_costly: bool) -> BudgetExhausted {
        if is_costly {
            BudgetExhausted {
                text: "too many bytes of writes wait for costly calls of programs",
                limit: self.limits.costly,
            }
        } else {
            BudgetExhausted {
                text: "too many bytes of writes wait for the store",
                limit: self.limits.writes,
            }
        }
    }

    /// Takes the priority of a lane for a write that was refused several times. `None`: another write
    /// has it, or had it a short time ago.
    pub(crate) fn take_priority(&self, bytes: usize, is_costly: bool) -> Option<Box<NextWrite>> {
        let (counter, priority, max) = if is_costly {
            (&self.costly, &self.costly_priority, self.limits.costly)
        } else {
            (&self.bytes, &self.priority, self.limits.writes)
        };
        if !priority.0.lock().begin(Instant::now()) {
            return None;
        }
        counter.fetch_add(bytes, Ordering::AcqRel);
        let permit = Permit {
            counter: Arc::clone(counter),
            amount: bytes,
            _priority: Some(PriorityGuard(Arc::clone(priority))),
        };
        // On the heap, so that a connection without priority needs little memory.
        Some(Box::new(NextWrite { permit, max }))
    }

    /// Admits a claim that would wait for costly calls.
    pub(crate) fn admit_costly_claim(&self) -> Option<Permit> {
        admit(&self.costly_claims, 1, COSTLY_CLAIMS_MAX)
    }

    /// Moves a permit to the counter of the lane in which its proposal was queued. The topic may
    /// have become costly or cheap since the permit was granted.
    pub(crate) fn move_to_lane(&self, permit: Permit, proposal: &Proposal) -> Permit {
        let count = if proposal.is_costly() {
            &self.costly
        } else {
            &self.bytes
        };
        if Arc::ptr_eq(count, &permit.counter) {
            return permit;
        }
        count.fetch_add(permit.amount, Ordering::AcqRel);
        Permit {
            counter: Arc::clone(count),
            amount: permit.amount,
            _priority: None,
        }
    }

    /// Admits one more HTTP/2 stream; `None`: there are too many.
    pub(crate) fn admit_stream(&self) -> Option<Permit> {
        admit(&self.streams, 1, self.limits.streams)
    }

    /// The budgets of bytes, for the status of the server.
    pub(crate) fn budgets(&self) -> [Budget; 4] {
        let used = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        let budget = |used_name, used, max_name, max| Budget {
            used_name,
            used,
            max_name,
            max,
        };
        let limits = &self.limits;
        [
            budget(
                "writes_bytes",
                used(&self.bytes),
                "writes_bytes_max",
                limits.writes,
            ),
            budget(
                "costly_writes_bytes",
                used(&self.costly),
                "costly_writes_bytes_max",
                limits.costly,
            ),
            budget(
                "bodies_bytes",
                self.bodies.used(),
                "bodies_bytes_max",
                self.bodies.max(),
            ),
            budget(
                "answers_bytes",
                self.answers.used(),
                "answers_bytes_max",
                self.answers.max(),
            ),
        ]
    }

    /// Whether the store has work to do, apart from costly calls. While a program is compiled, its
    /// write is admitted, but the store does not have it yet.
    pub(crate) fn is_busy(&self) -> bool {
        let compiles = self.compiles.available_permits() < COMPILES_MAX;
        self.bytes.load(Ordering::Relaxed) > 0 && !compiles
    }

    /// Bytes of proposals in progress.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + self.costly.load(Ordering::Relaxed)
    }

    /// Admits a compilation; `None`: no permit is free at present.
    pub(crate) fn admit_compile(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.compiles).try_acquire_owned().ok()
    }

    /// As `admit_compile`, but waits up to ten seconds for a permit.
    pub(crate) async fn wait_to_compile(&self) -> Option<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.compiles).acquire_owned();
        tokio::time::timeout(COMPILE_WAIT, permit).await.ok()?.ok()
    }
}

/// Adds to a counter up to its limit. A value above the limit is added only to an empty counter.
fn try_add(count: &AtomicUsize, bytes: usize, max: usize) -> bool {
    let more = |now: usize| {
        let then = now.saturating_add(bytes);
        (now == 0 || then <= max).then_some(then)
    };
    count
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
        .is_ok()
}

fn admit(count: &Arc<AtomicUsize>, bytes: usize, max: usize) -> Option<Permit> {
    try_add(count, bytes, max).then(|| Permit {
        counter: Arc::clone(count),
        amount: bytes,
        _priority: None,
    })
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.amount, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use weir_store::Proposal;

    use super::{Admission, COMPILES_MAX, PriorityTimes};

    #[test]
    fn costly_writes_use_a_separate_limit() {
        let admission = Admission::default();
        let (costly_max, writes_max) = (admission.limits.costly, admission.limits.writes);
        let most = admission.admit_costly(costly_max);
        assert!(most.is_some());
        assert!(admission.admit_costly(1).is_none());
        assert!(admission.admit(writes_max).is_some());
        // A permit whose proposal is not costly moves to the common counter.
        let (proposal, _answer) = Proposal::pair();
        let moved = most.map(|permit| admission.move_to_lane(permit, &proposal));
        assert!(admission.admit_costly(costly_max).is_some());
        assert_eq!(admission.bytes(), costly_max);
        drop(moved);
        assert_eq!(admission.bytes(), 0);
    }

    #[test]
    fn compilations_are_limited() {
        let admission = Admission::default();
        let permits: Vec<_> = (0..COMPILES_MAX)
            .map(|_| admission.admit_compile())
            .collect();
        assert!(permits.iter().all(Option::is_some));
        assert!(admission.admit_compile().is_none());
        assert!(
            admission.admit(1).is_some(),
            "other writes are admitted meanwhile"
        );
        drop(permits);
        assert!(admission.admit_compile().is_some());
    }

    /// Otherwise, a long compilation would stop the heartbeats of a server without other writes.
    #[test]
    fn a_compilation_is_no_work_of_the_store() {
        let admission = Admission::default();
        let write = admission.admit(1);
        assert!(write.is_some() && admission.is_busy());
        let compilation = admission.admit_compile();
        assert!(!admission.is_busy());
        drop(compilation);
        assert!(admission.is_busy());
    }

    #[test]
    fn a_full_budget_admits_again_after_a_release() {
        let admission = Admission::default();
        let writes_max = admission.limits.writes;
        let most = admission.admit(writes_max);
        assert!(most.is_some());
        assert!(admission.admit(1).is_none());
        drop(most);
        assert_eq!(admission.bytes(), 0);
        let alone = admission.admit(writes_max + 1);
        assert!(alone.is_some(), "an oversized write is admitted alone");
        assert!(admission.admit(1).is_none());
    }

    #[test]
    fn a_write_that_has_waited_is_admitted_before_smaller_ones() {
        let admission = Admission::default();
        let writes_max = admission.limits.writes;
        let small = admission.admit(1);
        assert!(admission.admit(writes_max + 1).is_none());
        let next = admission.take_priority(writes_max + 1, false);
        assert!(admission.admit(1).is_none(), "the released bytes are kept");
        assert!(admission.take_priority(1, false).is_none());
        let Some(next) = next.and_then(|next| next.admit().err()) else {
            panic!("it is admitted beside a smaller one");
        };
        drop(small);
        let large = next.admit();
        assert!(large.is_ok(), "an oversized write is admitted alone");
        assert!(
            admission.take_priority(1, false).is_none(),
            "it has priority"
        );
        drop(large);
        assert_eq!(admission.bytes(), 0);
        assert!(admission.admit(1).is_some());
    }

    #[test]
    fn writes_have_priority_for_at_most_a_quarter_of_the_time() {
        let start = Instant::now();
        let seconds = |n| start + Duration::from_secs(n);
        let mut times = PriorityTimes::default();
        assert!(times.begin(start));
        assert!(!times.begin(seconds(4)));
        times.end(seconds(5));
        assert!(!times.begin(seconds(19)));
        assert!(times.begin(seconds(20)));
    }
}

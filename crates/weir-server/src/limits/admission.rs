//! How much may wait for the store at a time.
//!
//! `Store::propose` waits when the queue of the store is full, which would
//! stop a whole reactor thread. So the bytes that were handed over and not yet
//! answered are counted here, and what would exceed the limit is refused (HTTP)
//! or not read yet (native port). Because the limit is below that of the queue,
//! `propose` finds room.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_store::Proposal;

use crate::limits::budget::MemoryBudget;
use crate::limits::memory::MemoryLimits;

/// Claims of groups that may wait there at a time: each has a thread.
pub(crate) const COSTLY_CLAIMS_MAX: usize = 64;

/// Writes that bring programs and are compiled at a time: each keeps its room for as long as that
/// takes.
pub(crate) const COMPILES_MAX: usize = 2;

/// Longest wait for a turn to compile.
const COMPILE_WAIT: Duration = Duration::from_secs(10);

/// The counts. One for all ports of a server.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    limits: MemoryLimits,
    bytes: Arc<AtomicUsize>,
    costly: Arc<AtomicUsize>,
    costly_claims: Arc<AtomicUsize>,
    /// Unfinished packets and bodies, of all connections of all ports together.
    pub(crate) bodies: MemoryBudget,
    /// Answers that wait for their readers.
    pub(crate) answers: MemoryBudget,
    /// Streams of HTTP/2 beside the first one of each connection.
    streams: Arc<AtomicUsize>,
    compiles: Arc<Semaphore>,
}

impl Default for Admission {
    fn default() -> Self {
        Self::new(MemoryLimits::default())
    }
}

/// A budget and what of it is in use, bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) used_name: &'static str,
    pub(crate) used: usize,
    pub(crate) max_name: &'static str,
    pub(crate) max: usize,
}

/// Room that was given; given back when dropped. Keep it until the proposal is
/// answered.
#[derive(Debug)]
pub(crate) struct Permit {
    bytes: Arc<AtomicUsize>,
    taken: usize,
}

impl Admission {
    pub(crate) fn new(limits: MemoryLimits) -> Self {
        Self {
            limits,
            bytes: Arc::default(),
            costly: Arc::default(),
            costly_claims: Arc::default(),
            bodies: MemoryBudget::new(limits.bodies, limits.small),
            answers: MemoryBudget::new(limits.answers, limits.small),
            streams: Arc::default(),
            compiles: Arc::new(Semaphore::new(COMPILES_MAX)),
        }
    }

    /// What the budgets were made of.
    pub(crate) fn limits(&self) -> &MemoryLimits {
        &self.limits
    }

    /// Room for this many bytes, or none at present: answer BUSY, or read no
    /// further. A single call above the limit is let through when it is alone.
    pub(crate) fn admit(&self, bytes: usize) -> Option<Permit> {
        admit(&self.bytes, bytes, self.limits.writes)
    }

    /// As `admit`, for what the store would queue after costly calls
    /// (`Store::is_costly`).
    pub(crate) fn admit_costly(&self, bytes: usize) -> Option<Permit> {
        admit(&self.costly, bytes, self.limits.costly)
    }

    /// Leave for a claim that would wait for costly calls.
    pub(crate) fn admit_costly_claim(&self) -> Option<Permit> {
        admit(&self.costly_claims, 1, COSTLY_CLAIMS_MAX)
    }

    /// Counts a permit where its proposal is: a topic may have become costly,
    /// or cheap, since it was asked for.
    pub(crate) fn follow(&self, permit: Permit, proposal: &Proposal) -> Permit {
        let count = if proposal.is_costly() {
            &self.costly
        } else {
            &self.bytes
        };
        if Arc::ptr_eq(count, &permit.bytes) {
            return permit;
        }
        count.fetch_add(permit.taken, Ordering::AcqRel);
        Permit {
            bytes: Arc::clone(count),
            taken: permit.taken,
        }
    }

    /// A permit for one more stream of HTTP/2; `None`: there are too many.
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

    /// Whether the store has something to do, costly calls aside.
    pub(crate) fn is_busy(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > 0
    }

    /// Bytes on their way now.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + self.costly.load(Ordering::Relaxed)
    }

    /// Leave to have programs compiled, or none at present.
    pub(crate) fn admit_compile(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.compiles).try_acquire_owned().ok()
    }

    /// As `admit_compile`; waits its turn, for up to ten seconds.
    pub(crate) async fn wait_to_compile(&self) -> Option<OwnedSemaphorePermit> {
        let turn = Arc::clone(&self.compiles).acquire_owned();
        tokio::time::timeout(COMPILE_WAIT, turn).await.ok()?.ok()
    }
}

/// Adds to a count that has a limit; what is too large for it may be alone.
fn take(count: &AtomicUsize, bytes: usize, max: usize) -> bool {
    let more = |now: usize| {
        let then = now.saturating_add(bytes);
        (now == 0 || then <= max).then_some(then)
    };
    count
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
        .is_ok()
}

fn admit(count: &Arc<AtomicUsize>, bytes: usize, max: usize) -> Option<Permit> {
    take(count, bytes, max).then(|| Permit {
        bytes: Arc::clone(count),
        taken: bytes,
    })
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.taken, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use weir_store::Proposal;

    use super::{Admission, COMPILES_MAX};

    #[test]
    fn what_is_costly_takes_no_room_from_others() {
        let admission = Admission::default();
        let (costly_max, writes_max) = (admission.limits.costly, admission.limits.writes);
        let most = admission.admit_costly(costly_max);
        assert!(most.is_some());
        assert!(admission.admit_costly(1).is_none());
        assert!(admission.admit(writes_max).is_some());
        // One that turned out to be none is counted with the others.
        let (proposal, _answer) = Proposal::pair();
        let moved = most.map(|permit| admission.follow(permit, &proposal));
        assert!(admission.admit_costly(costly_max).is_some());
        assert_eq!(admission.bytes(), costly_max);
        drop(moved);
        assert_eq!(admission.bytes(), 0);
    }

    #[test]
    fn few_are_compiled_at_a_time() {
        let admission = Admission::default();
        let turns: Vec<_> = (0..COMPILES_MAX)
            .map(|_| admission.admit_compile())
            .collect();
        assert!(turns.iter().all(Option::is_some));
        assert!(admission.admit_compile().is_none());
        assert!(admission.admit(1).is_some(), "others write meanwhile");
        drop(turns);
        assert!(admission.admit_compile().is_some());
    }

    #[test]
    fn room_ends_and_comes_back() {
        let admission = Admission::default();
        let writes_max = admission.limits.writes;
        let most = admission.admit(writes_max);
        assert!(most.is_some());
        assert!(admission.admit(1).is_none());
        drop(most);
        assert_eq!(admission.bytes(), 0);
        let alone = admission.admit(writes_max + 1);
        assert!(alone.is_some(), "one that is too large for company");
        assert!(admission.admit(1).is_none());
    }
}

//! How much may wait for the store at a time.
//!
//! `Store::propose` waits when the queue of the store is full, which would
//! stop a whole reactor thread. So the bytes that were handed over and not yet
//! answered are counted here, and what would exceed the limit is refused (HTTP)
//! or not read yet (native port). Because the limit is below that of the queue,
//! `propose` finds room.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_store::Proposal;

/// Bytes of intentions that may be on their way at a time. The queue of the
/// store takes 64 MiB.
pub(crate) const IN_FLIGHT_BYTES_MAX: usize = 60 << 20;

/// Bytes of intentions that may wait behind costly calls of programs at a time,
/// on top. They may wait long, so they must not take the room of the others.
/// The store has a line of 96 MiB for them: this, and all others if their
/// topics turn out to be costly at one moment.
pub(crate) const COSTLY_BYTES_MAX: usize = 24 << 20;

/// Claims of groups that may wait there at a time: each has a thread.
pub(crate) const COSTLY_CLAIMS_MAX: usize = 64;

/// Bytes of unfinished packets and bodies that are not small, of all connections
/// of all ports together.
pub(crate) const BODIES_BYTES_MAX: usize = 256 << 20;

/// Bytes of large answers that may wait for their readers at a time.
pub(crate) const ANSWERS_BYTES_MAX: usize = 256 << 20;

/// Writes of the native port that bring programs and are compiled at a time:
/// each keeps its room for as long as that takes.
pub(crate) const COMPILES_MAX: usize = 2;

/// The counts. One for all ports of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Admission {
    bytes: Arc<AtomicUsize>,
    costly: Arc<AtomicUsize>,
    costly_claims: Arc<AtomicUsize>,
    answers: Arc<AtomicUsize>,
    bodies: Arc<AtomicUsize>,
    compiles: Arc<AtomicUsize>,
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
    /// Room for this many bytes, or none at present: answer BUSY, or read no
    /// further. A single call above the limit is let through when it is alone.
    pub(crate) fn admit(&self, bytes: usize) -> Option<Permit> {
        admit(&self.bytes, bytes, IN_FLIGHT_BYTES_MAX)
    }

    /// The same for what the store would put behind costly calls
    /// (`Store::is_costly`).
    pub(crate) fn admit_costly(&self, bytes: usize) -> Option<Permit> {
        admit(&self.costly, bytes, COSTLY_BYTES_MAX)
    }

    /// Leave for a claim that would wait behind costly calls.
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

    /// Room for a large answer, until its reader has taken it.
    pub(crate) fn admit_answer(&self, bytes: usize) -> Option<Permit> {
        admit(&self.answers, bytes, ANSWERS_BYTES_MAX)
    }

    /// Room for so many more bytes of a body that is not small; false: not now.
    pub(crate) fn take_body(&self, bytes: usize) -> bool {
        take(&self.bodies, bytes, BODIES_BYTES_MAX)
    }

    /// Gives room back that was taken.
    pub(crate) fn give_body(&self, bytes: usize) {
        self.bodies.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// The budgets of bytes, for the status of the server.
    pub(crate) fn budgets(&self) -> [Budget; 4] {
        let budget = |used_name, used: &AtomicUsize, max_name, max| Budget {
            used_name,
            used: used.load(Ordering::Relaxed),
            max_name,
            max,
        };
        [
            budget(
                "writes_bytes",
                &self.bytes,
                "writes_bytes_max",
                IN_FLIGHT_BYTES_MAX,
            ),
            budget(
                "costly_writes_bytes",
                &self.costly,
                "costly_writes_bytes_max",
                COSTLY_BYTES_MAX,
            ),
            budget(
                "bodies_bytes",
                &self.bodies,
                "bodies_bytes_max",
                BODIES_BYTES_MAX,
            ),
            budget(
                "answers_bytes",
                &self.answers,
                "answers_bytes_max",
                ANSWERS_BYTES_MAX,
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
    pub(crate) fn admit_compile(&self) -> Option<Permit> {
        admit(&self.compiles, 1, COMPILES_MAX)
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

    use super::{Admission, COMPILES_MAX, COSTLY_BYTES_MAX, IN_FLIGHT_BYTES_MAX};

    #[test]
    fn what_is_costly_takes_no_room_from_others() {
        let admission = Admission::default();
        let most = admission.admit_costly(COSTLY_BYTES_MAX);
        assert!(most.is_some());
        assert!(admission.admit_costly(1).is_none());
        assert!(admission.admit(IN_FLIGHT_BYTES_MAX).is_some());
        // One that turned out to be none is counted with the others.
        let (proposal, _answer) = Proposal::pair();
        let moved = most.map(|permit| admission.follow(permit, &proposal));
        assert!(admission.admit_costly(COSTLY_BYTES_MAX).is_some());
        assert_eq!(admission.bytes(), COSTLY_BYTES_MAX);
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
        let most = admission.admit(IN_FLIGHT_BYTES_MAX);
        assert!(most.is_some());
        assert!(admission.admit(1).is_none());
        drop(most);
        assert_eq!(admission.bytes(), 0);
        let alone = admission.admit(IN_FLIGHT_BYTES_MAX + 1);
        assert!(alone.is_some(), "one that is too large for company");
        assert!(admission.admit(1).is_none());
    }
}

//! Calls that their caller commits by itself (docs/decisions/0099).

use weir_core::batch::Author;
use weir_core::intention::Intention;
use weir_core::limits::CALL_ITEMS_MAX;

use super::{Notify, Pending, Prepared, Queue, count, destroys, encode};
use crate::error::StoreError;
use crate::proposal::Proposal;

impl Queue {
    /// Encodes the intentions of one call as a batch that the caller commits by itself. Returns
    /// `None`, and the caller must use [`propose`](Self::propose), if other work is queued, or if
    /// the intentions may run a program or destroy a topic.
    pub(crate) fn encode_for_caller(
        &self,
        author: Author,
        intentions: &[Intention<'_>],
        prepared: &Prepared,
    ) -> Result<Option<(Proposal, Pending)>, StoreError> {
        if intentions.is_empty() || intentions.len() > CALL_ITEMS_MAX || destroys(intentions) > 0 {
            return Ok(None);
        }
        let mut inner = self.inner.lock();
        let is_idle = inner.batches.is_empty() && inner.slow.is_empty() && inner.tasks == 0;
        if !is_idle || inner.refuses(Notify::Now).is_some() {
            return Ok(None);
        }
        let plan = inner.plan(intentions, prepared.starts_refused);
        if plan.is_slow || plan.calls > 0 {
            return Ok(None);
        }
        let mut pending = inner.spare();
        drop(inner);
        if let Err(error) = encode(&mut pending.builder, author, intentions, &self.limits, 0) {
            self.recycle(pending);
            return Err(error);
        }
        let (proposal, answer) = Proposal::new(false);
        pending.waiters.push((count(intentions), answer));
        Ok(Some((proposal, pending)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Instant;

    use weir_core::intention::{IntentionLimits, Operation};
    use weir_core::limits::FUEL_DEFAULT;
    use weir_core::{CodeHash, TopicName};

    use super::*;
    use crate::queue::ShutReason;

    fn put(topic: &str) -> Intention<'_> {
        let (key, value) = (b"k", b"v");
        Intention::new(topic, Operation::Put { key, value })
    }

    fn may_commit(queue: &Queue, intention: Intention<'_>) -> bool {
        let prepared = Prepared::default();
        let encoded = queue.encode_for_caller(Author::Client, &[intention], &prepared);
        encoded.unwrap().is_some()
    }

    fn propose(queue: &Queue, topic: &str) -> Proposal {
        let (call, prepared) = ([put(topic)], Prepared::default());
        let proposed = queue.propose(Author::Client, &call, prepared, Notify::Deferred);
        proposed.unwrap()
    }

    #[test]
    fn a_caller_commits_only_if_nothing_else_waits() {
        let queue = Queue::new(IntentionLimits::default(), false);
        let costly = TopicName::new("costly").unwrap();
        queue.restored(&[(costly, FUEL_DEFAULT, CodeHash([0; 32]))], |_| false);
        assert!(may_commit(&queue, put("t")));

        let quick = propose(&queue, "t");
        assert!(!may_commit(&queue, put("t")), "a quick call waits");
        queue.take(Instant::now());
        assert!(may_commit(&queue, put("t")));

        let slow = propose(&queue, "costly");
        assert!(slow.is_costly());
        assert!(!may_commit(&queue, put("t")), "a slow call waits");
        queue.take(Instant::now());
        assert!(may_commit(&queue, put("t")));

        queue.task(|| ()).unwrap();
        assert!(!may_commit(&queue, put("t")), "a task waits");
        queue.take(Instant::now());
        assert!(may_commit(&queue, put("t")));

        queue.shut(&ShutReason::Closed);
        assert!(!may_commit(&queue, put("t")), "the store is closed");
        drop((quick, slow));
    }

    #[test]
    fn a_caller_never_runs_a_program_or_destroys_a_topic() {
        let queue = Queue::new(IntentionLimits::default(), false);
        let program = TopicName::new("program").unwrap();
        queue.restored(&[(program, FUEL_DEFAULT, CodeHash([0; 32]))], |_| false);
        let delete = |topic| Intention::new(topic, Operation::Delete { key: b"k" });
        assert!(!may_commit(&queue, put("program")));
        assert!(!may_commit(&queue, delete("program")));
        assert!(may_commit(&queue, delete("t")));
        assert!(!may_commit(&queue, Intention::new("t", Operation::Destroy)));
    }
}

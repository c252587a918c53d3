//! The batches that a log provider has, and when it gets more batches of the slow lane.

use std::time::Duration;

/// Maximum number of batches of the slow lane that a provider has when it gets more of them. Other
/// calls wait for the apply of these batches. A smaller number would leave the apply idle while
/// the provider replicates.
const SLOW_MAX: usize = 4;

#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// Number of batches without a result.
    pub(super) batches: usize,
    /// Number of these batches that are of the slow lane.
    slow: usize,
    /// Time that the applies of batches of the slow lane took, which the commit thread does not
    /// know yet.
    slow_time: Duration,
}

impl InFlight {
    pub(super) fn add(&mut self, is_slow: bool) {
        self.batches += 1;
        self.slow += usize::from(is_slow);
    }

    /// Removes a batch. `slow_time` is the time of the apply of a batch of the slow lane.
    pub(super) fn remove(&mut self, slow_time: Option<Duration>) {
        assert!(self.batches > 0, "each admitted batch is answered once");
        self.batches -= 1;
        if let Some(time) = slow_time {
            self.slow -= 1;
            self.slow_time += time;
        }
    }

    /// Whether the provider may get more batches of the slow lane. `false` until the commit thread has
    /// taken the time of the last applies, which decides when the next batches are due.
    pub(super) fn may_take_slow(&self) -> bool {
        self.slow < SLOW_MAX && !self.has_slow_time()
    }

    pub(super) fn has_slow_time(&self) -> bool {
        !self.slow_time.is_zero()
    }

    pub(super) fn take_slow_time(&mut self) -> Duration {
        std::mem::take(&mut self.slow_time)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Instant;

    use weir_core::batch::Author;
    use weir_core::intention::{Intention, IntentionLimits, Operation};
    use weir_core::limits::FUEL_DEFAULT;
    use weir_core::{CodeHash, TopicName};

    use super::*;
    use crate::proposal::Proposal;
    use crate::queue::{Notify, Prepared, Queue, ShutReason};

    fn propose(queue: &Queue, topic: &str) -> Proposal {
        let put = Operation::Put {
            key: b"k",
            value: b"v",
        };
        let call = [Intention::new(topic, put)];
        let proposed = queue.propose(Author::Client, &call, Prepared::default(), Notify::Now);
        proposed.unwrap()
    }

    /// Gives the provider what the commit thread would give it now. Returns the number of batches
    /// of the slow lane, the number of other batches, and the reported time.
    fn take(queue: &Queue) -> (usize, usize, Duration) {
        let work = queue.take(Instant::now());
        let mut slow = 0;
        for pending in &work.batches {
            let is_slow = pending.slow.is_some();
            slow += usize::from(is_slow);
            queue.admitted(is_slow);
        }
        (slow, work.batches.len() - slow, work.slow_time)
    }

    #[test]
    fn a_provider_gets_few_batches_of_the_slow_lane_at_a_time() {
        const NO_TIME: Duration = Duration::ZERO;
        let time = Duration::from_millis(1);
        let queue = Queue::new(IntentionLimits::default(), false);
        queue.set_in_flight_max(16);
        let costly = (
            TopicName::new("costly").unwrap(),
            FUEL_DEFAULT,
            CodeHash([0; 32]),
        );
        queue.restored(&[costly], |_| false);
        let calls: Vec<_> = (0..SLOW_MAX + 3)
            .map(|_| propose(&queue, "costly"))
            .collect();
        for _ in 0..SLOW_MAX {
            assert_eq!(take(&queue), (1, 0, NO_TIME));
        }
        assert_eq!(take(&queue), (0, 0, NO_TIME));
        let other = propose(&queue, "plain");
        assert_eq!(take(&queue), (0, 1, NO_TIME));
        // The commit thread gets the time first, and then decides when the next batch is due.
        queue.completed(Some(time));
        assert_eq!(take(&queue), (0, 0, time));
        assert_eq!(take(&queue), (1, 0, NO_TIME));
        // A batch that was not applied, and one that is not of the slow lane.
        queue.completed(Some(NO_TIME));
        assert_eq!(take(&queue), (1, 0, NO_TIME));
        queue.completed(None);
        assert_eq!(take(&queue), (0, 0, NO_TIME));
        drop((calls, other));
    }

    /// Whether the result of a batch wakes a commit thread that sleeps without a time limit.
    fn wakes(queue: &Queue, slow_time: Option<Duration>) -> bool {
        let (sender, woken) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                queue.wait(None, Instant::now());
                sender.send(()).unwrap();
            });
            while !queue.inner.lock().asleep {
                std::thread::yield_now();
            }
            queue.completed(slow_time);
            let is_woken = woken.recv_timeout(Duration::from_secs(30)).is_ok();
            if !is_woken {
                queue.shut(&ShutReason::Closed);
            }
            is_woken
        })
    }

    #[test]
    fn a_result_wakes_the_commit_thread_for_each_kind_of_work() {
        let queue = Queue::new(IntentionLimits::default(), false);
        queue.set_in_flight_max(1);
        queue.admitted(false);
        let held = propose(&queue, "plain");
        assert!(wakes(&queue, None), "a batch of the quick lane was held");
        assert_eq!(take(&queue), (0, 1, Duration::ZERO));

        queue.set_in_flight_max(16);
        let costly = TopicName::new("costly").unwrap();
        queue.restored(&[(costly, FUEL_DEFAULT, CodeHash([0; 32]))], |_| false);
        for _ in 0..SLOW_MAX {
            queue.admitted(true);
        }
        let slow = propose(&queue, "costly");
        let not_applied = Some(Duration::ZERO);
        assert!(wakes(&queue, not_applied), "the slow lane was full");
        assert_eq!(take(&queue), (1, 0, Duration::ZERO));

        let time = Duration::from_millis(1);
        assert!(wakes(&queue, Some(time)), "only the time of an apply");
        assert_eq!(take(&queue), (0, 0, time));
        drop((held, slow));
    }
}

//! Shared wake-ups for the tails of one topic.
//!
//! Each topic with tails has one task that waits for its new records; the tails wait for that task.
//! With many tails, the task pauses so that events accumulate. So a thousand tails cost a thousand
//! writes for each pause, not for each event. Tails at one position share the rendered events.
//!
//! Invariant: a topic in the list has a task, and a task that ends removes its topic. A topic is
//! added, removed and joined under the lock of the list.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use weir_store::TopicReader;

use crate::limits::{
    JOINT_WAKE_PAUSE_MS_MAX, JOINT_WAKE_PAUSE_US, JOINT_WAKE_TAILS_MIN, SHARED_PIECES,
};
use crate::shared::Shared;

/// The form of events: its flags, and the incarnation in ids, if ids have one.
pub(crate) type Form = (u8, Option<u64>);

/// A rendered run of events.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// The position and form for which it was rendered.
    pub(crate) from: (u64, Form),
    /// Offset of its last record.
    pub(crate) next: u64,
    pub(crate) bytes: Bytes,
}

/// A topic that tails follow.
#[derive(Debug)]
pub(crate) struct Follow {
    last: watch::Sender<u64>,
    pieces: Mutex<VecDeque<Piece>>,
}

impl Follow {
    /// Returns the piece that another tail has rendered for `from`, if any.
    pub(crate) fn rendered(&self, from: (u64, Form)) -> Option<Piece> {
        let pieces = self.pieces.lock();
        pieces
            .iter()
            .rev()
            .find(|piece| piece.from == from)
            .cloned()
    }

    /// Stores a piece for the other tails, if there are any.
    pub(crate) fn share(&self, piece: Piece) {
        if self.last.receiver_count() < 2 {
            return;
        }
        let mut pieces = self.pieces.lock();
        if pieces.len() >= SHARED_PIECES {
            pieces.pop_front();
        }
        pieces.push_back(piece);
    }
}

/// Topics by name.
type Topics = Mutex<HashMap<String, Arc<Follow>>>;

/// All topics that tails follow.
#[derive(Debug)]
pub(crate) struct Hub {
    shared: Arc<Shared>,
    topics: Arc<Topics>,
}

impl Hub {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            topics: Arc::default(),
        }
    }

    /// Follows a topic, which may be created later. The receiver gets each new end. The task of the
    /// topic ends when its last receiver is dropped.
    pub(crate) fn follow(&self, topic: &str) -> (Arc<Follow>, watch::Receiver<u64>) {
        let mut topics = lock(&self.topics);
        if let Some(follow) = topics.get(topic) {
            return (Arc::clone(follow), follow.last.subscribe());
        }
        let mut reader = self
            .shared
            .store
            .listen(topic, weir_core::ConsequenceOffset::ZERO);
        reader.seek(reader.last());
        let (last, ends) = watch::channel(reader.last().0);
        let follow = Arc::new(Follow {
            last,
            pieces: Mutex::default(),
        });
        topics.insert(topic.to_owned(), Arc::clone(&follow));
        let task = TopicTask {
            topic: topic.to_owned(),
            topics: Arc::clone(&self.topics),
            follow: Arc::clone(&follow),
        };
        tokio::spawn(task.run(reader));
        (follow, ends)
    }
}

fn lock(topics: &Topics) -> MutexGuard<'_, HashMap<String, Arc<Follow>>> {
    topics.lock()
}

/// The state of the task of a topic.
struct TopicTask {
    topic: String,
    topics: Arc<Topics>,
    follow: Arc<Follow>,
}

impl TopicTask {
    /// Sends each new end of the topic to its tails.
    async fn run(self, mut reader: TopicReader) {
        let last = &self.follow.last;
        loop {
            let has_changed = tokio::select! {
                changed = reader.changed() => changed,
                () = last.closed() => {
                    if self.remove_if_unused() {
                        return;
                    }
                    // A tail joined just after the last one left.
                    continue;
                }
            };
            if !has_changed {
                // The store is closed.
                lock(&self.topics).remove(&self.topic);
                return;
            }
            reader.seek(reader.last());
            last.send_replace(reader.last().0);
            let tails = last.receiver_count();
            if tails >= JOINT_WAKE_TAILS_MIN {
                let pause = Duration::from_micros(JOINT_WAKE_PAUSE_US.saturating_mul(tails as u64));
                tokio::time::sleep(pause.min(Duration::from_millis(JOINT_WAKE_PAUSE_MS_MAX))).await;
            }
        }
    }

    /// Removes the topic from the list unless it has a tail. Returns whether it did.
    fn remove_if_unused(&self) -> bool {
        let mut topics = lock(&self.topics);
        let is_unused = self.follow.last.receiver_count() == 0;
        if is_unused {
            topics.remove(&self.topic);
        }
        is_unused
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::sync::Arc;
    use std::time::Duration;

    use weir_core::{Intention, Operation, TopicOptions};
    use weir_store::{Durability, OpenOptions, Store};

    use super::{Hub, TopicTask, lock};
    use crate::config::ServerConfig;
    use crate::security::Security;
    use crate::shared::Shared;

    /// Lets the tasks of the hub run until they wait.
    async fn run_tasks() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_tail_gets_records_while_other_tails_join_and_leave() {
        let folder = tempfile::tempdir().unwrap();
        let options = OpenOptions {
            durability: Durability::Memory,
            ..OpenOptions::default()
        };
        let store = Arc::new(Store::open(folder.path(), &options).unwrap());
        let options = TopicOptions::default();
        let put = Operation::Put {
            key: b"",
            value: b"v",
        };
        let write = |operation| {
            let proposed = store.propose(&[Intention::new("t", operation)]);
            proposed.unwrap().wait().unwrap();
        };
        write(Operation::Create { options: &options });
        let config = ServerConfig::default();
        let security = Security::open(&config).unwrap();
        let hub = Hub::new(Arc::new(
            Shared::new(
                config,
                Arc::clone(&store),
                security,
                crate::descriptors::raise().unwrap(),
                Vec::new(),
            )
            .unwrap(),
        ));
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().build().unwrap();
        let test = async {
            let (first, mut ends) = hub.follow("t");
            run_tasks().await;
            write(put);
            ends.changed().await.unwrap();
            // Simulates a race with another thread: the task has seen the last tail leave when the
            // next one joins. The task must continue.
            let task = TopicTask {
                topic: "t".to_owned(),
                topics: Arc::clone(&hub.topics),
                follow: Arc::clone(&first),
            };
            assert!(!task.remove_if_unused());
            assert!(lock(&hub.topics).contains_key("t"));
            // The last tail leaves; before the task sees it, the next one joins.
            drop(ends);
            let (second, mut ends) = hub.follow("t");
            assert!(Arc::ptr_eq(&first, &second));
            run_tasks().await;
            write(put);
            ends.changed().await.unwrap();
            // All tails have left: the list is empty.
            drop(ends);
            run_tasks().await;
            assert!(lock(&hub.topics).is_empty());
            let (third, mut ends) = hub.follow("t");
            assert!(!Arc::ptr_eq(&first, &third));
            run_tasks().await;
            write(put);
            ends.changed().await.unwrap();
        };
        let done = async { tokio::time::timeout(Duration::from_secs(20), test).await };
        assert!(runtime.block_on(done).is_ok(), "a tail missed a record");
    }
}

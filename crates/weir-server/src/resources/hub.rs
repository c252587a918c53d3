//! Shared wake-ups for the tails of one topic.
//!
//! Each topic with tails has one task that waits for its new records; the tails wait for that task.
//! With many tails, the task pauses so that events accumulate. So a thousand tails cost a thousand
//! writes for each pause, not for each event. Tails at one position share the rendered events.
//!
//! Invariants:
//! - A topic in the list has a task, and a task that ends removes its topic. A topic is added,
//!   removed and joined under the lock of the list.
//! - A budget covers the rendered events that are kept for other tails.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use weir_store::TopicReader;

use crate::limits::admission::ANSWERS_USED_UP;
use crate::limits::budget::{MemoryBudget, Reservation};
use crate::limits::{
    JOINT_WAKE_PAUSE_MS_MAX, JOINT_WAKE_PAUSE_US, JOINT_WAKE_TAILS_MIN, SHARED_PIECES,
    SHARED_PIECES_SHARE,
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
    pieces: Mutex<VecDeque<(Piece, Reservation)>>,
    /// Memory for the pieces of all topics.
    budget: MemoryBudget,
}

impl Follow {
    /// Returns the piece that another tail has rendered for `from`, if any.
    pub(crate) fn rendered(&self, from: (u64, Form)) -> Option<Piece> {
        let pieces = self.pieces.lock();
        pieces
            .iter()
            .rev()
            .find(|(piece, _)| piece.from == from)
            .map(|(piece, _)| piece.clone())
    }

    /// Stores a piece for the other tails, if there are any. Without memory, the other tails render
    /// the piece again.
    pub(crate) fn share(&self, piece: Piece) {
        if self.last.receiver_count() < 2 {
            return;
        }
        let mut pieces = self.pieces.lock();
        if pieces.len() >= SHARED_PIECES {
            pieces.pop_front();
        }
        // A new piece replaces older pieces of its topic, but none of other topics.
        let reservation = loop {
            if let Some(reservation) = self.budget.try_reserve(piece.bytes.len()) {
                break reservation;
            }
            if pieces.pop_front().is_none() {
                return;
            }
        };
        pieces.push_back((piece, reservation));
    }
}

/// Topics by name.
type Topics = Mutex<HashMap<String, Arc<Follow>>>;

/// All topics that tails follow.
#[derive(Debug)]
pub(crate) struct Hub {
    shared: Arc<Shared>,
    topics: Arc<Topics>,
    /// Memory for the pieces of all topics.
    pieces: MemoryBudget,
}

impl Hub {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let bytes = shared.admission.answers.max() / SHARED_PIECES_SHARE;
        Self {
            shared,
            topics: Arc::default(),
            pieces: MemoryBudget::new(ANSWERS_USED_UP, bytes, 0),
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
            budget: self.pieces.clone(),
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

    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use weir_core::{Intention, Operation, TopicOptions};
    use weir_store::{Durability, OpenOptions, Store};

    use super::{Hub, Piece, TopicTask, lock};
    use crate::config::{ServerConfig, Size};
    use crate::security::Security;
    use crate::shared::Shared;

    fn open(folder: &Path) -> Arc<Store> {
        let options = OpenOptions {
            durability: Durability::Memory,
            ..OpenOptions::default()
        };
        Arc::new(Store::open(folder, &options).unwrap())
    }

    fn hub_of(store: &Arc<Store>, config: ServerConfig) -> Hub {
        let security = Security::open(&config).unwrap();
        let shared = Shared::new(
            config,
            Arc::clone(store),
            security,
            crate::descriptors::raise().unwrap(),
            Vec::new(),
        );
        Hub::new(Arc::new(shared.unwrap()))
    }

    fn run(test: impl Future<Output = ()>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().build().unwrap();
        let done = async { tokio::time::timeout(Duration::from_secs(20), test).await };
        assert!(runtime.block_on(done).is_ok(), "a tail missed a record");
    }

    /// Lets the tasks of the hub run until they wait.
    async fn run_tasks() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_budget_covers_the_pieces_of_all_topics() {
        const BYTES: usize = 100 << 10;
        let folder = tempfile::tempdir().unwrap();
        let config = ServerConfig {
            answers_budget: Some(Size(1 << 20)),
            ..ServerConfig::default()
        };
        let hub = hub_of(&open(folder.path()), config);
        let form = (0, None);
        let piece = |from| Piece {
            from: (from, form),
            next: from + 1,
            bytes: Bytes::from(vec![0; BYTES]),
        };
        run(async {
            let tails = ["t", "u"].map(|topic| [hub.follow(topic), hub.follow(topic)]);
            let [[(t, _), _], [(u, _), _]] = &tails;
            t.share(piece(1));
            t.share(piece(2));
            u.share(piece(1));
            // The budget, an eighth of a MiB, has room for one piece.
            assert!(t.rendered((1, form)).is_none());
            assert!(t.rendered((2, form)).is_some());
            assert!(u.rendered((1, form)).is_none());
            assert_eq!(hub.pieces.used(), BYTES);
            drop(tails);
            run_tasks().await;
            assert_eq!(hub.pieces.used(), 0);
        });
    }

    #[test]
    fn a_tail_gets_records_while_other_tails_join_and_leave() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
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
        let hub = hub_of(&store, ServerConfig::default());
        run(async {
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
        });
    }
}

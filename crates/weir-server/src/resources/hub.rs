//! Tails of one topic wait together.
//!
//! A topic that is followed has one task that waits for its store; the tails
//! wait for that task. When there are many, it lets events gather for a moment,
//! so that a thousand tails cost a thousand writes for each pause and not for
//! each event, and tails that stand at the same place share what was rendered.
//!
//! Invariant: a topic in the list has a task, and a task that ends takes its
//! topic out. Both are done under the lock of the list, and so is joining.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use weir_store::TopicReader;

use crate::limits::{CROWD, CROWD_PAUSE_MS_MAX, CROWD_PAUSE_US, SHARED_PIECES};
use crate::shared::Shared;

/// A rendered run of events.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// What it was rendered for: position and form.
    pub(crate) from: (u64, u8),
    /// Last record in it.
    pub(crate) next: u64,
    pub(crate) bytes: Bytes,
}

/// A topic that is followed.
#[derive(Debug)]
pub(crate) struct Follow {
    last: watch::Sender<u64>,
    pieces: Mutex<VecDeque<Piece>>,
}

impl Follow {
    /// What another tail has rendered from here.
    pub(crate) fn shared(&self, from: (u64, u8)) -> Option<Piece> {
        let pieces = self.pieces.lock();
        pieces
            .iter()
            .rev()
            .find(|piece| piece.from == from)
            .cloned()
    }

    /// Keeps a piece for the others, if there are any.
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

/// All topics that are followed.
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

    /// Follows a topic, which need not be there yet. The receiver hears of each
    /// new end; its task ends with the last one of them.
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
        let (last, news) = watch::channel(reader.last().0);
        let follow = Arc::new(Follow {
            last,
            pieces: Mutex::default(),
        });
        topics.insert(topic.to_owned(), Arc::clone(&follow));
        let watched = Watched {
            topic: topic.to_owned(),
            topics: Arc::clone(&self.topics),
            follow: Arc::clone(&follow),
        };
        tokio::spawn(watched.run(reader));
        (follow, news)
    }
}

fn lock(topics: &Topics) -> MutexGuard<'_, HashMap<String, Arc<Follow>>> {
    topics.lock()
}

/// What the task of a topic has.
struct Watched {
    topic: String,
    topics: Arc<Topics>,
    follow: Arc<Follow>,
}

impl Watched {
    /// Tells the tails of the topic about each new end.
    async fn run(self, mut reader: TopicReader) {
        let last = &self.follow.last;
        loop {
            let there = tokio::select! {
                there = reader.changed() => there,
                () = last.closed() => {
                    if self.ends() {
                        return;
                    }
                    // Somebody came when the last one had just gone.
                    continue;
                }
            };
            if !there {
                // The store has ended.
                lock(&self.topics).remove(&self.topic);
                return;
            }
            reader.seek(reader.last());
            last.send_replace(reader.last().0);
            let tails = last.receiver_count();
            if tails >= CROWD {
                let pause = Duration::from_micros(CROWD_PAUSE_US.saturating_mul(tails as u64));
                tokio::time::sleep(pause.min(Duration::from_millis(CROWD_PAUSE_MS_MAX))).await;
            }
        }
    }

    /// Takes the topic out of the list unless somebody listens.
    fn ends(&self) -> bool {
        let mut topics = lock(&self.topics);
        let alone = self.follow.last.receiver_count() == 0;
        if alone {
            topics.remove(&self.topic);
        }
        alone
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::sync::Arc;
    use std::time::Duration;

    use weir_core::{Intention, Operation, TopicOptions};
    use weir_store::{Durability, OpenOptions, Store};

    use super::{Hub, Watched, lock};
    use crate::config::ServerConfig;
    use crate::security::Security;
    use crate::shared::Shared;

    /// Lets the tasks of the hub go as far as they can.
    async fn rest() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_follower_gets_records_while_others_come_and_go() {
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
            let (first, mut news) = hub.follow("t");
            rest().await;
            write(put);
            news.changed().await.unwrap();
            // As on another thread, when the task has seen the last one go and
            // the next one comes: it has to stay.
            let watched = Watched {
                topic: "t".to_owned(),
                topics: Arc::clone(&hub.topics),
                follow: Arc::clone(&first),
            };
            assert!(!watched.ends());
            assert!(lock(&hub.topics).contains_key("t"));
            // The last one goes; before the task sees it, the next one comes.
            drop(news);
            let (second, mut news) = hub.follow("t");
            assert!(Arc::ptr_eq(&first, &second));
            rest().await;
            write(put);
            news.changed().await.unwrap();
            // All are gone: nothing is kept.
            drop(news);
            rest().await;
            assert!(lock(&hub.topics).is_empty());
            let (third, mut news) = hub.follow("t");
            assert!(!Arc::ptr_eq(&first, &third));
            rest().await;
            write(put);
            news.changed().await.unwrap();
        };
        let done = async { tokio::time::timeout(Duration::from_secs(20), test).await };
        assert!(runtime.block_on(done).is_ok(), "a tail is deaf");
    }
}

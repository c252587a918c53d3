//! Tails of one topic wait together.
//!
//! A topic that is followed has one task that waits for its store; the tails
//! wait for that task. When there are many, it lets events gather for a moment,
//! so that a thousand tails cost a thousand writes for each pause and not for
//! each event, and tails that stand at the same place share what was rendered.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use weir_store::TopicReader;

use super::limits::{CROWD, CROWD_PAUSE_MS_MAX, CROWD_PAUSE_US, SHARED_PIECES};
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
        let pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        if pieces.len() >= SHARED_PIECES {
            pieces.pop_front();
        }
        pieces.push_back(piece);
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }
}

/// All topics that are followed.
#[derive(Debug)]
pub(crate) struct Hub {
    shared: Arc<Shared>,
    topics: Mutex<HashMap<String, Weak<Follow>>>,
}

impl Hub {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            topics: Mutex::default(),
        }
    }

    /// Follows a topic, which need not be there yet. The task ends with the
    /// last tail.
    pub(crate) fn follow(&self, topic: &str) -> Arc<Follow> {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(follow) = topics.get(topic).and_then(Weak::upgrade) {
            return follow;
        }
        topics.retain(|_, follow| follow.strong_count() > 0);
        let mut reader = self
            .shared
            .store
            .listen(topic, weir_core::ConsequenceOffset::ZERO);
        reader.seek(reader.last());
        let follow = Arc::new(Follow {
            last: watch::Sender::new(reader.last().0),
            pieces: Mutex::default(),
        });
        topics.insert(topic.to_owned(), Arc::downgrade(&follow));
        tokio::spawn(watch_topic(
            reader,
            Arc::downgrade(&follow),
            follow.last.clone(),
        ));
        follow
    }
}

/// Tells the tails of a topic about each new end.
async fn watch_topic(mut reader: TopicReader, follow: Weak<Follow>, last: watch::Sender<u64>) {
    loop {
        let there = tokio::select! {
            there = reader.changed() => there,
            () = last.closed() => false,
        };
        if !there || follow.strong_count() == 0 {
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

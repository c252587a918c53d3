//! The audit topic `.weir.audit`: denied requests and administrative actions.
//!
//! Requests add notes to a bounded queue and never wait; one task writes them to the store in
//! batches. Notes are dropped and counted if the queue is full, or if more than [`DENIED_A_SECOND`]
//! are for denied requests. The next record has the number of dropped notes. So an attacker can
//! neither stop the server nor fill its disk with notes.
//!
//! Invariants:
//! - No note contains a secret.
//! - No request waits for a note.

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::{Notify, mpsc};
use weir_core::{Intention, Operation, TopicOptions};
use weir_store::Store;

use super::moment::{now_ms, rfc3339};
use super::rate::{Bucket, SECOND_NS};
use crate::limits::admission::Admission;

/// Name of the topic.
pub const AUDIT_TOPIC: &str = ".weir.audit";
/// Maximum number of notes in the queue.
const NOTES_MAX: usize = 1_024;
/// Maximum number of notes in one batch.
const BATCH_NOTES_MAX: usize = 256;
/// Maximum number of notes per second for denied requests.
const DENIED_A_SECOND: u64 = 100;
/// Pause while the store is busy.
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// Retention of the topic if the server creates it: 90 days.
const AGE_MS: u64 = 90 * 24 * 60 * 60 * 1000;
/// Retention of the topic in bytes.
const BYTES: u64 = 256 << 20;
/// Maximum number of bytes of client text in a note.
const TEXT_BYTES_MAX: usize = 512;

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Decision {
    /// Allowed.
    Allowed,
    /// Denied: the right is missing.
    Denied,
    /// Denied: the caller is not authenticated.
    Unauthenticated,
    /// The action was tried and failed.
    Failed,
}

#[derive(Debug, Serialize)]
struct Note {
    time: String,
    decision: Decision,
    action: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    topic: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    principal: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<SocketAddr>,
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
    #[serde(skip_serializing_if = "is_zero")]
    lost: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The queue of notes.
#[derive(Debug)]
pub(crate) struct Audit {
    sender: mpsc::Sender<Note>,
    receiver: Mutex<Option<mpsc::Receiver<Note>>>,
    start: Instant,
    denied: Bucket,
    lost: AtomicU64,
    written: AtomicU64,
    end: Notify,
}

impl Audit {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(NOTES_MAX);
        Self {
            sender,
            receiver: Mutex::new(Some(receiver)),
            start: Instant::now(),
            denied: Bucket::default(),
            lost: AtomicU64::new(0),
            written: AtomicU64::new(0),
            end: Notify::new(),
        }
    }

    /// Adds a note; never waits.
    pub(crate) fn note(
        &self,
        decision: Decision,
        action: &'static str,
        topic: &str,
        principal: &str,
        address: Option<SocketAddr>,
        text: &str,
    ) {
        if matches!(decision, Decision::Denied | Decision::Unauthenticated) {
            let now = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            if self.denied.wait_ns(now, SECOND_NS).is_some() {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            self.denied.add(now, 1, DENIED_A_SECOND);
        }
        let truncated = |text: &str| {
            let end = text.floor_char_boundary(TEXT_BYTES_MAX);
            text.get(..end).unwrap_or_default().to_owned()
        };
        let note = Note {
            time: rfc3339(now_ms()),
            decision,
            action,
            topic: truncated(topic),
            principal: principal.to_owned(),
            address,
            text: truncated(text),
            lost: 0,
        };
        if self.sender.try_send(note).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of notes that were dropped.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Number of notes in the store.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Ends the audit log: notes before this call are written, later notes are dropped.
    pub(crate) fn finish(&self) {
        self.end.notify_one();
    }

    /// Writes notes until [`finish`](Self::finish). Must run only once.
    pub(crate) async fn run(&self, store: Arc<Store>, admission: Admission) {
        let receiver = self.receiver.lock().take();
        let Some(mut receiver) = receiver else { return };
        let mut notes = Vec::with_capacity(BATCH_NOTES_MAX);
        let mut reported = 0;
        loop {
            let is_end = tokio::select! {
                biased;
                count = receiver.recv_many(&mut notes, BATCH_NOTES_MAX) => count == 0,
                () = self.end.notified() => {
                    receiver.close();
                    false
                }
            };
            if is_end {
                return;
            }
            let lost = self.lost();
            if let Some(first) = notes.first_mut() {
                first.lost = lost - reported;
                reported = lost;
            }
            let values: Vec<Vec<u8>> = notes.iter().filter_map(encode).collect();
            notes.clear();
            if !values.is_empty() {
                self.write(&store, &admission, &values).await;
            }
        }
    }

    async fn write(&self, store: &Store, admission: &Admission, values: &[Vec<u8>]) {
        let bytes = values.iter().map(Vec::len).sum();
        let permit = loop {
            match admission.admit(bytes) {
                Some(permit) => break permit,
                None => tokio::time::sleep(BUSY_PAUSE).await,
            }
        };
        let mut options = TopicOptions::default();
        options.retention.age_ms = Some(AGE_MS);
        options.retention.bytes = Some(BYTES);
        let create = Operation::Create { options: &options };
        let is_missing = store.topic(AUDIT_TOPIC).is_none_or(|topic| !topic.live);
        let create = is_missing.then(|| Intention::new(AUDIT_TOPIC, create));
        let puts = values.iter().map(|value| {
            let key = &[];
            Intention::new(AUDIT_TOPIC, Operation::Put { key, value })
        });
        let intentions: Vec<_> = create.into_iter().chain(puts).collect();
        let is_written = match store.propose_own(&intentions) {
            Ok(proposal) => proposal.await.is_ok(),
            Err(_) => false,
        };
        drop(permit);
        let count = values.len() as u64;
        if is_written {
            self.written.fetch_add(count, Ordering::Relaxed);
        } else {
            // The store logs the error, so the notes are only counted.
            self.lost.fetch_add(count, Ordering::Relaxed);
        }
    }
}

fn encode(note: &Note) -> Option<Vec<u8>> {
    // Serializing a structure of texts and numbers cannot fail.
    serde_json::to_vec(note).ok()
}

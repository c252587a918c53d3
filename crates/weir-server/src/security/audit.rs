//! The audit topic `.weir.audit`: denied requests and administrative actions.
//!
//! Requests add notes to a bounded queue and never wait; one task writes them to the store in
//! batches. Notes are dropped and counted if the queue is full, or if more than [`DENIED_A_SECOND`]
//! are for denied requests. The next record has the number of dropped notes. So an attacker can
//! neither stop the server nor fill its disk with notes. Notes that the store does not accept, for
//! example at a node of a cluster that does not lead, are also written to the log of the process.
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
use weir_store::{Store, StoreError};

use super::moment::{now_ms, rfc3339};
use super::rate::{Bucket, SECOND_NS};
use crate::limits::admission::{Admission, NextWrite};

/// Name of the topic.
pub const AUDIT_TOPIC: &str = ".weir.audit";
/// Maximum number of notes in the queue.
const NOTES_MAX: usize = 1_024;
/// Maximum number of notes in one batch.
const BATCH_NOTES_MAX: usize = 256;
/// Maximum number of notes per second for denied requests.
const DENIED_A_SECOND: u64 = 100;
/// Maximum number of lines per second in the log of the process for notes that are not written.
const LOST_LINES_A_SECOND: u64 = 100;
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
#[serde(into = "&'static str")]
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

impl From<Decision> for &'static str {
    fn from(decision: Decision) -> Self {
        match decision {
            Decision::Allowed => "allowed",
            Decision::Denied => "denied",
            Decision::Unauthenticated => "unauthenticated",
            Decision::Failed => "failed",
        }
    }
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
    lost_lines: Bucket,
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
            lost_lines: Bucket::default(),
            lost: AtomicU64::new(0),
            written: AtomicU64::new(0),
            end: Notify::new(),
        }
    }

    fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
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
            let now = self.elapsed_ns();
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
            }
            let values: Vec<Vec<u8>> = notes.iter().filter_map(encode).collect();
            if !values.is_empty() {
                match self.write(&store, &admission, &values).await {
                    Ok(()) => reported = lost,
                    Err(error) => self.lose(&notes, &error, self.elapsed_ns()),
                }
            }
            notes.clear();
        }
    }

    /// Counts notes that the store did not accept, and logs them up to the limit.
    fn lose(&self, notes: &[Note], error: &StoreError, now_ns: u64) {
        self.lost.fetch_add(notes.len() as u64, Ordering::Relaxed);
        for note in notes {
            if self.lost_lines.wait_ns(now_ns, SECOND_NS).is_some() {
                return;
            }
            self.lost_lines.add(now_ns, 1, LOST_LINES_A_SECOND);
            let decision: &str = note.decision.into();
            tracing::warn!(
                noted = note.time,
                decision,
                action = note.action,
                topic = note.topic,
                principal = note.principal,
                address = note.address.map(display),
                text = note.text,
                %error,
                "an audit record was not written"
            );
        }
    }

    async fn write(
        &self,
        store: &Store,
        admission: &Admission,
        values: &[Vec<u8>],
    ) -> Result<(), StoreError> {
        let bytes = values.iter().map(Vec::len).sum();
        // Other writes could take all released bytes, so the notes take priority.
        let mut next: Option<Box<NextWrite>> = None;
        let permit = loop {
            let admitted = if let Some(waiting) = next.take() {
                waiting.admit().map_err(Some)
            } else {
                let permit = admission.admit(bytes);
                permit.ok_or_else(|| admission.take_priority(bytes, false))
            };
            match admitted {
                Ok(permit) => break permit,
                Err(waiting) => next = waiting,
            }
            tokio::time::sleep(BUSY_PAUSE).await;
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
        // The permit is held until the verdict.
        let written = match store.propose_own(&intentions) {
            Ok(proposal) => proposal.await.map(drop),
            Err(error) => Err(error),
        };
        drop(permit);
        written?;
        let count = values.len() as u64;
        self.written.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }
}

fn encode(note: &Note) -> Option<Vec<u8>> {
    // Serializing a structure of texts and numbers cannot fail.
    serde_json::to_vec(note).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::pin::pin;
    use std::task::Poll;

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};
    use weir_store::OpenOptions;

    use super::*;

    /// Counts the lines about notes that were not written.
    #[derive(Clone, Default)]
    struct Lines(Arc<AtomicU64>);

    impl Lines {
        fn count(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            if event.metadata().target() == "weir_server::security::audit" {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[tokio::test]
    async fn a_note_that_the_store_does_not_accept_is_counted_and_logged() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), &OpenOptions::default()).unwrap();
        store.shut_down().unwrap();
        let audit = Audit::new();
        audit.note(Decision::Denied, "put", "orders", "a", None, "");
        audit.finish();
        let lines = Lines::default();
        let guard = tracing::subscriber::set_default(lines.clone());
        audit.run(Arc::new(store), Admission::default()).await;
        drop(guard);
        assert_eq!((lines.count(), audit.lost(), audit.written()), (1, 1, 0));
    }

    #[test]
    fn the_lines_for_lost_notes_are_limited() {
        let note = || Note {
            time: String::new(),
            decision: Decision::Denied,
            action: "put",
            topic: String::new(),
            principal: String::new(),
            address: None,
            text: String::new(),
            lost: 0,
        };
        let notes: Vec<Note> = (0..300).map(|_| note()).collect();
        let audit = Audit::new();
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            for second in [0, 10] {
                audit.lose(&notes, &StoreError::Closed, second * SECOND_NS);
                audit.lose(&notes, &StoreError::Closed, second * SECOND_NS);
            }
        });
        // After a pause, the lines of one second more are written at once.
        assert_eq!(lines.count(), 2 * (LOST_LINES_A_SECOND + 1));
        assert_eq!(audit.lost(), 1_200);
    }

    #[tokio::test]
    async fn notes_are_written_although_other_writes_take_all_released_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), &OpenOptions::default()).unwrap();
        let (admission, audit) = (Admission::default(), Audit::new());
        let writes_max = admission.limits().writes;
        let others = admission.admit(writes_max);
        assert!(others.is_some());
        let values = [b"{}".to_vec()];
        let mut written = pin!(audit.write(&store, &admission, &values));
        let waits = std::future::poll_fn(|context| {
            let polled = written.as_mut().poll(context);
            Poll::Ready(polled.is_pending())
        });
        assert!(waits.await);
        drop(others);
        assert!(
            admission.admit(writes_max).is_none(),
            "the notes come first"
        );
        written.await.unwrap();
        assert_eq!(audit.written(), 1);
    }
}

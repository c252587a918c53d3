//! What groups ask of a store: of one in this process, or of a server.
//!
//! What must never happen here: a step that would do something else the second
//! time, sent twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_core::{Commit, ConsequenceOffset, ErrorCode, GroupStep, Intention, Operation, Outcome};
use weir_store::{Ask, GroupInfo, Store, StoreError};

use super::{LOOK_EVERY, left};
use crate::backend::Backend;
use crate::error::WeirError;
use crate::reader::TopicReader;
use crate::remote::listener::Listener;
use crate::reply::block_on;
use crate::work::{Got, Work};

/// Times that a step is sent whose answers were lost.
const TRIES: usize = 8;

/// Sleeps; not at all when nothing says until when.
pub(super) fn sleep(until: Option<Instant>) {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    std::thread::sleep(left.unwrap_or_default());
}

/// Whether a step may be sent again when nobody knows whether it was done.
fn repeats(step: &GroupStep<'_>) -> bool {
    // A group that is deleted or put back twice may have done something in
    // between.
    !matches!(step, GroupStep::Delete | GroupStep::Reset { .. })
}

impl Backend {
    /// Does one step and waits for the verdict.
    pub(super) fn group_step(
        &self,
        topic: &str,
        group: &str,
        step: GroupStep<'_>,
    ) -> Result<Commit, StoreError> {
        let intention = Intention::new(topic, Operation::Cursor { group, step });
        let mut tries = 1;
        loop {
            let answered = self.propose(&[intention]).and_then(|proposal| match self {
                Self::Local(_) => proposal.wait(),
                // Can be broken off.
                Self::Remote(_) => block_on(proposal),
            });
            let outcomes = match answered {
                Err(StoreError::Remote {
                    code: ErrorCode::Indeterminate,
                    ..
                }) if tries < TRIES && repeats(&step) => {
                    tries += 1;
                    continue;
                }
                answered => answered?,
            };
            return match outcomes.iter().next() {
                Some(Outcome::Committed(commit) | Outcome::Replayed(commit)) => Ok(commit),
                _ => Err(StoreError::Closed),
            };
        }
    }

    pub(super) fn group(&self, topic: &str, group: &str) -> Result<Option<GroupInfo>, StoreError> {
        match self {
            Self::Local(store) => Ok(store.group(topic, group)),
            Self::Remote(remote) => remote.group(topic, group),
        }
    }

    pub(super) fn groups(&self, topic: &str) -> Result<Vec<GroupInfo>, StoreError> {
        match self {
            Self::Local(store) => store.groups(topic),
            Self::Remote(remote) => remote.groups(topic),
        }
    }

    /// Reads after `after`, or from the first record that is left.
    pub(super) fn read_left(
        &self,
        topic: &str,
        after: ConsequenceOffset,
    ) -> Result<TopicReader, StoreError> {
        Ok(match self {
            Self::Local(store) => TopicReader::local(store.read(topic, after)?.or_earliest()),
            Self::Remote(remote) => {
                let listener = Listener::new(Arc::clone(remote), topic, after);
                TopicReader::remote(listener.or_earliest())
            }
        })
    }

    /// Moves the cursor of an exclusive group soon, without waiting.
    pub(super) fn move_cursor(
        &self,
        topic: &str,
        group: &str,
        generation: u64,
        offset: ConsequenceOffset,
    ) -> Result<(), StoreError> {
        match self {
            Self::Local(store) => store.move_cursor(topic, group, generation, offset),
            Self::Remote(_) => {
                let offset = offset.0;
                let step = GroupStep::Move { generation, offset };
                let intention = Intention::new(topic, Operation::Cursor { group, step });
                // What is sent after it is done after it.
                self.propose(&[intention]).map(drop)
            }
        }
    }

    /// Moves the cursor and waits for the verdict.
    pub(super) fn move_cursor_now(
        &self,
        topic: &str,
        group: &str,
        generation: u64,
        offset: ConsequenceOffset,
    ) -> Result<Commit, StoreError> {
        match self {
            Self::Local(store) => store.move_cursor_now(topic, group, generation, offset),
            Self::Remote(_) => {
                let offset = offset.0;
                self.group_step(topic, group, GroupStep::Move { generation, offset })
            }
        }
    }

    pub(super) fn flush_cursor(&self, topic: &str, group: &str) {
        if let Self::Local(store) = self {
            store.flush_cursor(topic, group);
        }
    }

    /// Claims records, waiting until `deadline` for the first one.
    pub(super) fn claim(
        &self,
        topic: &str,
        group: &str,
        ask: &Ask<'_>,
        deadline: Option<Instant>,
    ) -> Result<Vec<Work>, WeirError> {
        let mut seen = None;
        loop {
            let got = match self {
                Self::Local(store) => near(store, topic, group, ask)?,
                Self::Remote(remote) => {
                    let wait = deadline.map_or(Duration::MAX, |deadline| {
                        deadline.saturating_duration_since(Instant::now())
                    });
                    remote.claim(topic, group, ask, wait)?
                }
            };
            if let Some(code) = got.reason.filter(|code| *code != ErrorCode::Conflict) {
                return Err(WeirError::Group { code });
            }
            let now = Instant::now();
            if !got.works.is_empty() || deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(got.works);
            }
            let Self::Local(store) = self else { continue };
            let due = got.due_ms.map_or(LOOK_EVERY, left);
            let soon = now.checked_add(due.min(LOOK_EVERY));
            let until = [deadline, soon].into_iter().flatten().min();
            if seen.replace(got.frontier) == Some(got.frontier) {
                // Records that could not be had last time are no news.
                sleep(until);
            } else {
                // Whether there is one is found out by asking again.
                let _ = store.listen(topic, got.frontier).wait(until);
            }
        }
    }
}

fn near(store: &Store, topic: &str, group: &str, ask: &Ask<'_>) -> Result<Got, WeirError> {
    let claimed = store.claim(topic, group, ask)?;
    let mut works = Vec::new();
    for delivery in claimed.deliveries {
        works.extend(Work::new(delivery.page, delivery.claim, delivery.attempts)?);
    }
    Ok(Got {
        works,
        reason: claimed.commit.and_then(|commit| commit.reason),
        frontier: claimed.frontier,
        due_ms: claimed.due_ms,
    })
}

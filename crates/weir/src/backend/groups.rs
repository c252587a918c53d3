//! Steps of groups, in a store of this process or at a server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_core::{Commit, ConsequenceOffset, ErrorCode, GroupStep, Intention, Operation, Outcome};
use weir_store::{ClaimRequest, GroupInfo, Store, StoreError};

use super::{Backend, TopicReader};
use crate::error::WeirError;
use crate::remote::listener::Listener;
use crate::work::{ClaimResult, POLL_INTERVAL, Work, sleep, time_until};

/// Times that a step is sent if its response is lost.
const TRIES: usize = 8;

/// Whether a step may be sent again while its outcome is unknown.
fn repeats(step: &GroupStep<'_>) -> bool {
    // Not repeated: another client may use the group between the first and the second execution.
    !matches!(step, GroupStep::Delete | GroupStep::Reset { .. })
}

impl Backend {
    /// Executes one step and waits for the verdict.
    pub(crate) fn group_step(
        &self,
        topic: &str,
        group: &str,
        step: GroupStep<'_>,
    ) -> Result<Commit, StoreError> {
        let intention = Intention::new(topic, Operation::Cursor { group, step });
        let mut tries = 1;
        loop {
            let outcomes = match self.write(&[intention]) {
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

    pub(crate) fn group(&self, topic: &str, group: &str) -> Result<Option<GroupInfo>, StoreError> {
        match self {
            Self::Local(store) => Ok(store.group(topic, group)),
            Self::Remote(remote) => remote.group(topic, group),
        }
    }

    pub(crate) fn groups(&self, topic: &str) -> Result<Vec<GroupInfo>, StoreError> {
        match self {
            Self::Local(store) => store.groups(topic),
            Self::Remote(remote) => remote.groups(topic),
        }
    }

    /// Returns a reader that starts after `after`, or at the first record that still exists.
    pub(crate) fn read_remaining(
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

    /// Schedules a move of the cursor of an exclusive group. Does not wait.
    pub(crate) fn move_cursor(
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
                // The server executes intentions in the order in which they are sent.
                self.propose(&[intention]).map(drop)
            }
        }
    }

    /// Moves the cursor and waits for the verdict.
    pub(crate) fn move_cursor_now(
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

    pub(crate) fn flush_cursor(&self, topic: &str, group: &str) -> Result<(), StoreError> {
        match self {
            Self::Local(store) => store.flush_cursor(topic, group),
            Self::Remote(_) => Ok(()),
        }
    }

    /// Claims records. Waits until `deadline` for the first one.
    pub(crate) fn claim(
        &self,
        topic: &str,
        group: &str,
        request: &ClaimRequest<'_>,
        deadline: Option<Instant>,
    ) -> Result<Vec<Work>, WeirError> {
        let mut seen = None;
        loop {
            let got = match self {
                Self::Local(store) => local_claim(store, topic, group, request)?,
                Self::Remote(remote) => {
                    let wait = deadline.map_or(Duration::MAX, |deadline| {
                        deadline.saturating_duration_since(Instant::now())
                    });
                    remote.claim(topic, group, request, wait)?
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
            let due = got.due_ms.map_or(POLL_INTERVAL, time_until);
            let soon = now.checked_add(due.min(POLL_INTERVAL));
            let until = [deadline, soon].into_iter().flatten().min();
            if seen.replace(got.frontier) == Some(got.frontier) {
                // No new record was appended, so wait until the next lease may have expired.
                sleep(until);
            } else {
                // The next claim shows whether a new record exists.
                let _ = store.listen(topic, got.frontier).wait(until);
            }
        }
    }
}

fn local_claim(
    store: &Store,
    topic: &str,
    group: &str,
    request: &ClaimRequest<'_>,
) -> Result<ClaimResult, WeirError> {
    let claimed = store.claim(topic, group, request)?;
    let mut works = Vec::new();
    for delivery in claimed.deliveries {
        works.extend(Work::new(delivery.page, delivery.claim, delivery.attempts)?);
    }
    Ok(ClaimResult {
        works,
        reason: claimed.commit.and_then(|commit| commit.reason),
        frontier: claimed.frontier,
        due_ms: claimed.due_ms,
    })
}

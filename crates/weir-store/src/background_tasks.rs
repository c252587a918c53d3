//! The background thread, which writes deferred cursors and runs retention when they are due. It
//! starts when there is work for it.
//!
//! A cursor that is moved without waiting is deferred. It becomes an intention at most
//! `cursor_flush` later, together with all other due cursors; for each group, only the newest
//! offset is written. Closing the store writes the remaining cursors.
//!
//! Invariant: a deferred cursor is removed only after it, or a newer one, has a verdict, or if its
//! intention is invalid, or if a reset or delete of its group is queued. So a flush returns an
//! error as long as a cursor is not in the log, unless a reset or delete of its group was queued.
//! If that reset or delete fails later, the cursor is lost: after some errors, it is unknown
//! whether the reset is in the log. A reset or delete is queued after each cursor of its group that
//! is being written.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_core::batch::Author;
use weir_core::limits::CALL_ITEMS_MAX;
use weir_core::{GroupStep, Intention, Operation};

use crate::error::StoreError;
use crate::maintenance_handle::MaintenanceHandle;
use crate::proposal::Proposal;
use crate::queue::Notify;
use crate::retention;

/// Maximum number of deferred cursors. When it is reached, a cursor is written immediately.
const CURSORS_MAX: usize = 10_000;
/// Minimum pause before a cursor that was not written is written again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A deferred cursor. It remains in the map while it is being written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeferredCursor {
    generation: u64,
    offset: u64,
    /// `None` if only a flush or a close writes it.
    due: Option<Instant>,
}

impl DeferredCursor {
    /// A cursor with a higher generation or, in one generation, a higher offset is newer.
    fn position(&self) -> (u64, u64) {
        (self.generation, self.offset)
    }
}

/// Topic and group.
pub(crate) type GroupKey = (String, String);
pub(crate) type CursorEntry = (GroupKey, DeferredCursor);

#[derive(Debug, Default)]
struct State {
    cursors: BTreeMap<GroupKey, DeferredCursor>,
    retention_due: Option<Instant>,
    is_stopping: bool,
    started: bool,
}

impl State {
    /// Copies of the cursors that match.
    fn copies(&self, matches: impl Fn(&GroupKey, &DeferredCursor) -> bool) -> Vec<CursorEntry> {
        let cursors = self.cursors.iter();
        let matching = cursors.filter(|(key, cursor)| matches(key, cursor));
        matching
            .map(|(key, cursor)| (key.clone(), *cursor))
            .collect()
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Locked from the copy of deferred cursors until their intentions are queued.
    queueing: Mutex<()>,
    cursor_flush: Duration,
}

/// The background thread and the state that it shares with callers.
#[derive(Debug)]
pub(crate) struct BackgroundTasks {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    retention_every: Option<Duration>,
}

impl BackgroundTasks {
    pub(crate) fn new(cursor_flush: Duration, retention_every: Option<Duration>) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                changed: Condvar::default(),
                queueing: Mutex::default(),
                cursor_flush,
            }),
            thread: Mutex::default(),
            retention_every,
        }
    }

    /// Starts the periodic retention check, because a topic has limits, or may get some from another
    /// node.
    pub(crate) fn watch_retention(&self, handle: &MaintenanceHandle) {
        let Some(every) = self.retention_every else {
            return;
        };
        let mut state = self.shared.state.lock();
        if state.retention_due.is_none() {
            state.retention_due = Instant::now().checked_add(every);
            self.start(state, handle);
        }
    }

    /// Defers a cursor. Returns `false` if the caller must write the cursor now.
    pub(crate) fn defer_cursor(
        &self,
        handle: &MaintenanceHandle,
        (topic, group): (&str, &str),
        generation: u64,
        offset: u64,
    ) -> bool {
        let mut state = self.shared.state.lock();
        if state.is_stopping {
            return false;
        }
        let key = (topic.to_owned(), group.to_owned());
        if let Some(cursor) = state.cursors.get_mut(&key) {
            if cursor.generation == generation {
                cursor.offset = cursor.offset.max(offset);
                return true;
            }
            // Only the newest generation can still move the cursor.
            if cursor.generation > generation {
                return true;
            }
            (cursor.generation, cursor.offset) = (generation, offset);
            return true;
        }
        let due = Instant::now().checked_add(self.shared.cursor_flush);
        if due.is_none() || state.cursors.len() >= CURSORS_MAX {
            return false;
        }
        let cursor = DeferredCursor {
            generation,
            offset,
            due,
        };
        state.cursors.insert(key, cursor);
        self.start(state, handle);
        true
    }

    /// Removes the deferred cursor of a group, unless it is newer than the cursor that the caller has
    /// written.
    pub(crate) fn discard_cursor(
        &self,
        (topic, group): (&str, &str),
        generation: u64,
        offset: u64,
    ) {
        let key = (topic.to_owned(), group.to_owned());
        let mut state = self.shared.state.lock();
        let deferred = state.cursors.get(&key);
        if deferred.is_some_and(|cursor| cursor.position() <= (generation, offset)) {
            state.cursors.remove(&key);
        }
    }

    /// Removes and returns the deferred cursors of groups that these intentions reset or delete. If
    /// such a cursor were written later, it would undo the reset. If there are such groups, blocks
    /// until the cursors that are being written are queued.
    pub(crate) fn take_ended(&self, intentions: &[Intention<'_>]) -> Vec<CursorEntry> {
        let ended: Vec<GroupKey> = intentions
            .iter()
            .filter_map(|intention| match intention.operation {
                Operation::Cursor {
                    group,
                    step: GroupStep::Reset { .. } | GroupStep::Delete,
                } => Some((intention.topic.to_owned(), group.to_owned())),
                _ => None,
            })
            .collect();
        if ended.is_empty() {
            return Vec::new();
        }
        let mut taken = Vec::new();
        for key in ended {
            let cursor = self.shared.state.lock().cursors.remove(&key);
            taken.extend(cursor.map(|cursor| (key, cursor)));
        }
        // A write may have copied such a cursor before, and not queued it yet.
        drop(self.shared.queueing.lock());
        taken
    }

    /// Defers cursors again that [`take_ended`](Self::take_ended) returned, unless the group has a
    /// deferred cursor now.
    pub(crate) fn restore(&self, cursors: Vec<CursorEntry>) {
        if cursors.is_empty() {
            return;
        }
        let mut state = self.shared.state.lock();
        for (key, cursor) in cursors {
            state.cursors.entry(key).or_insert(cursor);
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Writes all deferred cursors, or only the cursor of one group. Blocks until their verdicts
    /// have returned. Does not wait for cursors that are deferred later.
    ///
    /// # Errors
    /// The first error of a write.
    pub(crate) fn flush(
        &self,
        handle: &MaintenanceHandle,
        only: Option<(&str, &str)>,
    ) -> Result<(), StoreError> {
        let is_flushed = |(topic, group): &GroupKey, _: &DeferredCursor| {
            only.is_none_or(|only| only == (topic.as_str(), group.as_str()))
        };
        self.shared.write(handle, is_flushed, Notify::Now)
    }

    fn start(&self, mut state: MutexGuard<'_, State>, handle: &MaintenanceHandle) {
        if state.started {
            drop(state);
            self.shared.changed.notify_all();
            return;
        }
        let (shared, handle) = (Arc::clone(&self.shared), handle.clone());
        let every = self.retention_every;
        let work = move || {
            run(&shared, &handle, every);
            shared.state.lock().started = false;
            shared.changed.notify_all();
        };
        let name = "weir-background".to_owned();
        // Without a thread, closing the store writes the cursors.
        if let Ok(thread) = std::thread::Builder::new().name(name).spawn(work) {
            state.started = true;
            drop(state);
            *self.thread.lock() = Some(thread);
        }
    }

    /// After this call, no cursor is deferred. A flush may still start a write; the queue rejects the
    /// write if the store is being closed or is read-only.
    pub(crate) fn begin_stop(&self) {
        self.shared.state.lock().is_stopping = true;
        self.shared.changed.notify_all();
    }

    /// Ends the thread and writes the remaining cursors, although the store is being closed. Waits
    /// only for entries that are in the log.
    pub(crate) fn stop(&self, handle: &MaintenanceHandle) {
        self.begin_stop();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            drop(thread.join());
        }
        drop(self.shared.write(handle, |_, _| true, Notify::Last));
    }
}

impl Shared {
    /// Writes the cursors that match as intentions, and blocks until their verdicts are known. A
    /// verdict other than VALID means that another member owns the group; it needs no action.
    ///
    /// # Errors
    /// The first error. A cursor remains deferred unless it is invalid.
    fn write(
        &self,
        handle: &MaintenanceHandle,
        matches: impl Fn(&GroupKey, &DeferredCursor) -> bool,
        notify: Notify,
    ) -> Result<(), StoreError> {
        let queueing = self.queueing.lock();
        let cursors = self.state.lock().copies(matches);
        let parts = cursors.chunks(CALL_ITEMS_MAX);
        let sent: Vec<_> = parts
            .map(|part| {
                let moves: Vec<_> = part.iter().map(intention).collect();
                (part, handle.propose(Author::Client, &moves, notify))
            })
            .collect();
        drop(queueing);
        let mut result = Ok(());
        for (part, proposal) in sent {
            let written = proposal.and_then(Proposal::wait).map(drop);
            self.finish(part, written.as_ref().err());
            result = result.and(written);
        }
        result
    }

    /// Removes the cursors of a call, except for cursors that were moved meanwhile and cursors that
    /// were not written.
    fn finish(&self, part: &[CursorEntry], error: Option<&StoreError>) {
        let pause = match error {
            None => Some(self.cursor_flush),
            // Only a flush or the close writes the cursors again, because the error is permanent.
            Some(
                StoreError::Poisoned { .. } | StoreError::InDoubt { .. } | StoreError::ReadOnly,
            ) => None,
            Some(_) => Some(self.cursor_flush.max(RETRY_PAUSE)),
        };
        let due = pause.and_then(|pause| Instant::now().checked_add(pause));
        let mut state = self.state.lock();
        for (number, (key, written)) in part.iter().enumerate() {
            let Some(cursor) = state.cursors.get_mut(key) else {
                continue;
            };
            if cursor.position() == written.position() && is_final(error, number) {
                state.cursors.remove(key);
            } else {
                cursor.due = due;
            }
        }
    }
}

/// Whether a cursor has a verdict or is invalid, after a call with this result. `number` is the
/// position of the cursor in the call.
fn is_final(error: Option<&StoreError>, number: usize) -> bool {
    match error {
        None => true,
        // Only this cursor is invalid.
        Some(StoreError::Refused { index, .. }) => *index == number,
        Some(_) => false,
    }
}

fn wait(shared: &Shared, state: &mut MutexGuard<'_, State>, until: Option<Instant>) {
    match until {
        None => shared.changed.wait(state),
        Some(until) => {
            shared.changed.wait_until(state, until);
        }
    }
}

fn run(shared: &Shared, handle: &MaintenanceHandle, every: Option<Duration>) {
    let mut state = shared.state.lock();
    while !state.is_stopping {
        let now = Instant::now();
        let is_due =
            |_: &GroupKey, cursor: &DeferredCursor| cursor.due.is_some_and(|due| due <= now);
        let mut cursors = state.cursors.iter();
        if cursors.any(|(key, cursor)| is_due(key, cursor)) {
            drop(state);
            if let Err(error) = shared.write(handle, is_due, Notify::Now) {
                tracing::debug!(%error, "deferred cursors were not written");
            }
            state = shared.state.lock();
            continue;
        }
        if state.retention_due.is_some_and(|due| due <= now) {
            state.retention_due = every.and_then(|every| now.checked_add(every));
            drop(state);
            // The next round retries failed steps. A failed sync has poisoned the store.
            let retained = retention::retain(handle, None, || handle.maintenance.try_acquire());
            if let Err(error) = retained
                && error.is_damage()
            {
                tracing::warn!(%error, "retention removes no records of a damaged topic");
            }
            state = shared.state.lock();
            continue;
        }
        let next = state.cursors.values().filter_map(|cursor| cursor.due).min();
        let next = [next, state.retention_due].into_iter().flatten().min();
        wait(shared, &mut state, next);
    }
}

fn intention(((topic, group), cursor): &CursorEntry) -> Intention<'_> {
    let step = GroupStep::Move {
        generation: cursor.generation,
        offset: cursor.offset,
    };
    Intention::new(topic, Operation::Cursor { group, step })
}

/// Whether any live topic has limits.
pub(crate) fn has_limits(handle: &MaintenanceHandle) -> bool {
    let machine = handle.engine.machine.read();
    machine.topics().any(|view| {
        view.options
            .is_some_and(|options| options.retention.is_limited())
    })
}

/// Whether one of these intentions sets retention limits of a topic.
pub(crate) fn sets_limits(intentions: &[Intention<'_>]) -> bool {
    intentions
        .iter()
        .any(|intention| match intention.operation {
            Operation::Create { options }
            | Operation::Alter { options }
            | Operation::CreateProgram { options, .. } => options.retention.is_limited(),
            _ => false,
        })
}

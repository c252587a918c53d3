//! The background thread, which writes deferred cursors and runs retention when they are due. It
//! starts when there is work for it.
//!
//! A cursor that is moved without waiting is deferred. It becomes an intention at most
//! `cursor_flush` later, together with all other due cursors; for each group, only the newest
//! offset is written. Closing the store writes the remaining cursors.

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

/// A deferred cursor.
#[derive(Clone, Copy, Debug)]
struct DeferredCursor {
    generation: u64,
    offset: u64,
    due: Instant,
}

/// Topic and group.
type GroupKey = (String, String);
type CursorEntry = (GroupKey, DeferredCursor);

/// How many writes of deferred cursors were started, and how many have ended.
#[derive(Clone, Copy, Debug, Default)]
struct WriteCounts {
    started: u64,
    ended: u64,
}

impl WriteCounts {
    fn is_running(self) -> bool {
        self.started > self.ended
    }
}

#[derive(Debug, Default)]
struct State {
    cursors: BTreeMap<GroupKey, DeferredCursor>,
    retention_due: Option<Instant>,
    /// Writes of the thread (`writes`) and of callers of `flush` (`flushes`).
    writes: WriteCounts,
    flushes: WriteCounts,
    is_stopping: bool,
    started: bool,
}

impl State {
    /// Puts rejected cursors back while the store is being closed: only the last write of `stop`
    /// still takes cursors then.
    fn put_back(&mut self, rejected: Vec<CursorEntry>) {
        if self.is_stopping {
            for (name, cursor) in rejected {
                self.cursors.entry(name).or_insert(cursor);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The background thread and the state that it shares with callers.
#[derive(Debug)]
pub(crate) struct BackgroundTasks {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    cursor_flush: Duration,
    retention_every: Option<Duration>,
}

impl BackgroundTasks {
    pub(crate) fn new(cursor_flush: Duration, retention_every: Option<Duration>) -> Self {
        Self {
            shared: Arc::default(),
            thread: Mutex::default(),
            cursor_flush,
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
        let Some(due) = Instant::now().checked_add(self.cursor_flush) else {
            return false;
        };
        if state.cursors.len() >= CURSORS_MAX {
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

    /// Removes a deferred cursor, because the caller now writes a newer offset.
    pub(crate) fn discard_cursor(&self, topic: &str, group: &str) {
        let key = (topic.to_owned(), group.to_owned());
        self.shared.state.lock().cursors.remove(&key);
    }

    /// Writes all deferred cursors, or only the cursor of one group. Blocks until their verdicts,
    /// and those of the writes that are already running, have returned. Does not wait for cursors
    /// that are deferred later.
    pub(crate) fn flush(&self, handle: &MaintenanceHandle, only: Option<(&str, &str)>) {
        let only = only.map(|(topic, group)| (topic.to_owned(), group.to_owned()));
        let mut state = self.shared.state.lock();
        let cursors: Vec<CursorEntry> = match &only {
            None => std::mem::take(&mut state.cursors).into_iter().collect(),
            Some(name) => state.cursors.remove_entry(name).into_iter().collect(),
        };
        let started = state.writes.started;
        state.flushes.started += 1;
        drop(state);
        let rejected = write(handle, &cursors, Notify::Now);
        let mut state = self.shared.state.lock();
        state.put_back(rejected);
        state.flushes.ended += 1;
        self.shared.changed.notify_all();
        while state.writes.ended < started {
            wait(&self.shared, &mut state, None);
        }
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

    /// After this call, no cursor is deferred and no write starts.
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
        let mut state = self.shared.state.lock();
        while state.flushes.is_running() {
            wait(&self.shared, &mut state, None);
        }
        let remaining = std::mem::take(&mut state.cursors);
        drop(state);
        let remaining: Vec<CursorEntry> = remaining.into_iter().collect();
        drop(write(handle, &remaining, Notify::Last));
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
        let due = |cursor: &DeferredCursor| cursor.due <= now;
        if state.cursors.values().any(due) {
            let cursors = std::mem::take(&mut state.cursors);
            let (now_due, later): (Vec<_>, Vec<_>) =
                cursors.into_iter().partition(|(_, cursor)| due(cursor));
            state.cursors = later.into_iter().collect();
            state = write_due(shared, handle, state, &now_due);
            continue;
        }
        if state.retention_due.is_some_and(|due| due <= now) {
            state.retention_due = every.and_then(|every| now.checked_add(every));
            drop(state);
            // The next round retries failed steps. A failed sync has poisoned the store.
            drop(retention::retain(handle, None, || {
                handle.maintenance.try_acquire()
            }));
            state = shared.state.lock();
            continue;
        }
        let next = state.cursors.values().map(|cursor| cursor.due).min();
        let next = [next, state.retention_due].into_iter().flatten().min();
        wait(shared, &mut state, next);
    }
}

/// Writes cursors that are due.
fn write_due<'a>(
    shared: &'a Shared,
    handle: &MaintenanceHandle,
    mut state: MutexGuard<'a, State>,
    cursors: &[CursorEntry],
) -> MutexGuard<'a, State> {
    state.writes.started += 1;
    drop(state);
    let rejected = write(handle, cursors, Notify::Now);
    let mut state = shared.state.lock();
    state.put_back(rejected);
    state.writes.ended += 1;
    shared.changed.notify_all();
    state
}

fn intention(((topic, group), cursor): &CursorEntry) -> Intention<'_> {
    let step = GroupStep::Move {
        generation: cursor.generation,
        offset: cursor.offset,
    };
    Intention::new(topic, Operation::Cursor { group, step })
}

/// Writes cursors as intentions and blocks until their verdicts are known. A verdict other than
/// VALID means that another member owns the group; it needs no action. Returns the cursors that the
/// store rejected because it is being closed.
fn write(handle: &MaintenanceHandle, cursors: &[CursorEntry], notify: Notify) -> Vec<CursorEntry> {
    let parts = cursors.chunks(CALL_ITEMS_MAX);
    let sent: Vec<_> = parts
        .map(|part| {
            let moves: Vec<_> = part.iter().map(intention).collect();
            (part, handle.propose(Author::Client, &moves, notify))
        })
        .collect();
    let mut rejected = Vec::new();
    for (part, proposal) in sent {
        if matches!(proposal.and_then(Proposal::wait), Err(StoreError::Closed)) {
            rejected.extend_from_slice(part);
        }
    }
    rejected
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

//! The thread for what is due at a time: cursors that wait to be written, and
//! retention. It exists only once there is something for it to do.
//!
//! A cursor that is moved without waiting becomes an intention at the latest
//! `cursor_flush` later, together with all others that are due, and each group
//! only with its newest offset. Closing the store writes what is left.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_core::limits::CALL_ITEMS_MAX;
use weir_core::{GroupStep, Intention, Operation};

use crate::error::StoreError;
use crate::maintenance_handle::MaintenanceHandle;
use crate::proposal::Proposal;
use crate::queue::Notify;
use crate::retention;

/// Cursors that may wait to be written; one more is written at once.
const CURSORS_MAX: usize = 10_000;

/// A cursor that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    generation: u64,
    offset: u64,
    due: Instant,
}

/// Topic and group.
type Name = (String, String);
type Cursor = (Name, Waiting);

/// How often cursors were taken out to be written, and how often that was
/// over.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    begun: u64,
    ended: u64,
}

impl Rounds {
    fn runs(self) -> bool {
        self.begun > self.ended
    }
}

#[derive(Debug, Default)]
struct State {
    cursors: BTreeMap<Name, Waiting>,
    retention_due: Option<Instant>,
    /// Rounds of the thread, and of callers waiting for a flush.
    rounds: Rounds,
    flushes: Rounds,
    stops: bool,
    started: bool,
}

impl State {
    /// While the store is being closed nobody takes cursors but its last round.
    fn put_back(&mut self, refused: Vec<Cursor>) {
        if self.stops {
            for (name, waiting) in refused {
                self.cursors.entry(name).or_insert(waiting);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The thread, and what is handed to it.
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

    /// Some topic has limits: from now on they are looked at now and then.
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

    /// Takes a cursor to be written later. False when it must be written now.
    pub(crate) fn take_cursor(
        &self,
        handle: &MaintenanceHandle,
        (topic, group): (&str, &str),
        generation: u64,
        offset: u64,
    ) -> bool {
        let mut state = self.shared.state.lock();
        if state.stops {
            return false;
        }
        let key = (topic.to_owned(), group.to_owned());
        if let Some(waiting) = state.cursors.get_mut(&key) {
            if waiting.generation == generation {
                waiting.offset = waiting.offset.max(offset);
                return true;
            }
            // The newest generation is the one that can still move it.
            if waiting.generation > generation {
                return true;
            }
            (waiting.generation, waiting.offset) = (generation, offset);
            return true;
        }
        let Some(due) = Instant::now().checked_add(self.cursor_flush) else {
            return false;
        };
        if state.cursors.len() >= CURSORS_MAX {
            return false;
        }
        let waiting = Waiting {
            generation,
            offset,
            due,
        };
        state.cursors.insert(key, waiting);
        self.start(state, handle);
        true
    }

    /// Takes back a cursor that waits: a newer one is written now.
    pub(crate) fn forget_cursor(&self, topic: &str, group: &str) {
        let key = (topic.to_owned(), group.to_owned());
        self.shared.state.lock().cursors.remove(&key);
    }

    /// Writes every cursor that waits, or that of one group, and waits until
    /// those and the ones that are being written are answered; not for any that
    /// comes later.
    pub(crate) fn flush(&self, handle: &MaintenanceHandle, only: Option<(&str, &str)>) {
        let only = only.map(|(topic, group)| (topic.to_owned(), group.to_owned()));
        let mut state = self.shared.state.lock();
        let waiting: Vec<Cursor> = match &only {
            None => std::mem::take(&mut state.cursors).into_iter().collect(),
            Some(name) => state.cursors.remove_entry(name).into_iter().collect(),
        };
        let begun = state.rounds.begun;
        state.flushes.begun += 1;
        drop(state);
        let refused = write(handle, &waiting, Notify::Now);
        let mut state = self.shared.state.lock();
        state.put_back(refused);
        state.flushes.ended += 1;
        self.shared.changed.notify_all();
        while state.rounds.ended < begun {
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
        // Without a thread the cursors are written when the store is closed.
        if let Ok(thread) = std::thread::Builder::new().name(name).spawn(work) {
            state.started = true;
            drop(state);
            *self.thread.lock() = Some(thread);
        }
    }

    /// From here on no cursor is taken, and no round begins.
    pub(crate) fn begin_stop(&self) {
        self.shared.state.lock().stops = true;
        self.shared.changed.notify_all();
    }

    /// Ends the thread, and writes what is left although the store is being
    /// closed. Waits for nothing but what is in the log.
    pub(crate) fn stop(&self, handle: &MaintenanceHandle) {
        self.begin_stop();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            drop(thread.join());
        }
        let mut state = self.shared.state.lock();
        while state.flushes.runs() {
            wait(&self.shared, &mut state, None);
        }
        let left = std::mem::take(&mut state.cursors);
        drop(state);
        let left: Vec<Cursor> = left.into_iter().collect();
        drop(write(handle, &left, Notify::Last));
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
    while !state.stops {
        let now = Instant::now();
        let due = |waiting: &Waiting| waiting.due <= now;
        if state.cursors.values().any(due) {
            let cursors = std::mem::take(&mut state.cursors);
            let (now_due, later): (Vec<_>, Vec<_>) =
                cursors.into_iter().partition(|(_, waiting)| due(waiting));
            state.cursors = later.into_iter().collect();
            state = round(shared, handle, state, &now_due);
            continue;
        }
        if state.retention_due.is_some_and(|due| due <= now) {
            state.retention_due = every.and_then(|every| now.checked_add(every));
            drop(state);
            if let Some(permit) = handle.maintenance.try_acquire() {
                // What cannot be removed now is tried again; a failed sync has
                // poisoned the store.
                drop(retention::retain(handle, None, &permit));
            }
            state = shared.state.lock();
            continue;
        }
        let next = state.cursors.values().map(|waiting| waiting.due).min();
        let next = [next, state.retention_due].into_iter().flatten().min();
        wait(shared, &mut state, next);
    }
}

/// Writes cursors that are due.
fn round<'a>(
    shared: &'a Shared,
    handle: &MaintenanceHandle,
    mut state: MutexGuard<'a, State>,
    cursors: &[Cursor],
) -> MutexGuard<'a, State> {
    state.rounds.begun += 1;
    drop(state);
    let refused = write(handle, cursors, Notify::Now);
    let mut state = shared.state.lock();
    state.put_back(refused);
    state.rounds.ended += 1;
    shared.changed.notify_all();
    state
}

fn intention(((topic, group), waiting): &Cursor) -> Intention<'_> {
    let step = GroupStep::Move {
        generation: waiting.generation,
        offset: waiting.offset,
    };
    Intention::new(topic, Operation::Cursor { group, step })
}

/// Writes cursors as intentions and waits for their answers. A verdict that is
/// not VALID means that another member owns the group: there is nothing to do.
/// Returns those that the store did not take because it is being closed.
fn write(handle: &MaintenanceHandle, cursors: &[Cursor], notify: Notify) -> Vec<Cursor> {
    let parts = cursors.chunks(CALL_ITEMS_MAX);
    let sent: Vec<_> = parts
        .map(|part| {
            let moves: Vec<_> = part.iter().map(intention).collect();
            (part, handle.propose(&moves, notify))
        })
        .collect();
    let mut refused = Vec::new();
    for (part, proposal) in sent {
        if matches!(proposal.and_then(Proposal::wait), Err(StoreError::Closed)) {
            refused.extend_from_slice(part);
        }
    }
    refused
}

/// Whether any live topic has limits.
pub(crate) fn has_limits(handle: &MaintenanceHandle) -> bool {
    let machine = handle.engine.machine.read();
    machine.topics().any(|view| {
        view.options
            .is_some_and(|options| options.retention.is_limited())
    })
}

/// Whether one of these intentions gives a topic limits.
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

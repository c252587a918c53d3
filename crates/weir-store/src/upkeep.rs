//! The thread for what is due at a time: cursors that wait to be written, and
//! retention. It exists only once there is something for it to do.
//!
//! A cursor that is moved without waiting becomes an intention at the latest
//! `cursor_flush` later, together with all others that are due, and each group
//! only with its newest offset. Closing the store writes what is left.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_core::limits::CALL_ITEMS_MAX;
use weir_core::{GroupStep, Intention, Operation};

use crate::hands::Hands;
use crate::lock_ext::LockExt;
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

#[derive(Debug, Default)]
struct State {
    /// By topic and group.
    cursors: BTreeMap<(String, String), Waiting>,
    retention_due: Option<Instant>,
    /// Cursors were taken out and are not answered yet.
    busy: bool,
    stops: bool,
    started: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The thread, and what is handed to it.
#[derive(Debug)]
pub(crate) struct Upkeep {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    cursor_flush: Duration,
    retention_every: Option<Duration>,
}

impl Upkeep {
    pub(crate) fn new(cursor_flush: Duration, retention_every: Option<Duration>) -> Self {
        Self {
            shared: Arc::default(),
            thread: Mutex::default(),
            cursor_flush,
            retention_every,
        }
    }

    /// Some topic has limits: from now on they are looked at now and then.
    pub(crate) fn watch_retention(&self, hands: &Hands) {
        let Some(every) = self.retention_every else {
            return;
        };
        let mut state = self.shared.state.lock_ok();
        if state.retention_due.is_none() {
            state.retention_due = Instant::now().checked_add(every);
            self.start(state, hands);
        }
    }

    /// Takes a cursor to be written later. False when it must be written now.
    pub(crate) fn take_cursor(
        &self,
        hands: &Hands,
        (topic, group): (&str, &str),
        generation: u64,
        offset: u64,
    ) -> bool {
        let mut state = self.shared.state.lock_ok();
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
        self.start(state, hands);
        true
    }

    /// Takes back a cursor that waits: a newer one is written now.
    pub(crate) fn forget_cursor(&self, topic: &str, group: &str) {
        let key = (topic.to_owned(), group.to_owned());
        self.shared.state.lock_ok().cursors.remove(&key);
    }

    /// Makes every cursor that waits due, and waits until they are answered.
    pub(crate) fn flush(&self, hands: &Hands) {
        let mut state = self.shared.state.lock_ok();
        let now = Instant::now();
        for waiting in state.cursors.values_mut() {
            waiting.due = now;
        }
        self.shared.changed.notify_all();
        while state.started && (state.busy || state.cursors.values().any(|w| w.due <= now)) {
            state = wait(&self.shared, state, None);
        }
        let left = std::mem::take(&mut state.cursors);
        drop(state);
        write(hands, &left.into_iter().collect::<Vec<_>>());
    }

    fn start(&self, mut state: MutexGuard<'_, State>, hands: &Hands) {
        if state.started {
            drop(state);
            self.shared.changed.notify_all();
            return;
        }
        let (shared, hands) = (Arc::clone(&self.shared), hands.clone());
        let every = self.retention_every;
        let work = move || {
            run(&shared, &hands, every);
            shared.state.lock_ok().started = false;
            shared.changed.notify_all();
        };
        let name = "weir-upkeep".to_owned();
        // Without a thread the cursors are written when the store is closed.
        if let Ok(thread) = std::thread::Builder::new().name(name).spawn(work) {
            state.started = true;
            drop(state);
            *self.thread.lock_ok() = Some(thread);
        }
    }

    /// Writes what waits, and ends the thread.
    pub(crate) fn stop(&self, hands: &Hands) {
        self.shared.state.lock_ok().stops = true;
        self.shared.changed.notify_all();
        let thread = self.thread.lock_ok().take();
        if let Some(thread) = thread {
            drop(thread.join());
        }
        let mut state = self.shared.state.lock_ok();
        let left = std::mem::take(&mut state.cursors);
        drop(state);
        write(hands, &left.into_iter().collect::<Vec<_>>());
    }
}

fn wait<'a>(
    shared: &'a Shared,
    state: MutexGuard<'a, State>,
    until: Option<Instant>,
) -> MutexGuard<'a, State> {
    match until {
        None => shared
            .changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner),
        Some(until) => {
            let left = until.saturating_duration_since(Instant::now());
            let waited = shared.changed.wait_timeout(state, left);
            waited.unwrap_or_else(PoisonError::into_inner).0
        }
    }
}

fn run(shared: &Shared, hands: &Hands, every: Option<Duration>) {
    let mut state = shared.state.lock_ok();
    while !state.stops {
        let now = Instant::now();
        let due = |waiting: &Waiting| waiting.due <= now;
        if state.cursors.values().any(due) {
            let cursors = std::mem::take(&mut state.cursors);
            let (now_due, later): (Vec<_>, Vec<_>) =
                cursors.into_iter().partition(|(_, waiting)| due(waiting));
            state.cursors = later.into_iter().collect();
            state.busy = true;
            drop(state);
            write(hands, &now_due);
            state = shared.state.lock_ok();
            state.busy = false;
            shared.changed.notify_all();
            continue;
        }
        if state.retention_due.is_some_and(|due| due <= now) {
            state.retention_due = every.and_then(|every| now.checked_add(every));
            drop(state);
            if let Some(permit) = hands.maintenance.try_acquire() {
                // What cannot be removed now is tried again; a failed sync has
                // poisoned the store.
                drop(retention::retain(hands, None, &permit));
            }
            state = shared.state.lock_ok();
            continue;
        }
        let next = state.cursors.values().map(|waiting| waiting.due).min();
        let next = [next, state.retention_due].into_iter().flatten().min();
        state = wait(shared, state, next);
    }
}

/// Writes cursors as intentions and waits for their answers. A verdict that is
/// not VALID means that somebody else owns the group: nothing to be done.
fn write(hands: &Hands, cursors: &[((String, String), Waiting)]) {
    let moves: Vec<Intention<'_>> = cursors
        .iter()
        .map(|((topic, group), waiting)| {
            let step = GroupStep::Move {
                generation: waiting.generation,
                offset: waiting.offset,
            };
            Intention::new(topic, Operation::Cursor { group, step })
        })
        .collect();
    for part in moves.chunks(CALL_ITEMS_MAX) {
        if let Ok(proposal) = hands.propose(part) {
            drop(proposal.wait());
        }
    }
}

/// Whether any live topic has limits.
pub(crate) fn has_limits(hands: &Hands) -> bool {
    let machine = hands.engine.machine.read_ok();
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

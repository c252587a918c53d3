//! A disk in front of another disk. It delays operations until the test releases them, makes
//! them fail by path, panics, and reports each completed operation to an observer.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_store::disk::{Disk, DiskFile, OpenMode};

/// Operation on a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Open,
    Create,
    Read,
    Write,
    Sync,
    SyncDir,
    Resize,
    Rename,
    Remove,
}

impl Op {
    /// Returns whether the operation changes the disk or makes a change durable.
    pub fn changes(self) -> bool {
        !matches!(self, Self::Open | Self::Read)
    }
}

/// The effect on operations of one kind whose paths contain a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Waits for [`Gate::release`]; fails after a minute.
    Hold,
    /// As `Hold`, for the first thread only; others pass.
    HoldOne,
    /// Fails with this error number of the operating system.
    Fail(i32),
    /// Fails with this error number for a number of times, then passes.
    FailTimes(i32, u32),
    /// The thread panics.
    Panic,
}

pub const EIO: i32 = 5;
pub const ENFILE: i32 = 23;
pub const EMFILE: i32 = 24;
pub const ENOSPC: i32 = 28;

/// The kind of the batch that seals a log, see the format.
const SEAL: u8 = 2;

/// Much longer than any operation takes.
pub const PATIENCE: Duration = Duration::from_mins(1);

type Observer = Arc<Mutex<dyn FnMut(Op, &str) + Send>>;

#[derive(Default)]
struct State {
    rules: Vec<(Op, String, Rule)>,
    held: usize,
    done: Vec<(Op, String)>,
    open: usize,
    most_open: usize,
    observer: Option<Observer>,
    /// Number of operations in progress on the disk.
    acting: usize,
    /// The observer is running: no operation may begin.
    observing: bool,
    /// Whether the newest write of the log is a seal.
    ends_with_seal: bool,
    /// Whether the newest sync of the log came after a seal.
    is_sealed: bool,
    waiting: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply_rule(&self, op: Op, path: &str) -> io::Result<()> {
        let mut state = self.state();
        let mut waits = false;
        let outcome = loop {
            let rule = state
                .rules
                .iter_mut()
                .find(|(o, p, _)| *o == op && path.contains(p.as_str()));
            let rule = rule.map(|(_, _, rule)| match rule {
                Rule::FailTimes(_, 0) => None,
                Rule::FailTimes(error, left) => {
                    *left -= 1;
                    Some(Rule::Fail(*error))
                }
                rule => Some(*rule),
            });
            match rule.flatten() {
                None | Some(Rule::FailTimes(..)) => break Ok(()),
                Some(Rule::Fail(error)) => break Err(io::Error::from_raw_os_error(error)),
                Some(Rule::Panic) => {
                    drop(state);
                    panic!("scripted: {op:?} of {path}");
                }
                Some(Rule::HoldOne) if state.held > 0 && !waits => break Ok(()),
                Some(Rule::Hold | Rule::HoldOne) => {
                    if !waits {
                        waits = true;
                        state.held += 1;
                        self.changed.notify_all();
                    }
                    let waited = self.changed.wait_timeout(state, PATIENCE).unwrap();
                    state = waited.0;
                    if waited.1.timed_out() {
                        // The test has failed already. Its store must be able to close.
                        break Err(io::ErrorKind::TimedOut.into());
                    }
                }
            }
        };
        if waits {
            state.held -= 1;
            self.changed.notify_all();
        }
        outcome
    }

    /// Waits until the observer of another thread's operation has returned.
    fn until_observed<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while state.observing {
            state.waiting += 1;
            state = self.wait(state);
            state.waiting -= 1;
        }
        state
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the observer while no thread uses the disk. So the disk and the variables of
    /// the test do not change meanwhile.
    fn observe(&self, op: Op, path: &str) {
        let mut state = self.until_observed(self.state());
        let Some(observer) = state.observer.clone() else {
            return;
        };
        state.observing = true;
        while state.acting > 0 {
            state = self.wait(state);
        }
        // The observer may set rules.
        drop(state);
        let _ended = Observing(self);
        let mut observer = observer.lock().unwrap_or_else(PoisonError::into_inner);
        observer(op, path);
    }

    fn run<T>(&self, op: Op, path: &str, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.apply_rule(op, path)?;
        self.until_observed(self.state()).acting += 1;
        let result = act();
        let mut state = self.state();
        state.acting -= 1;
        if result.is_ok() {
            state.done.push((op, path.to_owned()));
        }
        drop(state);
        self.changed.notify_all();
        if result.is_ok() {
            self.observe(op, path);
        }
        result
    }
}

/// Clears `observing` when it is dropped, also when the observer panics.
struct Observing<'a>(&'a Shared);

impl Drop for Observing<'_> {
    fn drop(&mut self) {
        self.0.state().observing = false;
        self.0.changed.notify_all();
    }
}

/// The intermediate disk. Clones share one disk.
#[derive(Clone)]
pub struct Gate {
    inner: Arc<dyn Disk>,
    shared: Arc<Shared>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

impl Gate {
    pub fn new(inner: impl Disk + 'static) -> Self {
        Self {
            inner: Arc::new(inner),
            shared: Arc::default(),
        }
    }

    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    pub fn rule(&self, op: Op, path: &str, rule: Rule) {
        self.shared.state().rules.push((op, path.to_owned(), rule));
    }

    /// Removes all rules; held operations continue.
    pub fn release(&self) {
        self.shared.state().rules.clear();
        self.shared.changed.notify_all();
    }

    /// Waits until an operation is held. Panics after [`PATIENCE`].
    pub fn wait_held(&self) {
        let state = self.shared.state();
        let nothing = |state: &mut State| state.held == 0;
        let changed = &self.shared.changed;
        let waited = changed
            .wait_timeout_while(state, PATIENCE, nothing)
            .unwrap();
        let timed_out = waited.1.timed_out();
        drop(waited);
        assert!(!timed_out, "no such operation was started");
    }

    /// Waits until the log is sealed: the commit thread then uses the disk only for a request.
    /// Without this wait, a rule or a count may meet the seal instead of the next write, because
    /// the log is sealed after a tenth of a second without writes. Panics after [`PATIENCE`].
    pub fn wait_sealed(&self) {
        let state = self.shared.state();
        let is_open = |state: &mut State| !(state.ends_with_seal && state.is_sealed);
        let changed = &self.shared.changed;
        let waited = changed
            .wait_timeout_while(state, PATIENCE, is_open)
            .unwrap();
        let timed_out = waited.1.timed_out();
        drop(waited);
        assert!(!timed_out, "the log was not sealed");
    }

    /// Returns the number of completed operations of this kind on paths that contain the
    /// text.
    pub fn count(&self, op: Op, path: &str) -> usize {
        let state = self.shared.state();
        let same = |done: &&(Op, String)| done.0 == op && done.1.contains(path);
        state.done.iter().filter(same).count()
    }

    /// Returns the number of threads that wait for the observer to return.
    pub fn waiting(&self) -> usize {
        self.shared.state().waiting
    }

    /// Returns the largest number of files that were open at one time.
    pub fn most_open(&self) -> usize {
        self.shared.state().most_open
    }

    /// Calls `observer` after each operation, on the thread of that operation. All other
    /// threads wait meanwhile before they use the disk.
    pub fn observe(&self, observer: impl FnMut(Op, &str) + Send + 'static) {
        self.shared.state().observer = Some(Arc::new(Mutex::new(observer)));
    }
}

impl Disk for Gate {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let op = if mode == OpenMode::CreateNew {
            Op::Create
        } else {
            Op::Open
        };
        let inner = self.shared.run(op, path, || self.inner.open(path, mode))?;
        let mut state = self.shared.state();
        state.open += 1;
        state.most_open = state.most_open.max(state.open);
        Ok(Arc::new(GateFile {
            inner,
            path: path.to_owned(),
            shared: Arc::clone(&self.shared),
        }))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.shared
            .run(Op::Create, dir, || self.inner.create_dir(dir))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.shared
            .run(Op::Rename, to, || self.inner.rename(from, to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.shared
            .run(Op::Remove, path, || self.inner.remove(path))
    }

    fn remove_dir(&self, dir: &str) -> io::Result<()> {
        self.shared
            .run(Op::Remove, dir, || self.inner.remove_dir(dir))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.shared
            .run(Op::SyncDir, dir, || self.inner.sync_dir(dir))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.inner.free_bytes()
    }
}

struct GateFile {
    inner: Arc<dyn DiskFile>,
    path: String,
    shared: Arc<Shared>,
}

impl Drop for GateFile {
    fn drop(&mut self) {
        self.shared.state().open -= 1;
    }
}

impl fmt::Debug for GateFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl DiskFile for GateFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let read = || self.inner.read_exact_at(buffer, offset);
        self.shared.run(Op::Read, &self.path, read)
    }

    fn write_all_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let is_seal = parts
            .first()
            .is_some_and(|head| head.starts_with(b"WBAT") && head.get(6) == Some(&SEAL));
        let write = || self.inner.write_all_at(parts, offset);
        let written = self.shared.run(Op::Write, &self.path, write);
        if self.path.starts_with("log/") {
            self.shared.state().ends_with_seal = is_seal && written.is_ok();
        }
        written
    }

    fn sync_data(&self) -> io::Result<()> {
        let sync = || self.inner.sync_data();
        let synced = self.shared.run(Op::Sync, &self.path, sync);
        if self.path.starts_with("log/") {
            let mut state = self.shared.state();
            state.is_sealed = state.ends_with_seal && synced.is_ok();
            drop(state);
            self.shared.changed.notify_all();
        }
        synced
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let resize = || self.inner.set_len(len);
        self.shared.run(Op::Resize, &self.path, resize)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let resize = || self.inner.allocate(len);
        self.shared.run(Op::Resize, &self.path, resize)
    }
}

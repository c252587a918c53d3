//! Compiles the modules of a replay ahead of their apply, on a thread of its own.
//!
//! The thread reads the log a second time. It decides nothing: an entry that it cannot read, or
//! a module that the host refuses, is met again by the replay.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::{Builder, Scope};

use weir_core::batch::Action;
use weir_core::{Program, ProgramHost};

use super::Content;
use crate::engine::{Engine, widest};
use crate::log::{LogIndex, LogReader};

/// Modules that are compiled and not applied, at most. A host keeps few modules that no topic
/// runs: more would push each other out.
const MODULES_MAX: usize = 8;
/// The position that ends the thread.
const ENDED: u64 = u64::MAX;

type Compiled = (LogIndex, Box<dyn Program>);

/// Compiles the modules that a snapshot restored beside everything else, until all are compiled or
/// the store is closed; first those that calls wait for. Without a thread each is compiled in its
/// first call.
pub(crate) fn compile_restored(engine: &Arc<Engine>) {
    /// Calls wait for this thread no longer, however it ends.
    struct Compiling(Weak<Engine>);
    impl Drop for Compiling {
        fn drop(&mut self) {
            if let Some(engine) = self.0.upgrade() {
                engine.queue.compiler_ended();
            }
        }
    }
    if engine.host.is_none() {
        return;
    }
    engine.queue.compiler_began();
    let compiling = Compiling(Arc::downgrade(engine));
    let next = move || {
        let engine = compiling.0.upgrade()?;
        let host = Arc::clone(engine.host.as_ref()?);
        let wanted = engine.queue.wanted();
        // A store can be closed meanwhile.
        drop(engine);
        let code = host.compile_restored(wanted)?;
        compiling.0.upgrade()?.queue.compiled(code);
        Some(())
    };
    let thread = Builder::new().name("weir-compile".to_owned());
    drop(thread.spawn(move || while next().is_some() {}));
}

/// What was compiled and not applied. The thread ends when this is dropped.
pub(crate) struct Ahead {
    programs: Receiver<Compiled>,
    next: Option<Compiled>,
    /// The newest entry that is applied.
    applied: Arc<AtomicU64>,
}

impl Ahead {
    /// Starts the thread; `None` if the system has none. `reader` stands where the replay begins,
    /// `last` is the last entry of the replay.
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        reader: LogReader,
        last: LogIndex,
        host: Arc<dyn ProgramHost>,
    ) -> Option<Self> {
        let (sender, programs) = sync_channel(MODULES_MAX);
        let applied = Arc::new(AtomicU64::new(0));
        let position = Arc::clone(&applied);
        let thread = Builder::new().name("weir-compile".to_owned());
        let work = move || compile(reader, last, &*host, &position, &sender);
        thread.spawn_scoped(scope, work).ok()?;
        Some(Self {
            programs,
            next: None,
            applied,
        })
    }

    /// Everything up to this entry is applied: its programs are dropped here, and others compiled.
    pub(crate) fn applied(&mut self, index: LogIndex) {
        self.applied.store(index.0, Ordering::Relaxed);
        loop {
            if self.next.is_none() {
                self.next = self.programs.try_recv().ok();
            }
            match &self.next {
                Some((at, _)) if *at <= index => self.next = None,
                _ => return,
            }
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.applied.store(ENDED, Ordering::Relaxed);
    }
}

fn compile(
    mut reader: LogReader,
    last: LogIndex,
    host: &dyn ProgramHost,
    applied: &AtomicU64,
    sender: &SyncSender<Compiled>,
) {
    while let Ok(Some(entry)) = reader.next(last) {
        let applied = applied.load(Ordering::Relaxed);
        if applied == ENDED {
            return;
        }
        let content = Content::read(&entry.payload, entry.index, entry.term, entry.count);
        let Ok(Content::Batch(batch)) = content else {
            continue;
        };
        if entry.index.0 <= applied {
            continue;
        }
        for item in batch.items() {
            let Ok(item) = item else { return };
            let (Action::Create { code, .. } | Action::Replace { code, .. }) = item.action else {
                continue;
            };
            if !code.is_empty()
                && let Ok(program) = host.admit(code, &widest())
                && sender.send((entry.index, program)).is_err()
            {
                return;
            }
        }
    }
}

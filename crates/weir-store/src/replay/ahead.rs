//! Compiles modules before their apply, on a separate thread: those of a replay, and those of
//! entries that another node proposed.
//!
//! The thread for a replay reads the log a second time. It ignores entries that it cannot read and
//! modules that the host rejects: the apply finds the same errors and reports them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::{Builder, Scope};

use bytes::Bytes;
use memchr::memmem;
use weir_core::batch::{Action, Batch};
use weir_core::{Program, ProgramHost};

use super::Content;
use crate::engine::{Engine, max_setup};
use crate::log::{LogIndex, LogReader};

/// Maximum number of modules that are compiled and not yet applied. A host retains few modules that
/// no topic runs; with more modules, it would evict some before their apply.
const MODULES_MAX: usize = 8;
/// The first bytes of every module.
const MAGIC: &[u8] = b"\0asm\x01\0\0\0";
/// A position that requests the end of the thread.
const ENDED: u64 = u64::MAX;

type Compiled = (LogIndex, Box<dyn Program>);

/// Compiles the modules that a snapshot restored, on a background thread, until all are compiled or
/// the store is closed. Modules for which calls wait are compiled first. If the thread cannot
/// start, each module is compiled in its first call.
pub(crate) fn compile_restored(engine: &Arc<Engine>) {
    /// Dropping this value releases the held calls, also if the thread panics.
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
        // Without this reference, the store can be closed during the compilation.
        drop(engine);
        let code = host.compile_restored(wanted)?;
        compiling.0.upgrade()?.queue.compiled(code);
        Some(())
    };
    let thread = Builder::new().name("weir-compile".to_owned());
    drop(thread.spawn(move || while next().is_some() {}));
}

/// The modules that are compiled and not yet applied. Dropping this value ends the thread.
pub(crate) struct Ahead {
    programs: Receiver<Compiled>,
    next: Option<Compiled>,
    /// The newest entry that is applied.
    applied: Arc<AtomicU64>,
}

impl Ahead {
    /// Starts the thread; `None` if it cannot start. `reader` is at the first entry of the replay,
    /// `last` is the last one.
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

    /// Reports that all entries up to `index` are applied. Drops their programs, so that the thread
    /// can compile further ones.
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
        let mut is_ended = false;
        admit_all(&batch, host, |program| {
            is_ended |= sender.send((entry.index, program)).is_err();
        });
        if is_ended {
            return;
        }
    }
}

/// Compiles the modules in a batch.
fn admit_all(
    batch: &Batch<'_>,
    host: &dyn ProgramHost,
    mut admitted: impl FnMut(Box<dyn Program>),
) {
    for item in batch.items() {
        let Ok(item) = item else { return };
        let (Action::Create { code, .. } | Action::Replace { code, .. }) = item.action else {
            continue;
        };
        if !code.is_empty()
            && let Ok(program) = host.admit(code, &max_setup())
        {
            admitted(program);
        }
    }
}

/// Compiles the modules of entries that another node proposed, before the entries are committed.
/// The host retains the modules until the apply.
#[derive(Debug, Default)]
pub(crate) struct Appended(Option<SyncSender<Bytes>>);

impl Appended {
    /// Queues the modules of an appended entry. If the queue of the thread is full, the apply
    /// compiles the modules.
    pub(crate) fn add(&mut self, payload: &Bytes, host: Option<&Arc<dyn ProgramHost>>) {
        let Some(host) = host else { return };
        if memmem::find(payload, MAGIC).is_none() {
            return;
        }
        let sender = self.0.get_or_insert_with(|| {
            let (sender, entries) = sync_channel::<Bytes>(MODULES_MAX);
            let host = Arc::clone(host);
            let work = move || {
                for payload in entries {
                    // The term matters only for records. None are created here.
                    if let Ok(batch) = Batch::read(&payload, 0) {
                        admit_all(&batch, &*host, drop);
                    }
                }
            };
            // If the thread cannot start, the apply compiles.
            drop(Builder::new().name("weir-compile".to_owned()).spawn(work));
            sender
        });
        drop(sender.try_send(payload.clone()));
    }
}

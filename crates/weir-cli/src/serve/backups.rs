//! Copies of the store while it is served, made on SIGUSR1.
//!
//! Invariants:
//! - The thread that handles signals never waits for the disk.
//! - At most one copy runs at a time.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use weir::{ErrorCode, Store};

use crate::report::Failure;

/// The directory for copies, and the running copy.
pub(super) struct Backups {
    directory: Option<PathBuf>,
    store: Arc<Store>,
    running: RefCell<Option<JoinHandle<()>>>,
}

/// Checks that the settings name a usable directory.
pub(super) fn check(directory: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = directory.filter(|path| !path.is_dir()) else {
        return Ok(());
    };
    let what = format!("cannot use the setting backups = {}", path.display());
    Err(Failure::new(ErrorCode::BadOption, what)
        .because("the path is not a directory")
        .advise("create the directory without access for other users: backups contain all data")
        .tool()
        .into())
}

impl Backups {
    /// Copies go into `directory`. If it is `None`, no copies are made.
    pub(super) fn new(directory: Option<&Path>, store: Arc<Store>) -> Self {
        Self {
            directory: directory.map(Path::to_owned),
            store,
            running: RefCell::default(),
        }
    }

    /// Starts a copy.
    pub(super) fn make(&self) {
        let Some(directory) = &self.directory else {
            tracing::warn!(
                "SIGUSR1 requested a backup, but the setting `backups` names no directory"
            );
            return;
        };
        if self.is_running() {
            tracing::warn!("SIGUSR1 was ignored, because a backup is in progress");
            return;
        }
        let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        let target = directory.join(format!("weir-{now}"));
        let store = Arc::clone(&self.store);
        let thread = std::thread::Builder::new().name("weir-backup".into());
        match thread.spawn(move || copy(&store, &target)) {
            Ok(copying) => drop(self.running.replace(Some(copying))),
            // The server continues: it may have reached the limit of threads.
            Err(error) => tracing::error!(%error, "the backup failed"),
        }
    }

    /// Whether a copy is running.
    pub(super) fn is_running(&self) -> bool {
        let running = self.running.borrow();
        running.as_ref().is_some_and(|copy| !copy.is_finished())
    }

    /// Waits for the running copy.
    pub(super) fn end(self) {
        if let Some(copy) = self.running.into_inner() {
            // The panic of the thread was printed when it happened.
            drop(copy.join());
        }
    }
}

fn copy(store: &Store, target: &Path) {
    let started = Instant::now();
    let shown = target.display();
    match store.backup(target) {
        Ok(report) => {
            let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            let (files, bytes) = (report.files, report.bytes);
            tracing::info!(target = %shown, files, bytes, ms, "the store was backed up");
        }
        Err(error) => tracing::error!(target = %shown, %error, "the backup failed"),
    }
}

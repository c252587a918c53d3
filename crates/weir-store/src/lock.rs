//! The lock of a store directory: one process writes to the directory at a time.
//!
//! The lock is an advisory `flock` on `DIR/LOCK`, which the system releases when the process ends.
//! The text in the file shows other processes which process holds the lock.
//!
//! Invariants:
//! - No decision depends on the text in the file.
//! - The file is never removed. Otherwise a third process could lock another file of this name.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;

use crate::error::{IoVerb, StoreError};

/// Name of the lock file.
pub const LOCK_FILE: &str = "LOCK";
/// Name of the socket on which other processes of this machine reach the server of the directory.
/// Only the holder of the lock may create or remove it.
pub const SOCKET_FILE: &str = "weir.sock";
/// How long a second opener waits until the holder has written its text.
const WAIT_FOR_TEXT: Duration = Duration::from_millis(250);
/// Pause between two attempts to get a held lock.
const PAUSE: Duration = Duration::from_millis(5);
/// Maximum number of bytes that are read from the lock file.
const TEXT_BYTES_MAX: u64 = 1024;

/// Holds the lock of a directory until it is dropped.
#[derive(Debug)]
pub struct DirLock {
    /// Closing the file releases the lock.
    file: File,
    /// Whether this process has written its text to the file.
    has_text: bool,
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // The next process that fails to get the lock must not report a process that has ended. If
        // the file cannot be emptied, only its text is stale.
        if self.has_text {
            drop(self.file.set_len(0));
        }
    }
}

impl DirLock {
    /// The file that is locked.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Locks `directory` for this process, which other processes see as `program`. Creates the
    /// directory with mode 0700 if it does not exist. Returns within 0.3 s.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another open handle, in this or another process, has the lock.
    pub fn acquire(directory: &Path, program: &str) -> Result<Self, StoreError> {
        Self::acquire_within(directory, program, Duration::ZERO, None)
    }

    /// Like [`acquire`](Self::acquire), but waits up to `wait` while another handle has the lock.
    /// `on_locked` is called with the holder within 0.3 s.
    ///
    /// # Errors
    /// The errors of [`acquire`](Self::acquire), after `wait` or when `on_locked` returns `false`.
    pub fn acquire_within(
        directory: &Path,
        program: &str,
        wait: Duration,
        on_locked: Option<&OnLocked>,
    ) -> Result<Self, StoreError> {
        let text = directory.display().to_string();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(StoreError::io(IoVerb::Open, &text))?;
        let path = directory.join(LOCK_FILE);
        let subject = path.display().to_string();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(no_follow())
            .open(&path)
            .map_err(StoreError::io(IoVerb::Open, &subject))?;
        let started = Instant::now();
        let mut announced = None;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {
                    continue;
                }
                Err(TryLockError::Error(error)) => {
                    return Err(StoreError::io(IoVerb::Lock, &subject)(error));
                }
            }
            let holder = LockHolder::read(&mut file, directory);
            let passed = started.elapsed();
            if holder.pid != 0 || passed >= WAIT_FOR_TEXT {
                let mut waits = passed < wait;
                if let Some(on_locked) = on_locked
                    && announced != Some(holder.pid)
                {
                    announced = Some(holder.pid);
                    waits &= on_locked.call(&holder);
                }
                if !waits {
                    return Err(holder.into_error(text));
                }
            }
            std::thread::sleep(PAUSE);
        }
        write_holder(&mut file, program).map_err(StoreError::io(IoVerb::Write, &subject))?;
        Ok(Self {
            file,
            has_text: true,
        })
    }

    /// Makes sure that no process writes to `directory`, without changing it. Returns `None` if
    /// there is no lock file or this process may not read it.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another open handle has the lock.
    pub(crate) fn shared(directory: &Path) -> Result<Option<Self>, StoreError> {
        let path = directory.join(LOCK_FILE);
        let subject = path.display().to_string();
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(no_follow())
            .open(&path);
        let mut file = match opened {
            Ok(file) => file,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(StoreError::io(IoVerb::Open, &subject)(error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(Self {
                file,
                has_text: false,
            })),
            Err(TryLockError::WouldBlock) => {
                let text = directory.display().to_string();
                Err(LockHolder::read(&mut file, directory).into_error(text))
            }
            Err(TryLockError::Error(error)) => Err(StoreError::io(IoVerb::Lock, &subject)(error)),
        }
    }
}

/// Flags for an open that does not follow symbolic links.
fn no_follow() -> i32 {
    (OFlags::NOFOLLOW | OFlags::CLOEXEC).bits().cast_signed()
}

/// The process that has a directory open, as recorded in the lock file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockHolder {
    /// Process id; 0 if it could not be read.
    pub pid: u32,
    /// Program name; may be empty.
    pub program: String,
    /// When the process opened the store, in seconds since 1970-01-01 UTC; 0 if unknown.
    pub started_unix_s: u64,
    /// Socket in the directory on which a server may be reachable. The
    /// socket of a killed server remains.
    pub socket: Option<PathBuf>,
}

impl LockHolder {
    fn read(file: &mut File, directory: &Path) -> Self {
        let socket = Some(directory.join(SOCKET_FILE));
        Self {
            socket: socket.filter(|path| path.exists()),
            ..read_holder(file)
        }
    }

    fn into_error(self, directory: String) -> StoreError {
        StoreError::Locked {
            directory,
            pid: self.pid,
            program: self.program,
            started_unix_s: self.started_unix_s,
            socket: self.socket,
        }
    }
}

/// A callback for an open that finds the directory locked by another process; see
/// [`OpenOptions::on_locked`](crate::OpenOptions::on_locked).
#[derive(Clone)]
pub struct OnLocked(Arc<dyn Fn(&LockHolder) -> bool + Send + Sync>);

impl OnLocked {
    /// Calls `observer` with the holder of the lock within 0.3 s after the first attempt, and again
    /// when the holder changes. The open keeps waiting while `observer` returns `true`, up to
    /// [`OpenOptions::lock_wait`](crate::OpenOptions::lock_wait).
    #[must_use]
    pub fn new(observer: impl Fn(&LockHolder) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(observer))
    }

    fn call(&self, holder: &LockHolder) -> bool {
        (self.0)(holder)
    }
}

impl fmt::Debug for OnLocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnLocked")
    }
}

fn read_holder(file: &mut File) -> LockHolder {
    let mut text = Vec::new();
    let mut holder = LockHolder::default();
    if file.seek(SeekFrom::Start(0)).is_err()
        || file.take(TEXT_BYTES_MAX).read_to_end(&mut text).is_err()
    {
        return holder;
    }
    let text = String::from_utf8_lossy(&text);
    // The last line is written last: the text is incomplete unless that line ends.
    if !text.ends_with('\n') {
        return holder;
    }
    for line in text.lines() {
        match line.split_once('=') {
            Some(("pid", value)) => holder.pid = value.parse().unwrap_or(0),
            Some(("program", value)) => {
                holder.program = value.chars().filter(|c| !c.is_control()).collect();
            }
            Some(("started", value)) => holder.started_unix_s = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    holder
}

fn write_holder(file: &mut File, program: &str) -> std::io::Result<()> {
    let started = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let program: String = program
        .chars()
        .filter(|c| !c.is_control())
        .take(200)
        .collect();
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    let text = format!(
        "pid={}\nprogram={program}\nstarted={started}\n",
        std::process::id()
    );
    file.write_all(text.as_bytes())
}

//! One process per store directory.
//!
//! The lock is an advisory `flock` on `DIR/LOCK`; it dies with the process.
//! The text in the file only serves the message of whoever comes second. What
//! must never happen here: trusting that text, or removing the file (a third
//! process could then lock another file of the same name).

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::error::{IoVerb, StoreError};

/// Name of the lock file.
pub const LOCK_FILE: &str = "LOCK";
/// Name of the socket on which a server of the directory is reached by other
/// processes of this machine; only whoever holds the lock may make or remove it.
pub const SOCKET_FILE: &str = "weir.sock";
/// How long a second opener waits for the holder to have written who it is.
const WAIT_FOR_TEXT: Duration = Duration::from_millis(300);
/// Longest text read from the lock file, in bytes.
const TEXT_BYTES_MAX: u64 = 1024;

/// Holds the lock of a directory until dropped.
#[derive(Debug)]
pub struct DirLock {
    /// Closing it releases the lock.
    file: File,
    /// Whether the file holds our text.
    named: bool,
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // Whoever fails to get the lock next must not be told of a process
        // that is gone. If it cannot be emptied, the text is only stale.
        if self.named {
            drop(self.file.set_len(0));
        }
    }
}

impl DirLock {
    /// The file that is locked.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Locks `directory` (made with mode 0700 if missing) for this process,
    /// named `program` in the message that others get. Answers within 1 s.
    ///
    /// [`StoreError::Locked`] when another open handle has it, in this process
    /// or another one.
    pub fn acquire(directory: &Path, program: &str) -> Result<Self, StoreError> {
        let shown = directory.display().to_string();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(StoreError::io(IoVerb::Open, &shown))?;
        let path = directory.join(LOCK_FILE);
        let subject = path.display().to_string();
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits()).unwrap_or(0);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags)
            .open(&path)
            .map_err(StoreError::io(IoVerb::Open, &subject))?;
        let deadline = Instant::now() + WAIT_FOR_TEXT;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let holder = read_holder(&mut file);
                    if holder.pid != 0 || Instant::now() >= deadline {
                        return Err(StoreError::Locked {
                            directory: shown,
                            pid: holder.pid,
                            program: holder.program,
                            started_unix_s: holder.started_unix_s,
                            socket: Some(directory.join(SOCKET_FILE)).filter(|path| path.exists()),
                        });
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    return Err(StoreError::io(IoVerb::Lock, &subject)(error.into()));
                }
            }
        }
        write_holder(&mut file, program).map_err(StoreError::io(IoVerb::Write, &subject))?;
        Ok(Self { file, named: true })
    }
}

/// What the lock file says about its holder.
#[derive(Default)]
struct Holder {
    pid: u32,
    program: String,
    started_unix_s: u64,
}

fn read_holder(file: &mut File) -> Holder {
    let mut text = Vec::new();
    let mut holder = Holder::default();
    if file.seek(SeekFrom::Start(0)).is_err()
        || file.take(TEXT_BYTES_MAX).read_to_end(&mut text).is_err()
    {
        return holder;
    }
    let text = String::from_utf8_lossy(&text);
    // The last line is written last: without its end the text is not complete.
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

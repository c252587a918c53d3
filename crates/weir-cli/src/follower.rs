//! Following a store of a directory that others write to: opening it for moments, and whether a look can show
//! anything new.
//!
//! Each open of a store, also for reading, writes the lock file, empties it at the end and adds
//! marks to the log. So a follower that opened the store after each change of a file would wake all
//! other followers, and they would wake it. Therefore each follower leaves a line `read=N` in the
//! lock file: the store has no intention above N. It writes the line under the lock, after checking
//! that nobody opened the store since its last look. The next opener of any kind replaces the text,
//! so an existing line is true. While a follower has not left its line yet, the others wait for it.
//! Invariant: only the lock decides who may open the store.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{FlockOperation, flock};
use weir::{ErrorCode, Store, Weir};

use crate::caller::Caller;
use crate::place::{self, Access, FOLLOWER};
use crate::report::Failure;

/// Before each look whether somebody wrote.
pub(crate) const FOLLOW_PAUSE: Duration = Duration::from_millis(100);

/// Longest text that is looked at, in bytes.
const TEXT_BYTES_MAX: u64 = 1024;
/// Beginning of the line.
const READ: &str = "read=";
/// Looks at the text of another follower at work, before it may be dead.
const LOOKS_AT_WORK: u32 = 10;
/// Looks at an empty file, in which a follower may be about to write.
const LOOKS_AT_NOTHING: u32 = 1;

/// What one follower knows.
#[derive(Debug)]
pub(crate) struct FollowerProgress {
    lock: PathBuf,
    /// Newest intention it has seen.
    read: Option<u64>,
    /// Looks in a row that did not tell.
    waited: u32,
}

/// What it needs to leave its line once it has closed the store.
#[derive(Debug)]
pub(crate) struct Line {
    file: File,
    /// Tells of every change of the file since the store was still open.
    changes: OwnedFd,
    read: u64,
}

impl FollowerProgress {
    /// Of the store in a directory, before the first look.
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            lock: directory.join("LOCK"),
            read: None,
            waited: 0,
        }
    }

    /// Notes that everything in the open store was read. The line is for after
    /// its end; without one, the others look once for nothing.
    pub(crate) fn read(&mut self, weir: &Weir) -> Option<Line> {
        let store = weir.local()?;
        let read = store.applied().0;
        self.read = Some(read);
        if store.is_read_only() {
            return None;
        }
        let file = OpenOptions::new().write(true).open(&self.lock).ok()?;
        let changes = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        // A close parts the changes before from those after it.
        let mask = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE;
        inotify::add_watch(&changes, &self.lock, mask).ok()?;
        Some(Line {
            file,
            changes,
            read,
        })
    }

    /// Whether to stay out: the lock file proves that nothing was written
    /// since, or somebody may be about to say so.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let mut text = String::new();
        let file = File::open(&self.lock);
        let read = file.and_then(|file| file.take(TEXT_BYTES_MAX).read_to_string(&mut text));
        let patience = match left(&text) {
            Some(left) => {
                self.waited = 0;
                return Some(left) == self.read;
            }
            None if read.is_err() => 0,
            None if text.is_empty() => LOOKS_AT_NOTHING,
            None if is_follower(&text) => LOOKS_AT_WORK,
            None => 0,
        };
        let wait = self.waited < patience;
        self.waited = if wait { self.waited + 1 } else { 0 };
        wait
    }
}

impl Line {
    /// Leaves the line, unless somebody has or had the store since.
    pub(crate) fn leave(mut self) {
        // The one change is the end of our own look.
        let ours = flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && changes(&self.changes) == Some(1);
        if ours && self.file.set_len(0).is_ok() {
            // Half a line has no end and does not count.
            drop(
                self.file
                    .write_all(format!("{READ}{}\n", self.read).as_bytes()),
            );
        }
    }
}

/// How often the file was changed; nothing when that cannot be told.
fn changes(from: &OwnedFd) -> Option<usize> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = Reader::new(from, &mut buffer);
    let mut changes = 0;
    loop {
        match events.next() {
            Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => return None,
            Ok(event) => changes += usize::from(event.events().contains(ReadFlags::MODIFY)),
            Err(rustix::io::Errno::AGAIN) => return Some(changes),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Opens the store as a follower.
pub(crate) fn open(caller: &Caller, access: Access, wait: Duration) -> anyhow::Result<Weir> {
    place::open_as(caller, access, FOLLOWER, wait)
}

/// How to open a directory again that was opened for reading. Beside a writer the next open waits
/// until the writer ends. In a directory that cannot be written, it stays read-only.
pub(crate) fn access(first: &Weir, at: &Path) -> Access {
    if first.local().is_some_and(Store::is_read_only) && !place::is_locked(at) {
        Access::Read
    } else {
        Access::Change
    }
}

/// The store, or nothing while somebody else has it open.
pub(crate) fn open_now(caller: &Caller, access: Access) -> anyhow::Result<Option<Weir>> {
    let failure = match open(caller, access, Duration::ZERO) {
        Ok(weir) => return Ok(Some(weir)),
        Err(error) => error,
    };
    let failed = failure.downcast_ref::<Failure>();
    match failed.map(|failure| failure.code) {
        Some(ErrorCode::Locked) => Ok(None),
        _ => Err(failure),
    }
}

fn is_follower(text: &str) -> bool {
    let mut lines = text.lines();
    lines.any(|line| line.strip_prefix("program=") == Some(FOLLOWER))
}

/// The number that a follower left; nothing when somebody else came later.
fn left(text: &str) -> Option<u64> {
    // Without its end, a line is not complete.
    text.strip_suffix('\n')?.strip_prefix(READ)?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::{FOLLOWER, FollowerProgress, LOOKS_AT_NOTHING, LOOKS_AT_WORK};

    #[test]
    fn only_a_whole_line_counts_and_no_wait_is_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = FollowerProgress::new(dir.path());
        watch.read = Some(3);
        let mut quiet = |text: &str| {
            std::fs::write(dir.path().join("LOCK"), text).unwrap();
            watch.is_quiet()
        };
        assert!(quiet("read=3\n"));
        let writer = "pid=7\nprogram=weir\nstarted=1\n";
        for other in ["read=4\n", "read=3", "read=\n", "read=x\n", "\n", writer] {
            assert!(!quiet(other), "{other}");
        }
        let follower = format!("pid=7\nprogram={FOLLOWER}\nstarted=1\n");
        for (text, looks) in [(follower.as_str(), LOOKS_AT_WORK), ("", LOOKS_AT_NOTHING)] {
            for round in 0..2 {
                for look in 0..looks {
                    assert!(quiet(text), "{text} {round} {look}");
                }
                assert!(!quiet(text), "{text} {round}");
            }
        }
    }

    #[test]
    fn a_line_is_left_only_when_nobody_came_between() {
        let dir = tempfile::tempdir().unwrap();
        let open = || weir::Weir::open(dir.path()).unwrap();
        let text = || std::fs::read_to_string(dir.path().join("LOCK")).unwrap();
        let mut watch = FollowerProgress::new(dir.path());
        let weir = open();
        weir.topic("t").unwrap().ensure().unwrap();
        let line = watch.read(&weir).unwrap();
        weir.close().unwrap();
        line.leave();
        assert_eq!(text(), "read=1\n");
        assert!(watch.is_quiet());
        let weir = open();
        let line = watch.read(&weir).unwrap();
        weir.close().unwrap();
        open().close().unwrap();
        line.leave();
        assert_eq!(text(), "", "another had it");
        let weir = open();
        let line = watch.read(&weir).unwrap();
        weir.close().unwrap();
        let weir = open();
        line.leave();
        assert!(text().starts_with("pid="), "another has it");
        weir.close().unwrap();
    }
}

//! Follows a store directory that other processes write to. Opens the store only briefly, and
//! detects whether an open can find new records.
//!
//! Each open of a store, also for reading, writes the lock file, empties it at the end and adds
//! marks to the log. If a follower opened the store after each change of a file, followers would
//! endlessly wake each other. Therefore each follower leaves a line `read=N` in the lock file: the
//! store has no intention above N. A follower writes the line under the lock, after it has checked
//! that no process opened the store since its last read. The next opener of any kind replaces the
//! text, so an existing line is true. Until a follower has left its line, the other followers wait
//! for the line. Invariant: only the lock decides who may open the store.

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

/// Pause before each check for new writes.
pub(crate) const FOLLOW_PAUSE: Duration = Duration::from_millis(100);

/// Maximum bytes of the lock file that are read.
const TEXT_BYTES_MAX: u64 = 1024;
/// Start of the line.
const READ: &str = "read=";
/// Checks that find the text of a working follower, before that follower counts as crashed.
const WRITING_CHECKS_MAX: u32 = 10;
/// Checks that find an empty file, to which a follower may be about to write.
const EMPTY_CHECKS_MAX: u32 = 1;

/// State of one follower.
#[derive(Debug)]
pub(crate) struct FollowerProgress {
    lock: PathBuf,
    /// Newest intention that this follower has read.
    read: Option<u64>,
    /// Consecutive checks without a conclusion.
    waited: u32,
}

/// The state for writing the line `read=N` after the store is closed.
#[derive(Debug)]
pub(crate) struct PendingReadMark {
    file: File,
    /// Reports each change of the file since a moment at which the store was still open.
    changes: OwnedFd,
    read: u64,
}

impl FollowerProgress {
    /// Follows the store in a directory; nothing is read yet.
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            lock: directory.join("LOCK"),
            read: None,
            waited: 0,
        }
    }

    /// Notes that everything in the open store was read. The caller must write the returned mark
    /// after the store is closed. Without it, each other follower opens the store once and finds
    /// nothing new.
    pub(crate) fn read(&mut self, weir: &Weir) -> Option<PendingReadMark> {
        let store = weir.local()?;
        let read = store.applied().0;
        self.read = Some(read);
        if store.is_read_only() {
            return None;
        }
        let file = OpenOptions::new().write(true).open(&self.lock).ok()?;
        let changes = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        // The mask includes closes, so that changes before and after a close are separate events.
        let mask = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE;
        inotify::add_watch(&changes, &self.lock, mask).ok()?;
        Some(PendingReadMark {
            file,
            changes,
            read,
        })
    }

    /// Whether an open would find nothing new: the lock file proves that nothing was written since
    /// the last read, or a follower may be about to write that proof.
    pub(crate) fn may_skip_open(&mut self) -> bool {
        let mut text = String::new();
        let file = File::open(&self.lock);
        let read = file.and_then(|file| file.take(TEXT_BYTES_MAX).read_to_string(&mut text));
        let checks_max = match read_mark(&text) {
            Some(mark) => {
                self.waited = 0;
                return Some(mark) == self.read;
            }
            None if read.is_err() => 0,
            None if text.is_empty() => EMPTY_CHECKS_MAX,
            None if is_follower(&text) => WRITING_CHECKS_MAX,
            None => 0,
        };
        let wait = self.waited < checks_max;
        self.waited = if wait { self.waited + 1 } else { 0 };
        wait
    }
}

impl PendingReadMark {
    /// Writes the line, unless another process has or had the store open since.
    pub(crate) fn write(mut self) {
        // The only change is the end of this follower's own open.
        let ours = flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && changes(&self.changes) == Some(1);
        if ours && self.file.set_len(0).is_ok() {
            // A partial line has no line end, so readers ignore it.
            drop(
                self.file
                    .write_all(format!("{READ}{}\n", self.read).as_bytes()),
            );
        }
    }
}

/// How often the file was changed; `None` if that is unknown.
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

/// How to reopen a directory that was opened for reading. Beside a writer, the next open waits
/// until the writer ends. A directory that cannot be written stays read-only.
pub(crate) fn access(first: &Weir, at: &Path) -> Access {
    if first.local().is_some_and(Store::is_read_only) && !place::is_locked(at) {
        Access::Read
    } else {
        Access::Change
    }
}

/// Opens the store; `None` while another process has it open.
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

/// The number that a follower wrote; `None` if another process opened the store later.
fn read_mark(text: &str) -> Option<u64> {
    // A line without its end is incomplete.
    text.strip_suffix('\n')?.strip_prefix(READ)?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::{EMPTY_CHECKS_MAX, FOLLOWER, FollowerProgress, WRITING_CHECKS_MAX};

    #[test]
    fn only_a_complete_line_skips_an_open_and_each_wait_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = FollowerProgress::new(dir.path());
        watch.read = Some(3);
        let mut skips = |text: &str| {
            std::fs::write(dir.path().join("LOCK"), text).unwrap();
            watch.may_skip_open()
        };
        assert!(skips("read=3\n"));
        let writer = "pid=7\nprogram=weir\nstarted=1\n";
        for other in ["read=4\n", "read=3", "read=\n", "read=x\n", "\n", writer] {
            assert!(!skips(other), "{other}");
        }
        let follower = format!("pid=7\nprogram={FOLLOWER}\nstarted=1\n");
        for (text, checks) in [
            (follower.as_str(), WRITING_CHECKS_MAX),
            ("", EMPTY_CHECKS_MAX),
        ] {
            for round in 0..2 {
                for check in 0..checks {
                    assert!(skips(text), "{text} {round} {check}");
                }
                assert!(!skips(text), "{text} {round}");
            }
        }
    }

    #[test]
    fn a_line_is_written_only_if_no_process_opened_the_store_since() {
        let dir = tempfile::tempdir().unwrap();
        let open = || weir::Weir::open(dir.path()).unwrap();
        let text = || std::fs::read_to_string(dir.path().join("LOCK")).unwrap();
        let mut watch = FollowerProgress::new(dir.path());
        let weir = open();
        weir.topic("t").unwrap().ensure().unwrap();
        let line = watch.read(&weir).unwrap();
        weir.close().unwrap();
        line.write();
        assert_eq!(text(), "read=1\n");
        assert!(watch.may_skip_open());
        let weir = open();
        let line = watch.read(&weir).unwrap();
        weir.close().unwrap();
        open().close().unwrap();
        line.write();
        assert_eq!(text(), "", "another process has opened the store");
        let weir = open();
        let line = watch.read(&weir).unwrap();
        weir.close().unwrap();
        let weir = open();
        line.write();
        assert!(
            text().starts_with("pid="),
            "another process has the store open"
        );
        weir.close().unwrap();
    }
}

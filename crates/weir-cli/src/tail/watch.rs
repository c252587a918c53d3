//! Whether a look into a store that others write to can show anything new.
//!
//! Whoever opens a store writes its lock file anew, readers and followers too,
//! and adds marks to the log. So a follower that opened whenever the lock file
//! changed would wake all others, and they it. Therefore each follower leaves
//! a line `read=N` behind in the lock file while it still holds the store: no
//! intention above N is in there. The next opener of any kind replaces the
//! text, so the line holds for as long as it stands. What must never happen
//! here: a decision about who may open; that is the lock alone.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use weir::Weir;

/// Longest text that is looked at, in bytes.
const TEXT_BYTES_MAX: u64 = 1024;
/// Beginning of the line.
const READ: &str = "read=";

/// What one follower knows.
#[derive(Debug)]
pub(super) struct Watch {
    lock: PathBuf,
    /// Newest intention it has seen.
    read: Option<u64>,
}

impl Watch {
    /// Of the store in a directory, before the first look.
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            lock: directory.join("LOCK"),
            read: None,
        }
    }

    /// Notes that everything in the open store was read, for the others too.
    pub(super) fn read(&mut self, weir: &Weir) {
        let applied = weir.store().applied().0;
        self.read = Some(applied);
        // Without the line, the others look once for nothing.
        let options = OpenOptions::new().append(true).open(&self.lock);
        drop(options.and_then(|mut file| file.write_all(format!("{READ}{applied}\n").as_bytes())));
    }

    /// Whether the lock file proves that nothing was written since.
    pub(super) fn is_quiet(&self) -> bool {
        let mut text = String::new();
        let file = File::open(&self.lock);
        let read = file.and_then(|file| file.take(TEXT_BYTES_MAX).read_to_string(&mut text));
        read.is_ok() && self.read.is_some() && left(&text) == self.read
    }
}

/// The number that a follower left; nothing when somebody else came later.
fn left(text: &str) -> Option<u64> {
    // Without its end, a line is not complete.
    let (_, line) = text.strip_suffix('\n')?.rsplit_once('\n')?;
    line.strip_prefix(READ)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::left;

    #[test]
    fn only_a_whole_last_line_counts() {
        let holder = "pid=7\nprogram=weir\nstarted=1\n";
        assert_eq!(left(&format!("{holder}read=12\n")), Some(12));
        for text in ["", "read=1", "\n", holder] {
            assert_eq!(left(text), None, "{text}");
        }
        for behind in ["read=12", "read=\n", "read=x\n", "read=1\npid=8\n"] {
            assert_eq!(left(&format!("{holder}{behind}")), None, "{behind}");
        }
    }
}

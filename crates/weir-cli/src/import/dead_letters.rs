//! Dead letters: the unusable items of an import, one JSON object per line. Each item is written
//! once, even if the import is interrupted and repeated.
//!
//! A letter contains the session of the import and the position of the item. Letters are in the
//! order of the input, so a run skips each item up to the last existing letter of its import.
//! Invariant: a truncated item is marked as truncated.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use serde::Deserialize;

use crate::bytes::{json_bytes, json_string};

/// A line and a column, both from 1.
pub(super) type Position = (u64, u64);

/// The dead letter file of an import.
#[derive(Debug)]
pub(super) struct DeadLetterFile {
    file: File,
    /// `None` if the input cannot be read again.
    import: Option<String>,
    /// Position of the last existing letter.
    last: Option<Position>,
    unsynced: bool,
}

/// The fields that are read from an existing letter.
#[derive(Deserialize)]
struct ExistingLetter {
    import: Option<String>,
    line: u64,
    column: u64,
}

impl DeadLetterFile {
    /// Opens or creates the file.
    pub(super) fn open(path: &Path, import: Option<&str>) -> io::Result<Self> {
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        let mut last = None;
        // A pipe or a terminal cannot be read back.
        if file.metadata()?.is_file() {
            let mut old = BufReader::new(File::open(path)?);
            let mut line = Vec::new();
            while old.read_until(b'\n', &mut line)? > 0 {
                if let Ok(letter) = serde_json::from_slice::<ExistingLetter>(&line)
                    && import.is_some()
                    && letter.import.as_deref() == import
                {
                    last = Some((letter.line, letter.column));
                }
                if line.last() != Some(&b'\n') {
                    // A crash has truncated the last letter.
                    file.write_all(b"\n")?;
                }
                line.clear();
            }
        }
        Ok(Self {
            file,
            import: import.map(str::to_owned),
            last,
            unsynced: false,
        })
    }

    /// Writes a letter unless it exists. `whole` is false if the item is too long and only its
    /// beginning was read.
    pub(super) fn write(
        &mut self,
        position: Position,
        why: &str,
        item: &[u8],
        whole: bool,
    ) -> io::Result<()> {
        if self.last.is_some_and(|last| position <= last) {
            return Ok(());
        }
        let import = self.import.as_deref().map(json_string);
        let letter = format!(
            "{{\"import\":{},\"line\":{},\"column\":{},\"why\":{},\"whole\":{whole},{}}}\n",
            import.as_deref().unwrap_or("null"),
            position.0,
            position.1,
            json_string(why),
            json_bytes("item", item),
        );
        self.unsynced = true;
        // One call writes the whole letter, before a later item is sent.
        self.file.write_all(letter.as_bytes())
    }

    /// Makes the letters durable.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.unsynced) && self.file.metadata()?.is_file() {
            self.file.sync_all()?;
        }
        Ok(())
    }
}

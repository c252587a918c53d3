//! The file in which a query notes how far it came.
//!
//! ```text
//! weir query 1
//! end NAME NUMBER      the last record of a topic that counts; any number of lines
//!                      an empty line, and then the token of the engine
//! ```
//!
//! What must never happen here: half a file in the place of a whole one.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use weir::ErrorCode;

use crate::report::{Because, Failure};

const HEAD: &str = "weir query 1";

/// What is in the file.
pub(super) struct Checkpoint {
    /// Of each topic, where it ended when the query began.
    pub(super) ends: BTreeMap<String, u64>,
    /// Where the engine stood.
    pub(super) token: Vec<u8>,
}

/// Reads the file; nothing when there is none.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<Checkpoint>> {
    let failed = || format!("cannot read {}", path.display());
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.failed(failed)?,
    };
    let found = parse(&bytes).ok_or_else(|| {
        let failure = Failure::new(ErrorCode::TokenCorrupt, failed());
        failure.because("it is not what a query wrote")
    })?;
    Ok(Some(found))
}

fn parse(bytes: &[u8]) -> Option<Checkpoint> {
    let end = bytes.windows(2).position(|pair| pair == b"\n\n")?;
    let (text, token) = bytes.split_at_checked(end)?;
    let mut lines = std::str::from_utf8(text).ok()?.lines();
    if lines.next() != Some(HEAD) {
        return None;
    }
    let mut ends = BTreeMap::new();
    for line in lines {
        let (name, number) = line.strip_prefix("end ")?.split_once(' ')?;
        ends.insert(name.to_owned(), number.parse().ok()?);
    }
    let token = token.get(2..)?.to_vec();
    Some(Checkpoint { ends, token })
}

/// Writes the file beside its place, and then into it.
pub(super) fn write(path: &Path, checkpoint: &Checkpoint) -> anyhow::Result<()> {
    let mut bytes = format!("{HEAD}\n").into_bytes();
    for (name, number) in &checkpoint.ends {
        bytes.extend_from_slice(format!("end {name} {number}\n").as_bytes());
    }
    bytes.push(b'\n');
    bytes.extend_from_slice(&checkpoint.token);
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let written = std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
    written.failed(|| format!("cannot write {}", path.display()))
}

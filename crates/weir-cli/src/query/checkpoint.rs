//! The file in which a query records its position.
//!
//! ```text
//! weir query 3
//! file 4096 more 9ae16a3b2f90404f a.ndjson      each file, as it was when it was read
//! file 812 end 5d1c3a8e77f0b2c4 b.ndjson
//!                      an empty line, and then the token
//! ```
//!
//! A line of a file has four fields:
//!
//! - the number of bytes read, uncompressed
//! - `end` if these bytes ended the file, else `more`
//! - the XXH3 hash of the first 4,096 of these bytes, in hexadecimal digits
//! - the path, in which `%` and control characters are `%` and two hexadecimal digits
//!
//! Invariant: an incomplete checkpoint file never replaces a complete one.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_64;
use weir::ErrorCode;

use super::compressed;
use crate::report::{Failure, FailureContext};

const VERSION_LINE: &str = "weir query 3\n";
/// Maximum bytes whose hash identifies a file.
const HASHED_BYTES_MAX: usize = 4096;

/// The content of a checkpoint.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    pub(super) files: Vec<Mark>,
    pub(super) token: Vec<u8>,
}

/// A file at the time of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Number of bytes read.
    pub(super) read: u64,
    /// Whether those bytes ended the file.
    pub(super) is_end: bool,
    /// Hash of its first bytes.
    pub(super) prefix_hash: u64,
    /// The path as it was given, with escapes.
    pub(super) name: String,
}

impl Mark {
    /// The mark of a file of which `read` bytes were read. `prefix`: the first of these bytes, as
    /// [`extend_prefix`] collects them.
    pub(super) fn of(path: &Path, read: u64, is_end: bool, prefix: &[u8]) -> Self {
        Self {
            read,
            is_end,
            prefix_hash: XxHash3_64::oneshot(prefix),
            name: name_of(path),
        }
    }

    /// Why the file is not the one that was read; `None` if it may be the same. `prefix`: its first
    /// bytes, as [`prefix_of`] returns them.
    pub(super) fn differs(&self, path: &Path, prefix: &[u8]) -> io::Result<Option<&'static str>> {
        let bytes = std::fs::metadata(path)?.len();
        // The size of a compressed file is not comparable; if it is too short, the run fails when
        // it resumes.
        if !compressed::is(path) && bytes < self.read {
            return Ok(Some("the file is shorter than the part that was read"));
        }
        let begins = XxHash3_64::oneshot(prefix) == self.prefix_hash;
        Ok((!begins).then_some("the part of the file that was read has changed"))
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("file ")?.splitn(4, ' ');
        let read = words.next()?.parse().ok()?;
        let is_end = match words.next()? {
            "end" => true,
            "more" => false,
            _ => return None,
        };
        let prefix_hash = u64::from_str_radix(words.next()?, 16).ok()?;
        let name = words.next()?.to_owned();
        Some(Self {
            read,
            is_end,
            prefix_hash,
            name,
        })
    }
}

/// The path in a line of text.
pub(super) fn name_of(path: &Path) -> String {
    let mut name = String::new();
    for part in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        for char in part.valid().chars() {
            if char == '%' || char.is_ascii_control() {
                let _ = write!(name, "%{:02x}", u32::from(char));
            } else {
                name.push(char);
            }
        }
        for byte in part.invalid() {
            let _ = write!(name, "%{byte:02x}");
        }
    }
    name
}

/// The bytes that identify a file of which `read` bytes were read.
///
/// # Errors
/// Errors of reading the file.
pub(super) fn prefix_of(path: &Path, read: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = compressed::open(path)?.take(read.min(HASHED_BYTES_MAX as u64));
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Extends the bytes that identify a file by `bytes`, which were read at position `at`.
pub(super) fn extend_prefix(prefix: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let at = usize::try_from(at).ok();
    let known = at.and_then(|at| prefix.len().checked_sub(at));
    let new = known.and_then(|known| bytes.get(known..));
    let left = HASHED_BYTES_MAX.saturating_sub(prefix.len());
    prefix.extend(new.unwrap_or_default().iter().take(left));
}

/// Reads the file. `None` if it does not exist.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<Checkpoint>> {
    let failed = || format!("cannot read {}", path.display());
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.failed(failed)?,
    };
    let parsed = parse(&bytes).ok_or_else(|| {
        let failure = Failure::new(ErrorCode::TokenCorrupt, failed());
        failure.because("the file is not a checkpoint of a query")
    })?;
    Ok(Some(parsed))
}

fn parse(bytes: &[u8]) -> Option<Checkpoint> {
    let mut rest = bytes.strip_prefix(VERSION_LINE.as_bytes())?;
    let mut files = Vec::new();
    loop {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let (line, after) = rest.split_at(end);
        rest = after.get(1..)?;
        if line.is_empty() {
            let token = rest.to_vec();
            return Some(Checkpoint { files, token });
        }
        files.push(Mark::parse(std::str::from_utf8(line).ok()?)?);
    }
}

/// Writes a new file, then renames it over the old one. The results before this position were
/// already printed; after a kill between the two, the next run prints them again. `last`: sync the
/// file, so that it survives a power cut.
pub(super) fn write(path: &Path, what: &Checkpoint, last: bool) -> anyhow::Result<()> {
    let mut new_path = path.as_os_str().to_owned();
    new_path.push(".new");
    let new_path = PathBuf::from(new_path);
    let mut head = VERSION_LINE.to_owned();
    for mark in &what.files {
        let how = if mark.is_end { "end" } else { "more" };
        let Mark {
            read,
            prefix_hash,
            name,
            ..
        } = mark;
        let _ = writeln!(head, "file {read} {how} {prefix_hash:016x} {name}");
    }
    head.push('\n');
    let bytes = [head.as_bytes(), &what.token].concat();
    let write = || {
        let mut file = File::create(&new_path)?;
        file.write_all(&bytes)?;
        if last {
            file.sync_all()?;
        }
        std::fs::rename(&new_path, path)
    };
    write().failed(|| format!("cannot write {}", path.display()))
}

//! Compressed files, recognised by their names: `.gz` and `.zst`, with any number of members or
//! frames. Positions count uncompressed bytes.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    Gzip,
    Zstd,
}

fn of(path: &Path) -> Option<Compression> {
    match path.extension()?.to_str()? {
        "gz" => Some(Compression::Gzip),
        "zst" => Some(Compression::Zstd),
        _ => None,
    }
}

/// Whether the name says that the file is compressed.
pub(super) fn is(path: &Path) -> bool {
    of(path).is_some()
}

/// Opens a file to read its uncompressed bytes.
///
/// # Errors Errors of the open. If the file is damaged or truncated, the read that reaches that
/// position fails.
pub(super) fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    let file = File::open(path)?;
    Ok(match of(path) {
        None => Box::new(file),
        Some(Compression::Gzip) => Box::new(MultiGzDecoder::new(io::BufReader::new(file))),
        Some(Compression::Zstd) => Box::new(zstd::Decoder::new(file)?),
    })
}

/// Opens a file to read its uncompressed bytes from position `at` on.
///
/// # Errors
/// Those of [`open`], and `UnexpectedEof` if the file has fewer bytes than `at`.
pub(super) fn open_at(path: &Path, at: u64) -> io::Result<Box<dyn Read>> {
    let mut input = open(path)?;
    let passed = io::copy(&mut input.by_ref().take(at), &mut io::sink())?;
    if passed < at {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(input)
}

//! Inputs that are generated at run time: the binary packets of 7 KB to 70 MB, and the sessions of
//! [`chat_session`].
//!
//! Data of size N is the `SplitMix64` sequence with the seed N, each number low byte first, cut to
//! N bytes. JSON and XML contain the data in base64 without line breaks.
//! `vectors/psyc/packets/binary-7K.*` is the first of the series.
//!
//! Invariant: a file under its final name is complete, because it is written under another name and
//! renamed.

pub mod chat_session;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{LabError, Result};
use crate::rng::SplitMix64;

/// Maximum size of a generated body, in bytes.
pub const BODY_BYTES_MAX: u64 = 70_000_000;

/// The body of `size` bytes.
pub fn body(size: u64) -> Vec<u8> {
    let length = usize::try_from(size).unwrap_or(usize::MAX);
    let mut rng = SplitMix64::new(size);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The packet of `size` in `psyc`, `json` or `xml`; empty for other words.
pub fn packet(size: u64, syntax: &str) -> Vec<u8> {
    let data = body(size);
    match syntax {
        "psyc" => {
            let head = b":_type\traw\n_data\n";
            let length = head.len() + data.len() + 1;
            [format!("{length}\n").as_bytes(), head, &data, b"\n|\n"].concat()
        }
        "json" => [
            b"{\"type\":\"raw\",\"data\":\"".as_slice(),
            base64(&data).as_bytes(),
            b"\"}\n",
        ]
        .concat(),
        "xml" => [
            b"<data type='raw'>".as_slice(),
            base64(&data).as_bytes(),
            b"</data>\n",
        ]
        .concat(),
        _ => Vec::new(),
    }
}

/// Writes the packet of `size` in every syntax below `dir` if it does not exist there, and returns
/// the paths by syntax.
pub fn binary_packets(dir: &Path, size: u64) -> Result<BTreeMap<String, PathBuf>> {
    if size > BODY_BYTES_MAX {
        let what = format!("a body of {size} bytes; {BODY_BYTES_MAX} is the largest");
        return Err(LabError::Usage { what });
    }
    fs::create_dir_all(dir).map_err(LabError::io(dir))?;
    let mut files = BTreeMap::new();
    for syntax in ["psyc", "json", "xml"] {
        let path = dir.join(format!("binary-{size}.{syntax}"));
        if !path.exists() {
            write_whole(&path, &packet(size, syntax))?;
        }
        files.insert(syntax.to_owned(), path);
    }
    Ok(files)
}

/// Writes a file under another name, and renames it.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let aside = PathBuf::from(format!("{}.part", path.display()));
    fs::write(&aside, bytes).map_err(LabError::io(&aside))?;
    fs::rename(&aside, path).map_err(LabError::io(path))
}

/// Base64 with padding, in one line.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let joined = group
            .iter()
            .fold(0u32, |sum, byte| (sum << 8) | u32::from(*byte));
        let joined = joined << (8 * (3 - group.len()));
        for place in 0..4 {
            let letter = LETTERS[(joined >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= group.len() {
                char::from(letter)
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn base64_matches_its_published_vectors() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn the_first_of_the_series_is_the_stored_packet() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/psyc/packets");
        for syntax in ["psyc", "json", "xml"] {
            let stored = fs::read(dir.join(format!("binary-7K.{syntax}"))).unwrap();
            assert!(packet(7_000, syntax) == stored, "{syntax} differs");
        }
    }
}

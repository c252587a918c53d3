//! Inputs that are generated at run time: the binary packets of 7 KB to 70 MB, a packet with a
//! photograph, and the sessions of [`chat_session`].
//!
//! Data of size N is the `SplitMix64` sequence with the seed N, each number low byte first, cut to
//! N bytes. JSON and XML contain the data in base64 without line breaks.
//! `vectors/psyc/packets/binary-7K.*` has the smallest size.
//!
//! Invariant: a file under its final name is complete, because it is written under another name and
//! renamed.

pub mod chat_session;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{LabError, Result};
use crate::rng::SplitMix64;

/// The photograph of [`jpeg_packets`], relative to the repository.
const PHOTOGRAPH: &str = "data/grace-hopper.jpg";

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

/// The packet with `data` of the type `kind` in `psyc`, `json` or `xml`; empty for other words.
pub fn packet(kind: &str, data: &[u8], syntax: &str) -> Vec<u8> {
    let (start, end) = match syntax {
        "psyc" => {
            let head = format!(":_type\t{kind}\n_data\n");
            let length = head.len() + data.len() + 1;
            let start = format!("{length}\n{head}");
            return [start.as_bytes(), data, b"\n|\n"].concat();
        }
        "json" => (format!("{{\"type\":\"{kind}\",\"data\":\""), "\"}\n"),
        "xml" => (format!("<data type='{kind}'>"), "</data>\n"),
        _ => return Vec::new(),
    };
    [start, base64(data), end.to_owned()].concat().into_bytes()
}

/// Writes the packet of `size` in every syntax below `dir` if it does not exist there, and returns
/// the paths by syntax.
pub fn binary_packets(dir: &Path, size: u64) -> Result<BTreeMap<String, PathBuf>> {
    if size > BODY_BYTES_MAX {
        let what = format!("a body of {size} bytes; {BODY_BYTES_MAX} is the largest");
        return Err(LabError::Usage { what });
    }
    let write = |syntax: &str| packet("raw", &body(size), syntax);
    packets(dir, &format!("binary-{size}"), write)
}

/// Writes the packet with the photograph of the repository `root` in every syntax below `dir` if it
/// does not exist there, and returns the paths by syntax.
pub fn jpeg_packets(dir: &Path, root: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let path = root.join(PHOTOGRAPH);
    let photograph = fs::read(&path).map_err(LabError::io(&path))?;
    let write = |syntax: &str| packet("image/jpeg", &photograph, syntax);
    packets(dir, "jpeg", write)
}

/// Writes the packet `name` in every syntax below `dir` if it does not exist there.
fn packets(
    dir: &Path,
    name: &str,
    write: impl Fn(&str) -> Vec<u8>,
) -> Result<BTreeMap<String, PathBuf>> {
    fs::create_dir_all(dir).map_err(LabError::io(dir))?;
    let mut files = BTreeMap::new();
    for syntax in ["psyc", "json", "xml"] {
        let path = dir.join(format!("{name}.{syntax}"));
        if !path.exists() {
            write_whole(&path, &write(syntax))?;
        }
        files.insert(syntax.to_owned(), path);
    }
    Ok(files)
}

/// Writes a file under another name, and renames it.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let part = PathBuf::from(format!("{}.part", path.display()));
    fs::write(&part, bytes).map_err(LabError::io(&part))?;
    fs::rename(&part, path).map_err(LabError::io(path))
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
        for index in 0..4 {
            let letter = LETTERS[(joined >> (18 - 6 * index)) as usize & 63];
            text.push(if index <= group.len() {
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
    fn the_stored_packet_is_generated_again() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/psyc/packets");
        for syntax in ["psyc", "json", "xml"] {
            let stored = fs::read(dir.join(format!("binary-7K.{syntax}"))).unwrap();
            let generated = packet("raw", &body(7_000), syntax);
            assert!(generated == stored, "{syntax} differs");
        }
    }
}

//! The input of an import: its format, and its items one by one.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use weir::ErrorCode;

use super::input_item::{InputItem, Problem};
use super::item_validator::OnError;
use super::key_path::KeyPath;
use super::lines::LineReader;
use super::scan::Array;
use super::{ImportArgs, InputFormat, input_name};
use crate::bytes::ESCAPED_BYTES_MAX;
use crate::interrupt::Interrupt;
use crate::item::bad_line;
use crate::report::{Failure, FailureContext, unopened, usage};

/// Bytes of the read buffer.
const BUFFER_BYTES: usize = 1 << 18;
/// The byte order mark, which may precede the first character.
const MARK: &[u8] = b"\xef\xbb\xbf";
/// The first bytes of compressed files: gzip and Zstandard. JSON begins with neither.
const COMPRESSED: [&[u8]; 2] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd"];
/// Bytes that an item may have beyond its value: a record has keys and metadata.
const SPARE_BYTES: usize = 1 << 20;

/// An input.
pub(super) struct Source {
    reader: FormatReader,
    path: Option<KeyPath>,
    shown: String,
    /// The canonical path of the file, if it can be read again.
    identity: Option<String>,
}

enum FormatReader {
    Lines(LineReader),
    Array(Array),
}

impl Source {
    /// Opens the input and detects its format.
    pub(super) fn open(
        args: &ImportArgs,
        value_bytes_max: usize,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Self> {
        let shown = args.file.display().to_string();
        let failed = || format!("cannot read {shown}");
        let mut identity = None;
        let file = if shown == "-" {
            // Not through the shared handle: its buffer would hide whether a read would block.
            let file = io::stdin().as_fd().try_clone_to_owned().failed(failed)?;
            File::from(file)
        } else {
            let file = File::open(&args.file).map_err(|error| unopened(failed(), &error))?;
            let metadata = file.metadata().failed(failed)?;
            if metadata.is_dir() {
                let failure =
                    Failure::new(ErrorCode::Io, failed()).because("the path is a directory");
                return Err(failure.advise("give the path of a file").into());
            }
            if metadata.is_file() {
                let path = args.file.canonicalize().failed(failed)?;
                identity = Some(path.display().to_string());
            }
            file
        };
        if let OnError::DeadLetter(letters) = &args.on_error
            && is_same_file(&file, letters).failed(failed)?
        {
            // Each letter would be read as a further item, without an end.
            return Err(usage("the file of dead letters must not be the input"));
        }
        let reader = interrupt.reader(file).failed(failed)?;
        let mut input: Box<dyn BufRead> = Box::new(BufReader::with_capacity(BUFFER_BYTES, reader));
        let head = input.fill_buf().failed(failed)?;
        if COMPRESSED.iter().any(|magic| head.starts_with(magic)) {
            let failure = Failure::new(ErrorCode::BadLine, failed());
            let failure = failure.because("the input is compressed");
            let advice =
                "decompress it into a pipe: `gzip -dc FILE | weir import - ...`, or `zstd -dc`";
            return Err(failure.advise(advice).into());
        }
        let start = skip_blanks(&mut input).failed(failed)?;
        let array = match args.input_format() {
            InputFormat::Json => true,
            InputFormat::Jsonl => false,
            InputFormat::Auto => start == Some(b'['),
        };
        let factor = if args.records { ESCAPED_BYTES_MAX } else { 1 };
        let bytes_max = value_bytes_max.saturating_mul(factor) + SPARE_BYTES;
        let reader = if array {
            FormatReader::Array(Array::new(input, bytes_max))
        } else {
            FormatReader::Lines(LineReader::new(input, bytes_max))
        };
        Ok(Self {
            reader,
            path: args.path.clone(),
            shown,
            identity,
        })
    }

    /// The canonical path of the file; `None` if the input cannot be read again.
    pub(super) fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// Number of bytes read.
    pub(super) fn bytes(&self) -> u64 {
        match &self.reader {
            FormatReader::Lines(lines) => lines.bytes(),
            FormatReader::Array(array) => array.bytes(),
        }
    }

    /// Reads the next item.
    pub(super) fn next(&mut self, item: &mut Vec<u8>) -> anyhow::Result<Option<InputItem>> {
        let steps = self.path.as_ref().map(KeyPath::steps).unwrap_or_default();
        let found = match &mut self.reader {
            FormatReader::Lines(lines) => lines.next(item).map_err(Problem::Io),
            FormatReader::Array(array) => array.next(steps, item),
        };
        match found {
            Ok(found) => Ok(found),
            Err(Problem::Io(error)) => Err(error).failed(|| format!("cannot read {}", self.shown)),
            Err(Problem::Wrong { line, column, why }) => {
                let input = input_name(Path::new(&self.shown));
                let advice =
                    "correct the document at this position; the items before it were processed";
                Err(bad_line(&input, line, column, &why).advise(advice).into())
            }
        }
    }
}

/// Whether a path names this file. Only the files of a file system count.
fn is_same_file(file: &File, path: &Path) -> io::Result<bool> {
    let file = file.metadata()?;
    let other = path.metadata();
    let is_same = |other: &Metadata| (file.dev(), file.ino()) == (other.dev(), other.ino());
    Ok(file.is_file() && other.is_ok_and(|other| is_same(&other)))
}

impl ImportArgs {
    fn input_format(&self) -> InputFormat {
        match (self.format, &self.path) {
            (InputFormat::Auto, Some(_)) => InputFormat::Json,
            (format, _) => format,
        }
    }
}

/// Skips a byte order mark. Returns the first byte that is not a blank, unless more than
/// `BUFFER_BYTES` blanks precede it.
fn skip_blanks(input: &mut Box<dyn BufRead>) -> io::Result<Option<u8>> {
    let start = input.fill_buf()?;
    if start.starts_with(MARK) {
        input.consume(MARK.len());
    } else if MARK.starts_with(start) && !start.is_empty() {
        // The reader may return single bytes, so the mark is read in a loop.
        let mut head = Vec::new();
        input
            .by_ref()
            .take(MARK.len() as u64)
            .read_to_end(&mut head)?;
        if head != MARK {
            let rest = std::mem::replace(input, Box::new(io::empty()));
            *input = Box::new(io::Cursor::new(head).chain(rest));
        }
    }
    // The first piece of a pipe may have only blanks. They stay in the input for its positions.
    let mut blanks = Vec::new();
    let first = loop {
        let buffered = input.fill_buf()?;
        let first = buffered.trim_ascii_start().first().copied();
        if first.is_some() || buffered.is_empty() || blanks.len() >= BUFFER_BYTES {
            break first;
        }
        blanks.extend_from_slice(buffered);
        let used = buffered.len();
        input.consume(used);
    };
    if !blanks.is_empty() {
        let rest = std::mem::replace(input, Box::new(io::empty()));
        *input = Box::new(io::Cursor::new(blanks).chain(rest));
    }
    Ok(first)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_is_found_in_pieces_of_any_size() {
        for (text, expect) in [
            ("\u{feff} \n [1]", Some(b'[')),
            ("\n\n{}", Some(b'{')),
            (" \n", None),
            ("", None),
        ] {
            for piece in 1..=text.len().max(1) {
                let reader = BufReader::with_capacity(piece, io::Cursor::new(text));
                let mut input: Box<dyn BufRead> = Box::new(reader);
                assert_eq!(skip_blanks(&mut input).unwrap(), expect, "{text:?} {piece}");
                let mut rest = String::new();
                input.read_to_string(&mut rest).unwrap();
                assert_eq!(rest, text.trim_start_matches('\u{feff}'), "{piece}");
            }
        }
    }
}

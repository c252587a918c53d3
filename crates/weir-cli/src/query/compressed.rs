//! Compressed files, recognised by their names: `.gz` and `.zst`, in any case, with any number of
//! members or frames. Positions count uncompressed bytes.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use flate2::read::MultiGzDecoder;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    Gzip,
    Zstd,
}

fn of(path: &Path) -> Option<Compression> {
    let extension = path.extension()?;
    if extension.eq_ignore_ascii_case("gz") {
        Some(Compression::Gzip)
    } else if extension.eq_ignore_ascii_case("zst") {
        Some(Compression::Zstd)
    } else {
        None
    }
}

/// Whether the file is compressed, by its name.
pub(super) fn is(path: &Path) -> bool {
    of(path).is_some()
}

/// An open file: its uncompressed bytes.
pub(super) enum Input {
    /// The reader decompresses the file.
    Direct(Box<dyn Read + Send>),
    /// A thread decompresses the file ahead of the reader.
    Ahead(Ahead),
}

impl Input {
    /// Appends the next bytes to `page`, at most `room`. Returns `true` if the input ended before
    /// `room` bytes.
    pub(super) fn append(&mut self, page: &mut Vec<u8>, room: usize) -> io::Result<bool> {
        match self {
            Self::Direct(input) => {
                let read = input.take(room as u64).read_to_end(page)?;
                Ok(read < room)
            }
            Self::Ahead(input) => input.append(page, room),
        }
    }

    /// Puts back `bytes`, the last bytes of the last read. The next read returns them again.
    pub(super) fn put_back(self, bytes: &[u8]) -> Self {
        match self {
            Self::Direct(input) => {
                let bytes = io::Cursor::new(bytes.to_vec());
                Self::Direct(Box::new(bytes.chain(input)))
            }
            Self::Ahead(mut input) => {
                // A read returns bytes of one chunk.
                input.at = input.at.saturating_sub(bytes.len());
                Self::Ahead(input)
            }
        }
    }
}

impl Read for Input {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Direct(input) => input.read(to),
            Self::Ahead(input) => input.read(to),
        }
    }
}

/// Opens a file to read its uncompressed bytes.
///
/// # Errors
/// Errors of the open. If the file is damaged or truncated, the read that reaches that position
/// fails.
pub(super) fn open(path: &Path) -> io::Result<Input> {
    let file = File::open(path)?;
    Ok(Input::Direct(match of(path) {
        None => Box::new(file),
        Some(Compression::Gzip) => Box::new(MultiGzDecoder::new(io::BufReader::new(file))),
        Some(Compression::Zstd) => Box::new(zstd::Decoder::new(file)?),
    }))
}

/// Like [`open`], but a thread decompresses the file ahead of the reader.
///
/// # Errors
/// Those of [`open`], and those of the start of a thread.
pub(super) fn open_in_thread(path: &Path) -> io::Result<Input> {
    let mut input = open(path)?;
    let (full, chunks) = sync_channel(CHUNKS_AHEAD);
    let (spare, empty) = sync_channel(CHUNKS_AHEAD + 2);
    let decompress = move || {
        loop {
            let mut chunk: Chunk = empty.try_recv().unwrap_or_default();
            let read = chunk.fill(&mut input);
            // The bytes before an error, the error, or the empty chunk at the end. Without a
            // reader, the rest of the file is not needed.
            let is_last = chunk.len == 0;
            if !is_last && full.send(Ok(chunk)).is_err() {
                return;
            }
            if is_last || read.is_err() {
                let _ = full.send(read.map(|()| Chunk::default()));
                return;
            }
        }
    };
    let name = "decompression".to_owned();
    thread::Builder::new().name(name).spawn(decompress)?;
    Ok(Input::Ahead(Ahead {
        chunks,
        spare,
        chunk: Chunk::default(),
        at: 0,
        is_end: false,
    }))
}

/// Uncompressed bytes of a chunk. A thread that waits for a chunk is woken for each.
const CHUNK_BYTES: usize = 256 << 10;
/// Number of chunks that wait for the reader. Together they are larger than a page, so that the
/// thread decompresses the next page while the query reads the current one.
const CHUNKS_AHEAD: usize = 8;

/// Uncompressed bytes: the first `len` of `buffer`, which is set to zeros only once.
#[derive(Default)]
struct Chunk {
    buffer: Vec<u8>,
    len: usize,
}

impl Chunk {
    /// Reads until the chunk is full or the input ends. After an error, the chunk has the bytes
    /// before it.
    fn fill(&mut self, input: &mut dyn Read) -> io::Result<()> {
        self.buffer.resize(CHUNK_BYTES, 0);
        self.len = 0;
        while let Some(rest) = self.buffer.get_mut(self.len..)
            && !rest.is_empty()
        {
            match input.read(rest) {
                Ok(0) => break,
                Ok(read) => self.len += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or_default()
    }
}

/// The reader of a file that a thread decompresses. The last chunk is empty.
pub(super) struct Ahead {
    chunks: Receiver<io::Result<Chunk>>,
    spare: SyncSender<Chunk>,
    /// The current chunk, of which `at` bytes were read.
    chunk: Chunk,
    at: usize,
    is_end: bool,
}

impl Ahead {
    /// The unread bytes of the current chunk, or the next chunk. Empty at the end of the file.
    fn unread(&mut self) -> io::Result<&[u8]> {
        if self.at == self.chunk.len && !self.is_end {
            // A thread that ends without the last chunk must not look like the end of the file.
            let next = self.chunks.recv();
            let next = next.map_err(|_| io::Error::other("the decompression ended early"))??;
            let before = std::mem::replace(&mut self.chunk, next);
            let _ = self.spare.try_send(before);
            self.at = 0;
            self.is_end = self.chunk.len == 0;
        }
        Ok(self.chunk.bytes().get(self.at..).unwrap_or_default())
    }

    /// As [`Input::append`]. `read_to_end` would set the page to zeros before it copies the bytes.
    fn append(&mut self, page: &mut Vec<u8>, room: usize) -> io::Result<bool> {
        let mut left = room;
        while left > 0 {
            let unread = self.unread()?;
            let next = unread.get(..left).unwrap_or(unread);
            if next.is_empty() {
                return Ok(true);
            }
            page.extend_from_slice(next);
            let read = next.len();
            self.at += read;
            left -= read;
        }
        Ok(false)
    }
}

impl Read for Ahead {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut unread = self.unread()?;
        let read = unread.read(to)?;
        self.at += read;
        Ok(read)
    }
}

/// Skips to position `at` of an input.
///
/// # Errors
/// Those of a read, and `UnexpectedEof` if the input has fewer bytes than `at`.
pub(super) fn skip(input: &mut dyn Read, at: u64) -> io::Result<()> {
    let passed = io::copy(&mut input.take(at), &mut io::sink())?;
    if passed < at {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

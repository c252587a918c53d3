//! Whole zlib streams. Compressors are reused, because creating one costs more than compressing a
//! small body.

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::PLAIN_MAX;

thread_local! {
    static DEFLATE: RefCell<Compress> = RefCell::new(Compress::new(Compression::new(6), true));
    static INFLATE: RefCell<Decompress> = RefCell::new(Decompress::new(true));
}

/// Why a stream is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// The bytes are not a stream, or the stream ends early or continues after its end.
    Stream,
    /// It inflates to more than [`PLAIN_MAX`] bytes.
    Size,
}

/// Inflates a whole stream.
pub fn inflate(body: &[u8]) -> Result<Vec<u8>, Bad> {
    INFLATE.with_borrow_mut(|inflate| {
        inflate.reset(true);
        let mut plain = Vec::new();
        loop {
            plain.reserve(4 * body.len() + 4096);
            let taken = inflate.total_in() as usize;
            let status = inflate.decompress_vec(&body[taken..], &mut plain, FlushDecompress::None);
            let status = status.map_err(|_| Bad::Stream)?;
            let all = inflate.total_in() as usize == body.len();
            if plain.len() > PLAIN_MAX {
                return Err(Bad::Size);
            }
            match status {
                Status::StreamEnd if all => return Ok(plain),
                Status::StreamEnd => return Err(Bad::Stream),
                Status::Ok | Status::BufError if all && plain.len() < plain.capacity() => {
                    return Err(Bad::Stream);
                }
                Status::Ok | Status::BufError => {}
            }
        }
    })
}

/// Deflates all of it into one stream: level 6, window of 32 KiB.
pub fn deflate(plain: &[u8]) -> Vec<u8> {
    DEFLATE.with_borrow_mut(|deflate| {
        deflate.reset();
        // Larger than any result: stored blocks, header and checksum.
        let mut out = Vec::with_capacity(plain.len() + plain.len() / 1000 + 64);
        loop {
            let taken = deflate.total_in() as usize;
            match deflate.compress_vec(&plain[taken..], &mut out, FlushCompress::Finish) {
                Ok(Status::StreamEnd) | Err(_) => return out,
                Ok(_) => out.reserve(out.capacity()),
            }
        }
    })
}

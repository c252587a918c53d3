//! Floors of the store experiments: the cost of handling equal bytes without a store.
//!
//! - [`Floor::Copy`] copies each message into a batch, and computes the CRC-32C of the batch. A
//!   store that checks its bytes cannot use less CPU.
//! - [`Floor::Write`]: batches written to a file, never synced.
//! - [`Floor::WriteSync`] writes into a preallocated file, and calls `fdatasync` after each write.
//!   A store that syncs before it answers cannot be faster.
//! - [`Floor::Cluster`]: three threads append each batch of `batch` messages to a separate file and
//!   sync it. Two of them receive it over a loopback connection and answer with a byte. The next
//!   batch follows when all three have it. With this number of batches, a cluster of three nodes
//!   that syncs on each node cannot be faster.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crc_fast::{CrcAlgorithm, checksum};

use super::store::{Load, scratch};
use super::{Contender, ContenderError, parameter};
use crate::clock::Stopwatch;
use crate::protocol::{Answer, Fields, Timed};

/// Bytes that are checksummed and written together.
const BATCH_BYTES: usize = 64 << 10;

/// The kind of a floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// Copy and checksum.
    Copy,
    /// Write.
    Write,
    /// Write and sync.
    WriteSync,
    /// Write and sync three files, two of them over a connection.
    Cluster,
}

/// A floor as a contender.
#[derive(Debug)]
pub struct Bare {
    floor: Floor,
    inputs: BTreeMap<usize, (Load, PathBuf, u64)>,
}

impl Bare {
    /// The contender of `floor`.
    pub fn new(floor: Floor) -> Bare {
        Bare {
            floor,
            inputs: BTreeMap::new(),
        }
    }

    fn pass(&self, input: usize) -> Result<Timed, ContenderError> {
        let (load, path, bytes) = self
            .inputs
            .get(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        let failed = |source| ContenderError::Io {
            path: path.display().to_string(),
            source,
        };
        match self.floor {
            Floor::Copy => Ok(copy(load)),
            Floor::Write => write(load, path).map_err(failed),
            Floor::WriteSync => write_sync(load, path, *bytes).map_err(failed),
            Floor::Cluster => cluster(load, path).map_err(failed),
        }
    }
}

impl Contender for Bare {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let load = Load::read(fields)?;
        let path = scratch(fields, "floor", input)?;
        // Bytes of one synced write; by default one message.
        let bytes = parameter(fields, "sync_bytes").unwrap_or(load.bytes as u64);
        self.inputs.insert(input, (load, path, bytes));
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        Ok(Answer {
            touch: self.pass(input)?.touch,
            ..Answer::default()
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let mut sum = Timed::default();
        for _ in 0..iterations {
            let timed = self.pass(input)?;
            sum.wall_ns += timed.wall_ns;
            sum.cpu_ns += timed.cpu_ns;
            sum.touch = sum.touch.wrapping_add(timed.touch);
        }
        Ok(sum)
    }
}

fn timed(watch: Stopwatch, touch: u64) -> Timed {
    let (wall_ns, cpu_ns) = watch.stop();
    Timed {
        wall_ns,
        cpu_ns,
        touch,
        extra: BTreeMap::new(),
    }
}

fn copy(load: &Load) -> Timed {
    let payload = load.payload(0);
    let mut batch: Vec<u8> = Vec::with_capacity(BATCH_BYTES + load.bytes);
    let mut touch = 0u64;
    let watch = Stopwatch::start();
    for message in 0..load.messages {
        batch.extend_from_slice(payload.message(message));
        if batch.len() >= BATCH_BYTES {
            touch = touch.wrapping_add(checksum(CrcAlgorithm::Crc32Iscsi, &batch));
            batch.clear();
        }
    }
    touch = touch.wrapping_add(checksum(CrcAlgorithm::Crc32Iscsi, &batch));
    timed(watch, touch)
}

fn write(load: &Load, path: &PathBuf) -> io::Result<Timed> {
    let payload = load.payload(0);
    let file = File::create(path)?;
    let mut batch: Vec<u8> = Vec::with_capacity(BATCH_BYTES + load.bytes);
    let mut at = 0u64;
    let watch = Stopwatch::start();
    for message in 0..load.messages {
        batch.extend_from_slice(payload.message(message));
        if batch.len() >= BATCH_BYTES {
            file.write_all_at(&batch, at)?;
            at += batch.len() as u64;
            batch.clear();
        }
    }
    file.write_all_at(&batch, at)?;
    let timed = timed(watch, load.messages);
    drop(file);
    fs::remove_file(path)?;
    Ok(timed)
}

fn write_sync(load: &Load, path: &PathBuf, bytes: u64) -> io::Result<Timed> {
    let block = vec![0x5Au8; usize::try_from(bytes).unwrap_or(BATCH_BYTES)];
    let file = File::create(path)?;
    for place in 0..load.messages {
        file.write_all_at(&block, place * bytes)?;
    }
    file.sync_all()?;
    let watch = Stopwatch::start();
    for place in 0..load.messages {
        file.write_all_at(&block, place * bytes)?;
        file.sync_data()?;
    }
    let timed = timed(watch, load.messages);
    drop(file);
    fs::remove_file(path)?;
    Ok(timed)
}

fn cluster(load: &Load, path: &Path) -> io::Result<Timed> {
    let payload = load.payload(0);
    let size = load.batch * load.bytes;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let calls = load.messages.div_ceil(load.batch as u64);
    let files: io::Result<Vec<File>> = ["leader", "second", "third"]
        .iter()
        .map(|name| File::create(path.with_extension(name)))
        .collect();
    let mut files = files?;
    let own = files.remove(0);
    let timed = std::thread::scope(|scope| {
        let followers: Vec<_> = files
            .into_iter()
            .map(|file| scope.spawn(move || follow(TcpStream::connect(address)?, &file, size)))
            .collect();
        let mut streams = Vec::new();
        for _ in &followers {
            let (stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let mut batch = Vec::with_capacity(size);
        let watch = Stopwatch::start();
        for call in 0..calls {
            batch.clear();
            for message in 0..load.batch as u64 {
                batch.extend_from_slice(payload.message(call * load.batch as u64 + message));
            }
            for stream in &mut streams {
                stream.write_all(&batch)?;
            }
            own.write_all_at(&batch, call * size as u64)?;
            own.sync_data()?;
            for stream in &mut streams {
                stream.read_exact(&mut [0])?;
            }
        }
        let timed = timed(watch, load.messages);
        drop(streams);
        for follower in followers {
            let panicked = || io::Error::other("a follower panicked");
            follower.join().map_err(|_| panicked())??;
        }
        Ok::<Timed, io::Error>(timed)
    })?;
    for name in ["leader", "second", "third"] {
        fs::remove_file(path.with_extension(name))?;
    }
    Ok(timed)
}

/// Appends and syncs each batch that arrives, and answers it with a byte.
fn follow(mut stream: TcpStream, file: &File, size: usize) -> io::Result<()> {
    let mut batch = vec![0; size];
    let mut at = 0;
    loop {
        match stream.read_exact(&mut batch) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        file.write_all_at(&batch, at)?;
        file.sync_data()?;
        at += size as u64;
        stream.write_all(&[1])?;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn floors_do_all_messages_and_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let fields: Fields = [
            ("dir", dir.path().to_str().unwrap()),
            ("messages", "50"),
            ("bytes", "100"),
            ("producers", "1"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        for floor in [Floor::Copy, Floor::Write, Floor::WriteSync, Floor::Cluster] {
            let mut bare = Bare::new(floor);
            bare.load(0, &fields).unwrap();
            let once = bare.check(0).unwrap().touch;
            assert_ne!(once, 0);
            assert_eq!(bare.run(0, 3).unwrap().touch, once.wrapping_mul(3));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

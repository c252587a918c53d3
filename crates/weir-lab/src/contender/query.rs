//! Queries of a file: the command `weir query`, the decompression of its input alone, and the search
//! for one value in one item.
//!
//! A file has `items` JSON values of about 200 bytes, one in a line. Its numbers and the words of its
//! notes are random. It is written when an input is loaded, and compressed if `form` is `gz` or `zst`.
//!
//! Invariant: every pass reads its whole input, except a search that ends with its value.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use wait4::Wait4;
use weir_scan::{PathSet, Value};

use super::store::{failed, scratch};
use super::wire::part;
use super::{Contender, ContenderError, parameter};
use crate::child::beside;
use crate::clock::{Stopwatch, wall_ns};
use crate::protocol::{Answer, Fields, Timed};
use crate::rng::SplitMix64;

/// The words of a note.
const WORDS: [&str; 48] = [
    "the",
    "to",
    "and",
    "a",
    "of",
    "is",
    "in",
    "for",
    "not",
    "with",
    "please",
    "before",
    "after",
    "door",
    "side",
    "call",
    "ring",
    "bell",
    "leave",
    "parcel",
    "neighbour",
    "garden",
    "gate",
    "code",
    "floor",
    "second",
    "office",
    "morning",
    "evening",
    "tomorrow",
    "Monday",
    "Friday",
    "customer",
    "asked",
    "again",
    "invoice",
    "address",
    "changed",
    "street",
    "behind",
    "house",
    "delivery",
    "late",
    "paid",
    "refund",
    "gift",
    "wrap",
    "fragile",
];
/// The seed of the random values.
const SEED: u64 = 1;

/// Bytes that a decompression reads at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// The time of the command `weir query FILE --select SELECT`, which writes to `/dev/null`, from its
/// start to its end. Parameters: `items`, `form` (`plain`, `gz` or `zst`), `select`.
#[derive(Debug, Default)]
pub struct QueryCommand {
    inputs: BTreeMap<usize, (Series, String)>,
}

/// Reads a compressed file of the same form, and drops its bytes. Parameters: `items`, `form`.
#[derive(Debug, Default)]
pub struct Decompress {
    inputs: BTreeMap<usize, Series>,
}

/// Finds the first member of an object of `bytes` bytes.
#[derive(Debug, Default)]
pub struct FindFirst {
    inputs: BTreeMap<usize, Vec<u8>>,
}

/// A file of items.
#[derive(Clone, Debug)]
struct Series {
    items: u64,
    form: String,
    path: PathBuf,
}

impl Drop for Series {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Series {
    fn new(fields: &Fields, what: &str, input: usize) -> Result<Self, ContenderError> {
        let form: String = parameter(fields, "form")?;
        let extension = match form.as_str() {
            "plain" => "ndjson",
            "gz" => "ndjson.gz",
            "zst" => "ndjson.zst",
            _ => return Err(ContenderError::Parameter("form")),
        };
        let series = Self {
            items: parameter(fields, "items")?,
            form,
            path: scratch(fields, what, input)?.with_extension(extension),
        };
        series.create().map_err(|source| ContenderError::Io {
            path: series.path.display().to_string(),
            source,
        })?;
        Ok(series)
    }

    fn create(&self) -> io::Result<()> {
        let file = BufWriter::new(File::create(&self.path)?);
        match self.form.as_str() {
            "gz" => {
                let mut file = GzEncoder::new(file, flate2::Compression::default());
                self.write(&mut file)?;
                file.finish()?.flush()
            }
            "zst" => {
                let mut file = zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?;
                self.write(&mut file)?;
                file.finish()?.flush()
            }
            _ => {
                let mut file = file;
                self.write(&mut file)?;
                file.flush()
            }
        }
    }

    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut rng = SplitMix64::new(SEED);
        for id in 0..self.items {
            let (city, cents) = (rng.below(97), rng.below(1_000_000));
            write!(
                to,
                "{{\"id\":{id},\"kind\":\"order\",\"customer\":{{\"name\":\"customer {}\",\
                 \"city\":\"city {city}\"}},\"total\":{}.{:02},\"lines\":[{{\"sku\":\"{:08x}\",\
                 \"count\":{}}}],\"note\":\"",
                rng.below(1_009),
                cents / 100,
                cents % 100,
                rng.below(1 << 32),
                rng.below(9) + 1,
            )?;
            for word in 0..9 {
                let blank = if word > 0 { " " } else { "" };
                write!(to, "{blank}{}", WORDS[rng.below(WORDS.len())])?;
            }
            to.write_all(b"\"}\n")?;
        }
        Ok(())
    }

    /// Reads the uncompressed bytes, and passes each chunk to `each`.
    fn read(&self, each: &mut impl FnMut(&[u8])) -> io::Result<()> {
        let file = File::open(&self.path)?;
        let mut input: Box<dyn Read> = match self.form.as_str() {
            "gz" => Box::new(MultiGzDecoder::new(BufReader::new(file))),
            "zst" => Box::new(zstd::Decoder::new(file)?),
            _ => Box::new(file),
        };
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let bytes = input.read(&mut chunk)?;
            if bytes == 0 {
                return Ok(());
            }
            each(chunk.get(..bytes).unwrap_or_default());
        }
    }
}

/// The command that runs the query.
fn command(series: &Series, select: &str) -> Result<Command, ContenderError> {
    let lab = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(beside(&lab));
    command
        .arg("query")
        .arg(&series.path)
        .args(["--select", select])
        .env_remove("WEIR_AT")
        .stdin(Stdio::null());
    Ok(command)
}

fn loaded<T>(inputs: &BTreeMap<usize, T>, input: usize) -> Result<&T, ContenderError> {
    inputs.get(&input).ok_or(ContenderError::NotLoaded(input))
}

impl Contender for QueryCommand {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let series = Series::new(fields, "query", input)?;
        let select = parameter(fields, "select")?;
        self.inputs.insert(input, (series, select));
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let (series, select) = loaded(&self.inputs, input)?;
        let output = command(series, select)?.output().map_err(failed)?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr)));
        }
        let rows = memchr::memchr_iter(b'\n', &output.stdout).count() as u64;
        if rows != series.items {
            return Err(failed(format!("{rows} rows of {} items", series.items)));
        }
        Ok(Answer {
            content: part(b'o', &output.stdout),
            touch: 1,
            ..Answer::default()
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let (series, select) = loaded(&self.inputs, input)?;
        let mut timed = Timed::default();
        for _ in 0..iterations {
            let mut command = command(series, select)?;
            command.stdout(Stdio::null());
            let start = wall_ns();
            let used = command.spawn().and_then(Wait4::wait4);
            timed.wall_ns += wall_ns() - start;
            let used = used.map_err(failed)?;
            if !used.status.success() {
                return Err(failed(used.status));
            }
            let cpu = used.rusage.utime + used.rusage.stime;
            timed.cpu_ns += u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
            timed.touch += 1;
        }
        Ok(timed)
    }
}

impl Contender for Decompress {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let series = Series::new(fields, "decompress", input)?;
        self.inputs.insert(input, series);
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let mut rows = 0;
        let mut count = |chunk: &[u8]| rows += memchr::memchr_iter(b'\n', chunk).count();
        loaded(&self.inputs, input)?
            .read(&mut count)
            .map_err(failed)?;
        Ok(Answer {
            content: rows as u64,
            touch: 1,
            ..Answer::default()
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let series = loaded(&self.inputs, input)?;
        let watch = Stopwatch::start();
        for _ in 0..iterations {
            let read = series.read(&mut |chunk| {
                std::hint::black_box(chunk);
            });
            read.map_err(failed)?;
        }
        let (wall_ns, cpu_ns) = watch.stop();
        Ok(Timed {
            wall_ns,
            cpu_ns,
            touch: iterations,
            ..Timed::default()
        })
    }
}

fn first() -> Result<PathSet, ContenderError> {
    let path = weir_scan::Path::parse("$.id").map_err(failed)?;
    PathSet::new(&[path]).map_err(failed)
}

impl Contender for FindFirst {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let bytes: usize = parameter(fields, "bytes")?;
        let mut item = b"{\"id\":7,\"rest\":[".to_vec();
        while item.len() < bytes {
            item.extend_from_slice(b"{\"name\":\"a member of the list\",\"value\":12345},");
        }
        item.extend_from_slice(b"null]}");
        self.inputs.insert(input, item);
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let item = loaded(&self.inputs, input)?;
        let mut found: Vec<Value> = Vec::new();
        weir_scan::find(item, &first()?, &mut found).map_err(failed)?;
        let text = found.first().map_or(&[][..], |value| value.span.of(item));
        if text != b"7" {
            return Err(failed("found another value"));
        }
        Ok(Answer {
            content: part(b'v', text),
            touch: text.len() as u64,
            ..Answer::default()
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let item = loaded(&self.inputs, input)?;
        let paths = first()?;
        let mut found: Vec<Value> = Vec::new();
        let mut touch = 0;
        let watch = Stopwatch::start();
        for _ in 0..iterations {
            let item = std::hint::black_box(item.as_slice());
            weir_scan::find(item, &paths, &mut found).map_err(failed)?;
            let value = found.first().map_or(&[][..], |value| value.span.of(item));
            touch += value.len() as u64;
        }
        let (wall_ns, cpu_ns) = watch.stop();
        Ok(Timed {
            wall_ns,
            cpu_ns,
            touch,
            ..Timed::default()
        })
    }
}

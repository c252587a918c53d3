//! Parses one packet by the library that its argument names. It implements the line protocol of the
//! lab. Content and touch are those of crates/weir-lab/src/contender/wire.rs.
//!
//! `sonic-rs` and `simd-json` read the JSON packet into a tree. simd-json writes into its input, so it
//! gets a copy, which is not timed. `cbor` and `protobuf` are binary references: the packet is
//! converted when it is loaded.

mod binary;
mod count;
mod json;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::Write;
use std::process::ExitCode;

use rustix::time::{ClockId, clock_gettime};

/// A library.
#[derive(Clone, Copy)]
enum Library {
    Sonic,
    Simd,
    Cbor,
    Protobuf,
}

/// A packet in the form that the library reads, and a copy for a library that writes into it.
struct Packet {
    bytes: bytes::Bytes,
    copy: Vec<u8>,
}

/// A part of a packet.
enum Part<'a> {
    /// A kind byte, and the bytes of the part.
    One(u8, &'a [u8]),
    /// Operator, name and value of a variable of PSYC.
    Variable(u8, &'a [u8], &'a [u8]),
}

impl Library {
    fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "sonic-rs" => Self::Sonic,
            "simd-json" => Self::Simd,
            "cbor" => Self::Cbor,
            "protobuf" => Self::Protobuf,
            _ => return None,
        })
    }

    /// The packet in a file, converted for this library.
    fn load(self, file: Vec<u8>) -> Option<Packet> {
        let bytes = match self {
            Self::Sonic | Self::Simd => file,
            Self::Cbor => binary::to_cbor(&serde_json::from_slice(&file).ok()?)?,
            Self::Protobuf => binary::to_protobuf(&file)?,
        };
        let copy = Vec::with_capacity(bytes.len());
        let bytes = bytes.into();
        Some(Packet { bytes, copy })
    }

    /// Restores the copy.
    fn prepare(self, packet: &mut Packet) {
        if matches!(self, Self::Simd) {
            packet.copy.clear();
            packet.copy.extend_from_slice(&packet.bytes);
        }
    }

    /// Parses the packet, and sums `each` over its parts.
    fn parse(self, packet: &mut Packet, each: &mut impl FnMut(Part<'_>) -> u64) -> Option<u64> {
        match self {
            Self::Sonic => json::sonic(&packet.bytes, each),
            Self::Simd => json::simd(&mut packet.copy, each),
            Self::Cbor => binary::cbor(&packet.bytes, each),
            Self::Protobuf => binary::protobuf(packet.bytes.clone(), each),
        }
    }
}

/// The value that a part adds to the touch: length, first and last byte of its slices.
fn touch(part: Part<'_>) -> u64 {
    let slice = |bytes: &[u8]| match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => bytes.len() as u64 + u64::from(*first) + u64::from(*last),
        _ => 0,
    };
    match part {
        Part::One(_, bytes) => slice(bytes),
        Part::Variable(operator, name, value) => u64::from(operator) + slice(name) + slice(value),
    }
}

/// FNV-1a over a kind byte, a name, and a value after a zero byte.
fn hash(part: Part<'_>) -> u64 {
    let more = |sum, bytes: &[u8]| {
        bytes.iter().fold(sum, |sum: u64, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    let start = 0xcbf2_9ce4_8422_2325;
    match part {
        Part::One(kind, bytes) => more(more(start, &[kind]), bytes),
        Part::Variable(operator, name, value) => {
            let sum = more(more(start, &[b'v', operator]), name);
            more(more(sum, &[0]), value)
        }
    }
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    if name == "--version" {
        println!("rust-wire, sonic-rs {}", locked("sonic-rs"));
        return ExitCode::SUCCESS;
    }
    let Some(library) = Library::by_name(&name) else {
        eprintln!("usage: rust-wire sonic-rs|simd-json|cbor|protobuf");
        return ExitCode::from(2);
    };
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        "optimised"
    };
    let crate_name = match library {
        Library::Sonic => "sonic-rs",
        Library::Simd => "simd-json",
        Library::Cbor => "minicbor",
        Library::Protobuf => "prost",
    };
    let version = locked(crate_name);
    print_line(&format!(
        "hello\t1\tprofile={profile}\t{crate_name}={version}"
    ));
    let mut packets = BTreeMap::new();
    for line in std::io::stdin().lines() {
        let Ok(line) = line else { break };
        if line == "quit" {
            break;
        }
        let reply = serve(&line, library, &mut packets);
        print_line(&reply.unwrap_or_else(|| "error\tmalformed request or packet".to_owned()));
    }
    ExitCode::SUCCESS
}

fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    // If the lab has ended, the input of this program has ended too.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The version of a library in our lock file.
fn locked(name: &str) -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split("[[package]]").find(|entry| {
        let mut lines = entry.trim_start().lines();
        lines.next() == Some(&format!("name = \"{name}\""))
    });
    let version = entry.and_then(|entry| entry.split("version = \"").nth(1));
    version
        .and_then(|rest| rest.split('"').next())
        .unwrap_or("unknown")
}

fn now(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

fn serve(line: &str, library: Library, packets: &mut BTreeMap<usize, Packet>) -> Option<String> {
    let mut words = line.split('\t');
    let verb = words.next()?;
    let input: usize = words.next()?.parse().ok()?;
    match verb {
        "load" => {
            let fields: BTreeMap<&str, &str> = words.filter_map(|w| w.split_once('=')).collect();
            let file = std::fs::read(fields.get("file")?).ok()?;
            packets.insert(input, library.load(file)?);
            Some("ok".to_owned())
        }
        "check" => {
            let packet = packets.get_mut(&input)?;
            library.prepare(packet);
            let content = library.parse(packet, &mut hash)?;
            library.prepare(packet);
            library.parse(packet, &mut touch)?;
            library.prepare(packet);
            let (sum, calls, bytes) = count::of(|| library.parse(packet, &mut touch));
            let sum = sum?;
            Some(format!("answer\t{content:016x}\t{sum:x}\t{calls}\t{bytes}"))
        }
        "run" => {
            let packet = packets.get_mut(&input)?;
            let count: u64 = words.next()?.parse().ok()?;
            let (wall, cpu, sum) = run(library, packet, count)?;
            Some(format!("time\t{wall}\t{cpu}\t{sum:x}"))
        }
        _ => None,
    }
}

/// Maximum number of copies that are made before they are parsed.
const ROW: usize = 64;
/// Maximum size of these copies. They fit the innermost cache.
const ROW_BYTES: usize = 16 << 10;

/// Parses the packet `count` times. Returns wall and CPU nanoseconds, and the touch.
fn run(library: Library, packet: &mut Packet, count: u64) -> Option<(u64, u64, u64)> {
    if matches!(library, Library::Simd) {
        return run_copies(&packet.bytes, count);
    }
    for _ in 0..count / 16 {
        black_box(library.parse(packet, &mut touch)?);
    }
    let mut sum = 0_u64;
    let cpu = now(ClockId::ThreadCPUTime);
    let wall = now(ClockId::Monotonic);
    for _ in 0..count {
        sum = sum.wrapping_add(library.parse(black_box(packet), &mut touch)?);
    }
    let wall = now(ClockId::Monotonic) - wall;
    Some((wall, now(ClockId::ThreadCPUTime) - cpu, sum))
}

/// Runs simd-json `count` times. Its first passes are not timed, like those of the other libraries.
fn run_copies(bytes: &[u8], count: u64) -> Option<(u64, u64, u64)> {
    let row = (ROW_BYTES / bytes.len().max(1)).clamp(1, ROW);
    let mut copies = vec![Vec::with_capacity(bytes.len()); row];
    let mut left = count / 16;
    while left > 0 {
        let taken = row.min(usize::try_from(left).unwrap_or(row));
        black_box(parse_row(&mut copies[..taken], bytes)?);
        left -= taken as u64;
    }
    let (mut walls, mut cpus, mut sum) = (0, 0, 0_u64);
    left = count;
    while left > 0 {
        let taken = row.min(usize::try_from(left).unwrap_or(row));
        let (wall, cpu, touched) = parse_row(&mut copies[..taken], bytes)?;
        walls += wall;
        cpus += cpu;
        sum = sum.wrapping_add(touched);
        left -= taken as u64;
    }
    Some((walls, cpus, sum))
}

/// Restores the copies, then parses and times them.
fn parse_row(copies: &mut [Vec<u8>], bytes: &[u8]) -> Option<(u64, u64, u64)> {
    for copy in &mut *copies {
        copy.clear();
        copy.extend_from_slice(bytes);
    }
    let mut sum = 0_u64;
    let cpu = now(ClockId::ThreadCPUTime);
    let wall = now(ClockId::Monotonic);
    for copy in copies {
        sum = sum.wrapping_add(json::simd(black_box(copy), &mut touch)?);
    }
    let wall = now(ClockId::Monotonic) - wall;
    Some((wall, now(ClockId::ThreadCPUTime) - cpu, sum))
}

//! Samples contenders from inside, where `perf` is missing or not permitted: a small library in C
//! (`sampler.c`) is preloaded into a contender and the servers that it starts, and stores their call
//! stacks at each SIGPROF.
//!
//! The kernel sends SIGPROF at most once for each of its ticks, so there are about 250 samples for
//! each second of CPU time. A stack ends in the function that made a system call; functions of the
//! kernel are not visible. A program without shared libraries has no samples, and neither has a
//! program in Go, which handles SIGPROF itself.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::stacks::{NAMELESS, Stacks};
use crate::error::{LabError, Result};

const SOURCE: &str = include_str!("sampler.c");

/// Functions of the C library whose time is that of a system call.
const SYSTEM_CALLS: &[&str] = &[
    "accept4", "brk", "close", "madvise", "mmap", "munmap", "read", "readv", "recv", "recvfrom",
    "recvmsg", "send", "sendmsg", "sendto", "write", "writev",
];

/// The compiled library.
#[derive(Debug)]
pub(super) struct Sampler {
    library: PathBuf,
}

/// A part of a file in the memory of a process.
#[derive(Debug)]
struct Mapping {
    start: u64,
    end: u64,
    path: String,
}

/// The functions of a file, by address.
#[derive(Debug, Default)]
struct Image {
    /// Difference of an address in memory and in the file.
    bias: u64,
    functions: Vec<(u64, String)>,
}

impl Sampler {
    /// Compiles the library in the directory `scratch`.
    pub(super) fn build(scratch: &Path) -> Result<Sampler> {
        let source = scratch.join("sampler.c");
        let library = scratch.join("libsampler.so");
        fs::write(&source, SOURCE).map_err(LabError::io(&source))?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", "-o"]);
        compiler.arg(&library).arg(&source).stdin(Stdio::null());
        let why = match compiler.output() {
            Ok(done) if done.status.success() => return Ok(Sampler { library }),
            Ok(done) => String::from_utf8_lossy(&done.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        let what = format!("`cc` cannot compile the library that samples from inside: {why}");
        Err(LabError::Usage { what })
    }

    /// The command that runs `words` with the library. The samples are stored in `dir`.
    pub(super) fn words(&self, dir: &Path, words: Vec<String>) -> Vec<String> {
        let own = [
            "env".to_owned(),
            format!("LD_PRELOAD={}", self.library.display()),
            format!("WEIR_LAB_SAMPLES={}", dir.display()),
        ];
        own.into_iter().chain(words).collect()
    }
}

/// Reads the samples of all processes in `dir`.
pub(super) fn read(dir: &Path) -> Result<Stacks> {
    let mut stacks = Stacks::default();
    let mut images = BTreeMap::new();
    for entry in fs::read_dir(dir).map_err(LabError::io(dir))?.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|ending| ending != "stacks") {
            continue;
        }
        let bytes = fs::read(&path).map_err(LabError::io(&path))?;
        let maps = path.with_extension("maps");
        let maps = mappings(&fs::read_to_string(&maps).map_err(LabError::io(&maps))?);
        let name = maps.first().and_then(|main| main.path.rsplit('/').next());
        let process = name.unwrap_or("unknown").to_owned();
        for sample in samples(&bytes) {
            let mut stack = vec![process.clone()];
            for (depth, address) in sample.iter().enumerate().rev() {
                // An address of a caller is that of the instruction after its call.
                let address = address.saturating_sub(u64::from(depth > 0));
                let name = function(address, &maps, &mut images)?;
                stack.push(name.clone());
                let call = name.trim_start_matches('_').trim_start_matches("libc_");
                if depth == 0 && SYSTEM_CALLS.contains(&call) {
                    stack.push(format!("sys_{call}"));
                }
            }
            stacks.add(&stack);
        }
    }
    Ok(stacks)
}

/// The samples of a process: addresses, innermost first.
fn samples(bytes: &[u8]) -> Vec<Vec<u64>> {
    let (words, _) = bytes.as_chunks::<8>();
    let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
    let mut samples = Vec::new();
    while let Some(length) = words.next().filter(|length| *length > 0) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        samples.push(words.by_ref().take(length).collect());
    }
    samples
}

/// The mappings of files in the text of `/proc/<pid>/maps`.
fn mappings(text: &str) -> Vec<Mapping> {
    let mapping = |line: &str| {
        // 55d0-55d1 r-xp 00001000 fe:00 1234      /usr/bin/program
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let path = fields.nth(4)?.trim();
        path.starts_with('/').then(|| {
            Some(Mapping {
                start: u64::from_str_radix(start, 16).ok()?,
                end: u64::from_str_radix(end, 16).ok()?,
                path: path.to_owned(),
            })
        })?
    };
    text.lines().filter_map(mapping).collect()
}

/// The name of the function at `address`.
fn function(
    address: u64,
    maps: &[Mapping],
    images: &mut BTreeMap<(String, u64), Image>,
) -> Result<String> {
    let mapping = maps.iter().find(|m| (m.start..m.end).contains(&address));
    let Some(mapping) = mapping else {
        return Ok(NAMELESS.to_owned());
    };
    // The first mapping of a file is that of its first byte.
    let base = maps.iter().find(|m| m.path == mapping.path);
    let base = base.map_or(mapping.start, |first| first.start);
    let image = match images.entry((mapping.path.clone(), base)) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => new.insert(Image::read(&mapping.path, base)?),
    };
    Ok(image.name(address).unwrap_or(NAMELESS).to_owned())
}

impl Image {
    /// Reads the functions of the file `path`, which begins at `base` in memory.
    fn read(path: &str, base: u64) -> Result<Image> {
        // Byte 16 of an ELF file is 2 if its addresses in memory are those of the file.
        let mut head = [0; 17];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
        let is_fixed = read.is_ok() && head[16] == 2;
        let mut functions = Vec::new();
        // A stripped library has only the second table.
        for table in ["--no-sort", "--dynamic"] {
            let mut nm = Command::new("nm");
            nm.args(["--demangle", "--defined-only", table]).arg(path);
            let done = nm.stdin(Stdio::null()).output();
            let done = done.map_err(LabError::io("nm"))?;
            let text = String::from_utf8_lossy(&done.stdout);
            functions.extend(text.lines().filter_map(symbol));
        }
        functions.sort();
        functions.dedup_by_key(|(address, _)| *address);
        Ok(Image {
            bias: if is_fixed { 0 } else { base },
            functions,
        })
    }

    fn name(&self, address: u64) -> Option<&str> {
        let address = address.checked_sub(self.bias)?;
        let after = self.functions.partition_point(|(at, _)| *at <= address);
        let (_, name) = self.functions.get(after.checked_sub(1)?)?;
        Some(name)
    }
}

/// A function in a line of `nm`, like `0000000000001139 T main`.
fn symbol(line: &str) -> Option<(u64, String)> {
    let mut fields = line.splitn(3, ' ');
    let address = u64::from_str_radix(fields.next()?, 16).ok()?;
    let is_function = matches!(fields.next()?, "t" | "T" | "w" | "W" | "i");
    // `write@@GLIBC_2.2.5`
    let name = fields.next()?.split('@').next()?;
    is_function.then(|| (address, name.to_owned()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn samples_end_at_the_first_zero() {
        let words: [u64; 7] = [2, 10, 11, 1, 12, 0, 99];
        let bytes = words.map(u64::to_le_bytes).concat();
        assert_eq!(samples(&bytes), [vec![10, 11], vec![12]]);
        assert!(samples(&[]).is_empty());
    }

    #[test]
    fn an_address_has_the_name_of_the_function_before_it() {
        let maps = "1000-2000 r--p 00000000 fe:00 7    /a/program name\n\
                    2000-3000 r-xp 00001000 fe:00 7    /a/program name\n\
                    3000-4000 rw-p 00000000 00:00 0 \n\
                    5000-6000 r-xp 00000000 00:00 0    [vdso]\n";
        let maps = mappings(maps);
        assert_eq!(maps.len(), 2);
        let path = maps[0].path.clone();
        assert_eq!(path, "/a/program name");
        let symbols = ["0000000000001100 T first", "0000000000001180 t second@@V1"];
        let image = Image {
            bias: 0x1000,
            functions: symbols.iter().filter_map(|line| symbol(line)).collect(),
        };
        let mut images = BTreeMap::from([((path, 0x1000), image)]);
        let mut name = |address| function(address, &maps, &mut images).unwrap();
        assert_eq!(name(0x2100), "first");
        assert_eq!(name(0x2180), "second");
        assert_eq!(name(0x2000), NAMELESS);
        assert_eq!(name(0x5500), NAMELESS);
        assert!(symbol("0000000000004010 B data").is_none());
    }
}

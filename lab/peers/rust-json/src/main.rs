//! Finds the items of a page, and the value of `$.order` in each, by the method that its argument
//! names. It implements the line protocol of the lab.
//!
//! Every pass reads the page in place, and stores its results in memory that is reused. Invariant:
//! no pass knows the positions of values in the page.

mod engine;
mod page;
mod peak;
mod ways;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::Write;
use std::process::ExitCode;

use engine::Engine;
use rustix::time::{ClockId, clock_gettime};
use ways::Way;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    if name == "--version" {
        println!("rust-json, weir-scan {}", weir_scan::build_info());
        return ExitCode::SUCCESS;
    }
    let Some(mut work) = Work::by_name(&name) else {
        let names = [&ways::NAMES[..], &engine::NAMES].concat();
        eprintln!("usage: rust-json {}", names.join("|"));
        return ExitCode::from(2);
    };
    let debug = cfg!(debug_assertions);
    let profile = if debug { "debug" } else { "optimised" };
    let native = if cfg!(target_feature = "avx2") {
        "this CPU"
    } else {
        "default"
    };
    print_line(&format!(
        "hello\t1\tprofile={profile}\ttarget={native}\tserde_json={}\tsimd-json={}\tsonic-rs={}\tweir-scan={}",
        locked("serde_json"),
        locked("simd-json"),
        locked("sonic-rs"),
        weir_scan::build_info()
    ));
    let mut pages = BTreeMap::new();
    for line in std::io::stdin().lines() {
        let Ok(line) = line else { break };
        if line == "quit" {
            break;
        }
        let reply = serve(&line, &name, &mut work, &mut pages);
        print_line(&reply.unwrap_or_else(|| "error\tmalformed request or page".to_owned()));
    }
    ExitCode::SUCCESS
}

fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    // If the lab has ended, the input of this program has ended too.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The version of a library in the lock file.
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

/// The measured method.
enum Work {
    Way(Way),
    Engine(Engine),
}

/// Wall and CPU time.
#[derive(Clone, Copy, Default)]
struct Spent(u64, u64);

impl Spent {
    fn now() -> Self {
        Self(now(ClockId::Monotonic), now(ClockId::ThreadCPUTime))
    }

    fn add_since(&mut self, start: Self) {
        let now = Self::now();
        self.0 += now.0 - start.0;
        self.1 += now.1 - start.1;
    }
}

impl Work {
    fn by_name(name: &str) -> Option<Self> {
        let engine = Engine::by_name(name).map(Self::Engine);
        engine.or_else(|| Way::by_name(name).map(Self::Way))
    }

    /// One pass, whose measured part is added to `spent`.
    fn pass(&mut self, page: &page::Page, spent: &mut Spent) -> Option<u64> {
        match self {
            Self::Way(way) => {
                let start = Spent::now();
                let touch = way.pass(black_box(&page.bytes));
                spent.add_since(start);
                touch
            }
            Self::Engine(engine) => engine.pass(page, spent, &mut |_| ()),
        }
    }

    fn content(&mut self, page: &page::Page) -> Option<u64> {
        match self {
            Self::Way(way) => way.content(&page.bytes),
            Self::Engine(engine) => {
                let mut hash = ways::Hash::default();
                engine.pass(page, &mut Spent::default(), &mut |key| hash.add(key))?;
                Some(hash.0)
            }
        }
    }
}

fn serve(
    line: &str,
    name: &str,
    work: &mut Work,
    pages: &mut BTreeMap<usize, page::Page>,
) -> Option<String> {
    let mut words = line.split('\t');
    let verb = words.next()?;
    let input: usize = words.next()?.parse().ok()?;
    match verb {
        "load" => {
            let fields: BTreeMap<&str, &str> = words.filter_map(|w| w.split_once('=')).collect();
            let mut page = page::make(&fields)?;
            // Uses a method without allocated memory.
            let mut fresh = Work::by_name(name)?;
            let (passed, peak) = peak::of(|| fresh.pass(&page, &mut Spent::default()));
            passed?;
            page.peak = peak;
            pages.insert(input, page);
            Some("ok".to_owned())
        }
        "check" => {
            let page = pages.get(&input)?;
            let content = work.content(page)?;
            let touch = work.pass(page, &mut Spent::default())?;
            Some(format!("answer\t{content:016x}\t{touch:x}\t0\t0"))
        }
        "run" => {
            let page = pages.get(&input)?;
            let count: u64 = words.next()?.parse().ok()?;
            // The process was just scheduled, so its first pass runs with cold caches.
            black_box(work.pass(page, &mut Spent::default())?);
            let peak = page.peak;
            let mut spent = Spent::default();
            let mut touch = 0_u64;
            for _ in 0..count {
                touch = touch.wrapping_add(work.pass(page, &mut spent)?);
            }
            let Spent(wall, cpu) = spent;
            Some(format!("time\t{wall}\t{cpu}\t{touch:x}\tpeak={peak}"))
        }
        _ => None,
    }
}

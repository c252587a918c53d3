//! Finds the items of a page and the value of `$.order` in each, in the ways that its argument names;
//! then the line protocol of the lab.
//!
//! Every pass reads the page as it lies in memory and keeps what it found in memory of its own that
//! is used again. What must never happen here: a pass that knows where things are in the page.

mod page;
mod ways;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::Write;
use std::process::ExitCode;

use rustix::time::{ClockId, clock_gettime};
use ways::Way;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    if name == "--version" {
        println!("rust-json, weir-scan {}", weir_scan::build_info());
        return ExitCode::SUCCESS;
    }
    let Some(mut way) = Way::by_name(&name) else {
        eprintln!("usage: rust-json {}", ways::NAMES.join("|"));
        return ExitCode::from(2);
    };
    let debug = cfg!(debug_assertions);
    let profile = if debug { "debug" } else { "optimised" };
    let native = if cfg!(target_feature = "avx2") {
        "this CPU"
    } else {
        "default"
    };
    say(&format!(
        "hello\t1\tprofile={profile}\ttarget={native}\tserde_json={}\tsonic-rs={}\tweir-scan={}",
        locked("serde_json"),
        locked("sonic-rs"),
        weir_scan::build_info()
    ));
    let mut pages = BTreeMap::new();
    for line in std::io::stdin().lines() {
        let Ok(line) = line else { break };
        if line == "quit" {
            break;
        }
        let reply = serve(&line, &mut way, &mut pages);
        say(&reply.unwrap_or_else(|| "error\tmalformed request or page".to_owned()));
    }
    ExitCode::SUCCESS
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // A lab that is gone ends our input as well.
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

fn serve(line: &str, way: &mut Way, pages: &mut BTreeMap<usize, Vec<u8>>) -> Option<String> {
    let mut words = line.split('\t');
    let verb = words.next()?;
    let input: usize = words.next()?.parse().ok()?;
    match verb {
        "load" => {
            let fields: BTreeMap<&str, &str> = words.filter_map(|w| w.split_once('=')).collect();
            pages.insert(input, page::page(&fields)?);
            Some("ok".to_owned())
        }
        "check" => {
            let page = pages.get(&input)?;
            let content = way.content(page)?;
            let touch = way.pass(page)?;
            Some(format!("answer\t{content:016x}\t{touch:x}\t0\t0"))
        }
        "run" => {
            let page = pages.get(&input)?;
            let count: u64 = words.next()?.parse().ok()?;
            // The process was just switched in: its first pass meets cold caches.
            black_box(way.pass(black_box(page))?);
            let start = (now(ClockId::Monotonic), now(ClockId::ThreadCPUTime));
            let mut touch = 0_u64;
            for _ in 0..count {
                touch = touch.wrapping_add(way.pass(black_box(page))?);
            }
            let (wall, cpu) = (
                now(ClockId::Monotonic) - start.0,
                now(ClockId::ThreadCPUTime) - start.1,
            );
            Some(format!("time\t{wall}\t{cpu}\t{touch:x}"))
        }
        _ => None,
    }
}

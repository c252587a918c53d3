//! Shows where contenders use CPU time: `perf` samples them in separate runs, whose times are not
//! stored.
//!
//! `perf` starts the contender, so it also samples the servers that the contender starts; each
//! process has its own root. The clock is a software event, because virtual machines have no
//! hardware counters. If `perf` is missing or not permitted, processes are sampled from inside
//! (`inside.rs`), which does not show the kernel.
//!
//! Invariant: figures of profiled runs are never in a result set.

mod flame;
mod inside;
mod stacks;

use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::inside::Sampler;
use self::stacks::Stacks;
use crate::child::Child;
use crate::error::{LabError, Result};
use crate::experiment::matrix::Cell;
use crate::experiment::reference::matches;
use crate::experiment::{Experiment, Mode};
use crate::fingerprint::utc_now;
use crate::report::Table;
use crate::rng::SplitMix64;
use crate::runner::{Options, Places, Session};

/// Share of samples without a name above which the shares are marked as doubtful.
const UNKNOWN_MAX: f64 = 0.05;

/// Share of all samples above which the functions of a process are listed, and the number of
/// functions.
const PROCESS_MIN: f64 = 0.1;
const FUNCTIONS: usize = 20;

/// The contenders to profile, and the settings.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Pattern of the workloads; `None` means all.
    pub workload: Option<String>,
    /// Duration of each cell.
    pub time: Duration,
    /// Samples a second.
    pub rate: u32,
    /// The result set that gets the flame graphs; `None` means a directory of their own.
    pub into: Option<PathBuf>,
}

/// How contenders are sampled.
enum Way {
    /// By `perf`.
    Perf,
    /// By a preloaded library, and why not by `perf`.
    Inside(Sampler, LabError),
}

impl Way {
    /// `perf` if it can be used here.
    fn choose(scratch: &Path) -> Result<Way> {
        let Err(why) = usable(scratch) else {
            return Ok(Way::Perf);
        };
        match Sampler::build(scratch) {
            Ok(sampler) => Ok(Way::Inside(sampler, why)),
            Err(error) => {
                let what = format!("{why}. {error}. Nothing was profiled");
                Err(LabError::Usage { what })
            }
        }
    }

    /// Words for the head of the profile.
    fn words(&self, rate: u32) -> String {
        match self {
            Way::Perf => format!("{rate} samples a second (`perf`, cpu-clock)"),
            Way::Inside(..) => {
                "about 250 samples for each second of CPU time (SIGPROF, without the kernel)"
                    .to_owned()
            }
        }
    }
}

/// Profiles the cells of `experiment` one after another: folded stacks, a flame
/// graph for each, and a table of shares.
pub fn run(
    experiment: Experiment,
    options: &Options,
    wanted: &Wanted,
    places: &Places,
    out: &mut dyn Write,
) -> Result<()> {
    if experiment.header.mode != Mode::Inproc {
        let what = "only resident contenders (mode `inproc`) are profiled";
        return Err(LabError::experiment(&experiment.header.name, what));
    }
    let name = format!("{}-profile-{}", utc_now(), experiment.header.name);
    let session = Session::new(experiment, options, places, Arc::default())?;
    let way = Way::choose(&session.places.scratch)?;
    let dir = match &wanted.into {
        Some(set) => set.join("profiles"),
        None => places.results.join(name),
    };
    fs::create_dir_all(&dir).map_err(LabError::io(&dir))?;
    let mut print = |line: &str| {
        // Progress output is optional, so errors are ignored.
        let _ = writeln!(out, "{line}");
    };
    if let Way::Inside(_, why) = &way {
        print(&format!(
            "{why}. Processes are sampled from inside instead."
        ));
    }
    for absent in &session.matrix.absent {
        print(&absent.line());
    }
    let mut text = format!(
        "# Profile of {}\n\nA line for each process and class of work, from {}. A \
         sample has the class of its innermost frame with a class. Profiled runs are slower than others, so their \
         times are not stored.\n",
        session.experiment.header.name,
        way.words(wanted.rate)
    );
    let mut any = false;
    for cell in &session.matrix.cells {
        let workload = session.matrix.workload(cell).name.clone();
        let pattern = wanted.workload.as_deref();
        if pattern.is_some_and(|pattern| !matches(pattern, &workload)) {
            continue;
        }
        any = true;
        let contender = session.matrix.contender(cell).name.clone();
        print(&format!("profiling {contender} with {workload}"));
        let stacks = sampled(&session, cell, wanted, &way, &dir)?;
        let stem = dir.join(format!("{contender}-{workload}"));
        write(&stem.with_extension("folded"), &stacks.folded())?;
        let title = format!("{contender}, {workload}: {} samples", stacks.total());
        write(&stem.with_extension("svg"), &flame::svg(&title, &stacks))?;
        text.push_str(&section(&title, &stacks));
    }
    if !any {
        let what = "no cell matches --only and --workload".to_owned();
        return Err(LabError::Usage { what });
    }
    write(&dir.join("profile.md"), &text)?;
    print(&format!("{text}\nflame graphs are in {}", dir.display()));
    Ok(())
}

/// Whether `perf` exists and is permitted.
fn usable(scratch: &Path) -> Result<()> {
    let data = scratch.join(format!("perf-{}.probe", std::process::id()));
    let mut probe = perf(&data, 99);
    let done = probe.arg("true").stdin(Stdio::null()).output();
    let _ = fs::remove_file(&data);
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let paranoid = paranoid.unwrap_or_default();
    let what = match done {
        Ok(done) if done.status.success() => return Ok(()),
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr);
            let why = said.lines().find(|line| !line.trim().is_empty());
            let why = why.unwrap_or("no reason given").trim().to_owned();
            format!(
                "`perf` is not permitted here: {why} (kernel.perf_event_paranoid is {}). `sysctl kernel.perf_event_paranoid=1` permits it, or the capability PERFMON in a container",
                paranoid.trim()
            )
        }
        Err(error) => {
            format!("there is no `perf` on this machine ({error}). Install it (Debian: linux-perf)")
        }
    };
    Err(LabError::Usage { what })
}

/// A `perf` command that records to `data`; the caller appends the command to record.
fn perf(data: &Path, rate: u32) -> Command {
    let mut command = Command::new("perf");
    command.args(words(data, rate).iter().skip(1));
    command
}

fn words(data: &Path, rate: u32) -> Vec<String> {
    let (rate, data) = (rate.to_string(), data.display().to_string());
    let words = [
        "perf",
        "record",
        "-q",
        "-e",
        "cpu-clock",
        "-F",
        &rate,
        "-g",
        "-o",
        &data,
        "--",
    ];
    words.map(str::to_owned).to_vec()
}

/// Runs a cell for the configured time and reads its samples.
fn sampled(
    session: &Session,
    cell: &Cell,
    wanted: &Wanted,
    way: &Way,
    dir: &Path,
) -> Result<Stacks> {
    let contender = session.matrix.contender(cell);
    let data: PathBuf = dir.join("perf.data");
    let samples = session.places.scratch.join("samples");
    let all: Vec<String> = match way {
        Way::Perf => {
            let own = session.words(contender);
            words(&data, wanted.rate).into_iter().chain(own).collect()
        }
        Way::Inside(program, _) => {
            // Samples of a run that was killed can be left.
            let _ = fs::remove_dir_all(&samples);
            fs::create_dir_all(&samples).map_err(LabError::io(&samples))?;
            program.words(&samples, session.words(contender))
        }
    };
    let mut rng = SplitMix64::derive(session.experiment.header.seed, "profile");
    let mut child = Child::start(&contender.name, &all, session.launch(&mut rng))?;
    child.load(0, session.fields(cell, 0))?;
    let begun = Instant::now();
    while begun.elapsed() < wanted.time {
        child.run(0, 1)?;
    }
    // `perf` writes the remaining samples after its child has ended.
    drop(child);
    let (stacks, message) = match way {
        Way::Perf => scripted(&data)?,
        Way::Inside(..) => (inside::read(&samples)?, String::new()),
    };
    let _ = fs::remove_dir_all(&samples);
    if stacks.total() == 0 {
        let what = format!("no samples were recorded. {message}");
        return Err(LabError::contender(&contender.name, what.trim_end()));
    }
    Ok(stacks)
}

/// The samples that `perf` recorded in `data`, and what it printed besides them.
fn scripted(data: &Path) -> Result<(Stacks, String)> {
    let mut script = Command::new("perf");
    script.args(["script", "-F", "comm,ip,sym", "-i"]).arg(data);
    let done = script.stdin(Stdio::null()).output();
    let done = done.map_err(LabError::io("perf script"))?;
    let _ = fs::remove_file(data);
    let stacks = Stacks::read(&String::from_utf8_lossy(&done.stdout));
    let message = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Ok((stacks, message))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(LabError::io(path))
}

/// Shares of one cell.
#[allow(clippy::cast_precision_loss)] // counts of samples
fn section(title: &str, stacks: &Stacks) -> String {
    let mut table = Table::new(&["process", "class", "samples", "share of it"]);
    let (mut warnings, mut functions) = (String::new(), String::new());
    for (process, total, classes) in stacks.shares() {
        let mut ends = Table::new(&["function", "samples", "share of it"]);
        for (name, count) in stacks::innermost(stacks, &process)
            .into_iter()
            .take(FUNCTIONS)
        {
            let percent = format!("{:.1} %", 100.0 * count as f64 / total as f64);
            ends.row(vec![name, count.to_string(), percent]);
        }
        if total as f64 >= PROCESS_MIN * stacks.total() as f64 {
            // Writing to a string cannot fail.
            let _ = writeln!(
                functions,
                "\nWhere samples of {process} ended:\n\n{}",
                ends.render()
            );
        }
        for (class, count) in classes {
            let share = count as f64 / total as f64;
            let percent = format!("{:.1} %", 100.0 * share);
            table.row(vec![
                process.clone(),
                class.to_owned(),
                count.to_string(),
                percent,
            ]);
            if class == stacks::UNKNOWN && share > UNKNOWN_MAX {
                // Writing to a string cannot fail.
                let _ = writeln!(
                    warnings,
                    "\n**{process}: {:.0} % have no name. Symbols or frame pointers are missing; its shares are doubtful.**",
                    100.0 * share
                );
            }
        }
    }
    format!("\n## {title}\n\n{}{warnings}{functions}", table.render())
}

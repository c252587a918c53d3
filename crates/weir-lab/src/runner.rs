//! Runs an experiment: prepares it, then measures block after block.
//!
//! The preparation starts every contender once, refuses unoptimised ones, compares the answers,
//! finds the iterations of a batch, takes the fingerprint and writes the plan. Each block restarts
//! the contenders (so that the address layout changes), reads the canary, measures every cell in
//! random order, reads the canary again, and is stored. A block that other work disturbed, or in
//! which the clock was set, is repeated once.
//!
//! A contender that fails (does not start, dies, hangs, or reports an error) is ended and named in
//! the report, and the others continue. A contender that fails in two blocks is not started again.
//!
//! A quick run has a time limit: `quick_s` of the experiment, or `--budget`. Cells that are not
//! checked in the first part of this time are left out, and a block ends after the round in which
//! the time is up.
//!
//! Invariants: no time is stored before the answers agreed. A stored block has all planned samples
//! of a contender or, if the contender failed, none; a block of a quick run may have fewer rounds.
//! The random draws of a block depend only on the seed and the number of the block, so a resumed run
//! draws what an uninterrupted run does.

mod inproc;
mod process;
mod session;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::canary::{Canary, Reading};
use crate::error::{LabError, Result};
use crate::experiment::matrix::Matrix;
use crate::experiment::{Experiment, Mode};
use crate::fingerprint::{Fingerprint, utc_now};
use crate::machine::{self, Shares, allowed_cpus};
use crate::results::{Block, BlockHead, Failure, Plan, PlannedCell, ResultSet, SCHEMA, Sample};
use crate::rng::SplitMix64;
use crate::stats::median;

pub(crate) use session::{Prepared, Session};

/// Share of disturbed blocks above which a run decides no claim.
const DISTURBED_MAX: f64 = 0.30;
/// Number of blocks in which a contender may fail; later blocks run without it.
const FAILURES_MAX: usize = 2;
/// Blocks and samples of a quick run.
const QUICK: (usize, usize) = (3, 5);

/// Settings of the command line for an experiment.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Number of blocks instead of that of the experiment.
    pub blocks: Option<usize>,
    /// Seed instead of that of the experiment.
    pub seed: Option<u64>,
    /// Three short blocks, only to check that everything works.
    pub quick: bool,
    /// Contenders to run; empty means all.
    pub only: Vec<String>,
    /// Limit on the share of foreign CPU time instead of that of the experiment.
    pub foreign_max: Option<f64>,
    /// Time for the whole command. A block that would probably end later is not started, but one
    /// block is always measured. The default of a quick run is that of the experiment.
    pub budget: Option<Duration>,
    /// Address of a server of the user, for experiments that read one.
    pub site: Option<String>,
    /// Accepts unoptimised contenders; for tests of the lab itself.
    pub allow_debug: bool,
}

/// The directories of the lab.
#[derive(Clone, Debug)]
pub struct Places {
    /// The repository.
    pub root: PathBuf,
    /// The program of the lab.
    pub lab: PathBuf,
    /// Directory of the peers, which are separate programs.
    pub peers: PathBuf,
    /// Directory of the result sets.
    pub results: PathBuf,
    /// Directory of generated inputs and scratch files.
    pub scratch: PathBuf,
}

/// The result of a block.
pub(crate) struct Measured {
    samples: Vec<Sample>,
    shares: Shares,
    failed: Vec<Failure>,
}

impl Measured {
    /// `samples` without those of contenders that failed.
    pub(crate) fn new(
        plan: &Plan,
        mut samples: Vec<Sample>,
        shares: Shares,
        failed: Vec<Failure>,
    ) -> Measured {
        let down = |name: &str| failed.iter().any(|failure| failure.contender == name);
        samples.retain(|sample| !down(&plan.cells[sample.cell].contender));
        Measured {
            samples,
            shares,
            failed,
        }
    }
}

/// Checks that all contenders start and give equal answers. Only the batch sizes are timed.
pub fn check(
    experiment: Experiment,
    options: &Options,
    places: &Places,
) -> Result<(Matrix, Vec<PlannedCell>, Vec<Failure>)> {
    let mut session = Session::new(experiment, options, places, Arc::default())?;
    let _off_measured_cpu = OffMeasuredCpu::new(session.cpu);
    let prepared = prepare(&mut session)?;
    Ok((session.matrix, prepared.cells, prepared.failed))
}

/// Prepares the run, and reports its course.
fn check_all(session: &mut Session, progress: &mut dyn Write) -> Result<Prepared> {
    if let Some((_, limit)) = session.quick_left() {
        let line = format!("a quick run of at most about {limit:.0} s");
        print(progress, &line);
    }
    for name in machine::disturbers(Path::new("/proc")) {
        let line = format!("WARNING: {name} is running, which disturbs a measurement");
        print(progress, &line);
    }
    print(progress, "checking that contenders agree");
    let prepared = prepare(session)?;
    for failure in &prepared.failed {
        print(progress, &failure.line());
    }
    if let Some(cut) = session.cut {
        print(progress, &cut.line());
    }
    Ok(prepared)
}

fn prepare(session: &mut Session) -> Result<Prepared> {
    match session.experiment.header.mode {
        Mode::Inproc => inproc::prepare(session),
        Mode::Process => process::prepare(session),
    }
}

/// Starts a new run of the experiment file `text`.
pub fn start(
    text: &str,
    experiment: Experiment,
    options: &Options,
    places: &Places,
    stop: Arc<AtomicBool>,
    progress: &mut dyn Write,
) -> Result<ResultSet> {
    let header = &experiment.header;
    let quick = options.quick.then_some(QUICK);
    let blocks = options
        .blocks
        .or(quick.map(|q| q.0))
        .unwrap_or(header.blocks);
    let samples = quick.map_or(header.samples, |q| q.1.min(header.samples));
    let seed = options.seed.unwrap_or(header.seed);
    let foreign_max = options.foreign_max.unwrap_or(header.foreign_max);
    let foreign_max = if options.quick { 1.0 } else { foreign_max };
    let mut session = Session::new(experiment, options, places, stop)?;
    let _off_measured_cpu = OffMeasuredCpu::new(session.cpu);
    for absent in &session.matrix.absent {
        print(progress, &absent.line());
    }
    let prepared = check_all(&mut session, progress)?;
    let fingerprint = Fingerprint::take(
        &places.root,
        &places.scratch,
        &prepared.versions,
        &session.programs()?,
    )?;
    let plan = Plan {
        schema: SCHEMA,
        seed,
        blocks,
        samples,
        quick: options.quick,
        foreign_max,
        only: options.only.clone(),
        fingerprint: fingerprint.hash(),
        cells: prepared.cells,
        absent: session.matrix.absent.clone(),
        failed: prepared.failed,
        cut: session.cut,
        site: options.site.is_some(),
        cpus: Some(session.cpus),
    };
    let id = SplitMix64::new(crate::clock::wall_ns() ^ u64::from(std::process::id())).next_u64();
    let name = format!(
        "{}-{}-{:04x}",
        utc_now(),
        session.experiment.header.name,
        id & 0xFFFF
    );
    let set = ResultSet::create(&places.results.join(name))?;
    set.write("experiment.toml", text.as_bytes())?;
    set.write_json("fingerprint.json", &fingerprint)?;
    set.write_json("plan.json", &plan)?;
    blocks_of(&session, &plan, &set, progress)?;
    Ok(set)
}

/// Resumes the run in `set`.
pub fn resume(
    set: ResultSet,
    options: &Options,
    places: &Places,
    stop: Arc<AtomicBool>,
    progress: &mut dyn Write,
) -> Result<ResultSet> {
    let experiment = Experiment::read(&set.path("experiment.toml"))?;
    let plan: Plan = set.read_json("plan.json")?;
    let options = Options {
        quick: plan.quick,
        only: plan.only.clone(),
        ..options.clone()
    };
    if plan.site != options.site.is_some() {
        let what = "give --site if and only if the run began with it";
        return Err(LabError::Usage {
            what: what.to_owned(),
        });
    }
    let mut session = Session::new(experiment, &options, places, stop)?;
    session.apply_cut(plan.cut);
    let _off_measured_cpu = OffMeasuredCpu::new(session.cpu);
    let prepared = check_all(&mut session, progress)?;
    let fingerprint = Fingerprint::take(
        &places.root,
        &places.scratch,
        &prepared.versions,
        &session.programs()?,
    )?;
    let same = |a: &PlannedCell, b: &PlannedCell| {
        (&a.contender, &a.workload, a.items, a.answer.content)
            == (&b.contender, &b.workload, b.items, b.answer.content)
    };
    let cells_match = plan.cells.len() == prepared.cells.len()
        && plan
            .cells
            .iter()
            .zip(&prepared.cells)
            .all(|(a, b)| same(a, b));
    if fingerprint.hash() != plan.fingerprint || !cells_match {
        let what = "machine, programs or inputs changed since this run began; start a new one";
        return Err(LabError::Usage {
            what: what.to_owned(),
        });
    }
    blocks_of(&session, &plan, &set, progress)?;
    Ok(set)
}

fn blocks_of(
    session: &Session,
    plan: &Plan,
    set: &ResultSet,
    progress: &mut dyn Write,
) -> Result<()> {
    let (mut measured, mut disturbed) = (0, 0);
    let mut times: Vec<f64> = Vec::new();
    let mut failures: BTreeMap<String, usize> = BTreeMap::new();
    for number in 0..plan.blocks {
        if !set.has_block(number) {
            session.check_stop(set.dir())?;
            if session.is_over_budget(&times) {
                print(progress, &budget_line(plan, set));
                break;
            }
            let began = Instant::now();
            let without: BTreeSet<String> = failures
                .iter()
                .filter(|(_, count)| **count >= FAILURES_MAX)
                .map(|(name, _)| name.clone())
                .collect();
            let measure = |attempt| measure(session, plan, set, number, attempt, &without);
            let mut block = measure(1)?;
            if block.head.disturbed {
                set.write_block(&block, true)?;
                block = measure(2)?;
            }
            set.write_block(&block, false)?;
            times.push(began.elapsed().as_secs_f64());
        }
        measured += 1;
        let head = set.read_block(number)?.head;
        disturbed += usize::from(head.disturbed);
        for failure in &head.failed {
            *failures.entry(failure.contender.clone()).or_default() += 1;
            print(progress, &failure.line());
        }
        let line = block_line(&head, plan.blocks);
        let left = time_left(session, plan, set, number, &times);
        print(progress, &(line + &left));
    }
    #[allow(clippy::cast_precision_loss)] // at most a thousand blocks
    let share = disturbed as f64 / measured as f64;
    if share > DISTURBED_MAX {
        return Err(LabError::TooNoisy {
            disturbed,
            total: measured,
            dir: set.dir().to_owned(),
        });
    }
    let mut names: Vec<String> = plan.failed.iter().map(|f| f.contender.clone()).collect();
    names.extend(failures.into_keys());
    if !names.is_empty() {
        return Err(LabError::Incomplete {
            names,
            dir: set.dir().to_owned(),
        });
    }
    Ok(())
}

fn measure(
    session: &Session,
    plan: &Plan,
    set: &ResultSet,
    number: usize,
    attempt: u32,
    without: &BTreeSet<String>,
) -> Result<Block> {
    let part = format!("block {number} attempt {attempt}");
    let mut rng = SplitMix64::derive(plan.seed, &part);
    let lab = session.places.lab.display().to_string();
    let wanted = session.experiment.header.canary;
    let mut canary = wanted
        .then(|| Canary::start(&lab, session.cpu))
        .transpose()?;
    let mut read = || canary.as_mut().map_or(Ok(Reading::default()), Canary::read);
    let before = read()?;
    let Measured {
        samples,
        shares,
        failed,
    } = match session.experiment.header.mode {
        Mode::Inproc => inproc::block(session, plan, set.dir(), number, without, &mut rng)?,
        Mode::Process => process::block(session, plan, set.dir(), number, without, &mut rng)?,
    };
    let after = read()?;
    let disturbed = shares.foreign > plan.foreign_max || shares.clock_set;
    let head = BlockHead {
        schema: SCHEMA,
        block: number,
        attempt,
        disturbed,
        shares,
        before,
        after,
        failed,
    };
    Ok(Block { head, samples })
}

fn block_line(head: &BlockHead, blocks: usize) -> String {
    format!(
        "block {} of {blocks} done: foreign CPU {:.1} %, steal {:.1} %, idle {:.1} %, canary {:.2} -> {:.2} ms loop, {:.2} -> {:.2} ms copy{}",
        head.block + 1,
        100.0 * head.shares.foreign,
        100.0 * head.shares.steal,
        100.0 * head.shares.idle,
        head.before.integer_ms,
        head.after.integer_ms,
        head.before.copy_ms,
        head.after.copy_ms,
        match (head.disturbed, head.shares.clock_set) {
            (_, true) => ", DISTURBED: THE CLOCK WAS SET",
            (true, false) => ", DISTURBED",
            (false, false) => "",
        }
    )
}

/// Estimates the seconds for the missing blocks after `number` from the median of `times`, for a
/// quick run at most the rest of its time; empty if no block is missing.
fn time_left(
    session: &Session,
    plan: &Plan,
    set: &ResultSet,
    number: usize,
    times: &[f64],
) -> String {
    let missing = (number + 1..plan.blocks).filter(|block| !set.has_block(*block));
    let Some(left) = median(times).map(|time| time * missing.map(|_| 1.0).sum::<f64>()) else {
        return String::new();
    };
    if let (true, Some((rest, limit))) = (left > 0.0, session.quick_left()) {
        return format!(", about {:.0} s left of {limit:.0} s", left.min(rest));
    }
    match left {
        0.0 => String::new(),
        left if left < 90.0 => format!(", about {left:.0} s left"),
        left if left < 5_400.0 => format!(", about {:.0} min left", left / 60.0),
        left => format!(", about {:.1} h left", left / 3_600.0),
    }
}

fn budget_line(plan: &Plan, set: &ResultSet) -> String {
    let measured = (0..plan.blocks).filter(|block| set.has_block(*block));
    format!(
        "the budget is too short for another block: {} of {} blocks are measured; resume with: weir-lab run --resume {}",
        measured.count(),
        plan.blocks,
        set.dir().display()
    )
}

/// Progress output is optional: a closed terminal does not end a run.
fn print(progress: &mut dyn Write, line: &str) {
    let _ = writeln!(progress, "{line}");
    let _ = progress.flush();
}

/// CPUs whose time counts for a block.
pub(crate) fn watched(session: &Session) -> Vec<usize> {
    session.cpu.map_or_else(allowed_cpus, |cpu| vec![cpu])
}

/// The counters of the watched CPUs at this moment, with `pids` as ours.
pub(crate) fn moment(session: &Session, pids: &[u32]) -> machine::Moment {
    machine::moment(&watched(session), pids, session.cpu.is_none())
}

/// Turns a measurement into a sample of `cell`.
pub(crate) fn sample(cell: usize, n: u64, timed: crate::protocol::Timed) -> Sample {
    Sample {
        cell,
        n,
        wall_ns: timed.wall_ns,
        cpu_ns: timed.cpu_ns,
        extra: timed.extra,
    }
}

/// Keeps the thread of the lab off the measured CPU during its lifetime.
struct OffMeasuredCpu {
    before: Option<CpuSet>,
}

impl OffMeasuredCpu {
    fn new(cpu: Option<usize>) -> OffMeasuredCpu {
        let before = rustix::thread::sched_getaffinity(None).ok();
        let others: Vec<usize> = allowed_cpus()
            .into_iter()
            .filter(|other| Some(*other) != cpu)
            .collect();
        if cpu.is_none() || others.is_empty() {
            return OffMeasuredCpu { before: None };
        }
        let mut set = CpuSet::new();
        for other in others {
            set.set(other);
        }
        // If the thread cannot move, the run is still valid.
        let _ = sched_setaffinity(None, &set);
        OffMeasuredCpu { before }
    }
}

impl Drop for OffMeasuredCpu {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = sched_setaffinity(None, before);
        }
    }
}

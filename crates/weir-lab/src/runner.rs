//! Runs an experiment: prepares it, then measures block after block.
//!
//! The preparation starts every contender once, refuses unoptimised ones, compares the answers,
//! finds the iterations of a batch, takes the fingerprint and writes the plan. Each block restarts
//! the contenders (so that the address layout changes), reads the canary, measures every cell in
//! random order, reads the canary again, and is stored. A block that other work disturbed is
//! repeated once.
//!
//! A contender that fails (does not start, dies, hangs, or reports an error) is ended and named in
//! the report, and the others continue. A contender that fails in two blocks is not started again.
//!
//! Invariants: no time is stored before the answers agreed. A stored block has all planned samples
//! of a contender or, if the contender failed, none. The random draws of a block depend only on the
//! seed and the number of the block, so a resumed run draws what an uninterrupted run does.

mod inproc;
mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::canary::{Canary, Reading};
use crate::child::{Launch, Reaper};
use crate::error::{LabError, Result};
use crate::experiment::matrix::{Cell, Matrix, Narrow};
use crate::experiment::{ContenderSpec, Experiment, Mode, Pin, PinName};
use crate::fingerprint::{Fingerprint, utc_now};
use crate::machine::{self, Shares, allowed_cpus};
use crate::protocol::{Answer, Fields, Hello};
use crate::results::{Block, BlockHead, Failure, Plan, PlannedCell, ResultSet, SCHEMA, Sample};
use crate::rng::SplitMix64;
use crate::stats::median;

/// Maximum padding of a child's environment, in bytes.
const PADDING_MAX: usize = 4_096;
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
    /// block is always measured.
    pub budget: Option<Duration>,
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

/// The data that every block needs.
pub(crate) struct Session {
    pub(crate) experiment: Experiment,
    pub(crate) matrix: Matrix,
    pub(crate) places: Places,
    pub(crate) cpu: Option<usize>,
    pub(crate) options: Options,
    pub(crate) stop: Arc<AtomicBool>,
    started: Instant,
    _reaper: Reaper,
}

/// Cells that must be measured, with the results of the check.
pub(crate) struct Prepared {
    pub(crate) cells: Vec<PlannedCell>,
    pub(crate) versions: BTreeMap<String, Fields>,
    pub(crate) failed: Vec<Failure>,
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

impl Session {
    pub(crate) fn new(
        experiment: Experiment,
        options: &Options,
        places: &Places,
        stop: Arc<AtomicBool>,
    ) -> Result<Session> {
        let started = Instant::now();
        let narrow = Narrow {
            only: options.only.clone(),
            quick: options.quick,
            peers: places.peers.clone(),
        };
        let generated = places.scratch.join("inputs");
        let matrix = Matrix::expand(&experiment, &places.root, &generated, &narrow)?;
        let cpu = match experiment.header.pin {
            Pin::Cpu(cpu) => Some(cpu),
            Pin::Named(PinName::None) => None,
            Pin::Named(PinName::Auto) => allowed_cpus().last().copied(),
        };
        fs::create_dir_all(&places.scratch).map_err(LabError::io(&places.scratch))?;
        Ok(Session {
            experiment,
            matrix,
            places: places.clone(),
            cpu,
            options: options.clone(),
            stop,
            started,
            _reaper: Reaper::start(&places.lab)?,
        })
    }

    /// Ends a run that the user interrupted before its blocks.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(LabError::Cancelled);
        }
        Ok(())
    }

    /// Whether the remaining budget is too short for a block as long as the longest of `times`.
    fn is_over_budget(&self, times: &[f64]) -> bool {
        let longest = times.iter().copied().reduce(f64::max);
        let (Some(budget), Some(longest)) = (self.options.budget, longest) else {
            return false;
        };
        self.started.elapsed().as_secs_f64() + longest > budget.as_secs_f64()
    }

    pub(crate) fn check_stop(&self, dir: &Path) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted {
                dir: dir.to_owned(),
            });
        }
        Ok(())
    }

    pub(crate) fn launch(&self, rng: &mut SplitMix64) -> Launch {
        Launch {
            cpu: self.cpu,
            timeout: Duration::from_secs(self.experiment.header.timeout_s),
            padding: rng.below(PADDING_MAX),
        }
    }

    /// The command of a resident contender.
    pub(crate) fn words(&self, contender: &ContenderSpec) -> Vec<String> {
        if let Some(builtin) = &contender.builtin {
            let lab = self.places.lab.display().to_string();
            return vec![lab, "contender".to_owned(), builtin.clone()];
        }
        let words = contender.command.as_deref().unwrap_or_default();
        words.iter().map(|word| self.fill(word)).collect()
    }

    /// Replaces `{lab}`, `{peers}`, `{root}` and `{dir}`.
    pub(crate) fn fill(&self, word: &str) -> String {
        word.replace("{lab}", &self.places.lab.display().to_string())
            .replace("{peers}", &self.places.peers.display().to_string())
            .replace("{root}", &self.places.root.display().to_string())
            .replace("{dir}", &self.places.scratch.display().to_string())
    }

    /// The input of the contender of `cell` in `block`.
    pub(crate) fn fields(&self, cell: &Cell, block: usize) -> Fields {
        let mut fields = self.matrix.fields(cell);
        fields.insert("block".to_owned(), block.to_string());
        fields.insert("dir".to_owned(), self.places.scratch.display().to_string());
        fields
    }

    /// Converts `error` at `cell` to a failure of the contender; other errors end the run.
    pub(crate) fn failure(&self, cell: &Cell, error: LabError) -> Result<Failure> {
        if !error.is_of_one_contender() {
            return Err(error);
        }
        Ok(Failure {
            contender: self.matrix.contender(cell).name.clone(),
            workload: self.matrix.workload(cell).name.clone(),
            what: error.to_string(),
        })
    }

    pub(crate) fn refuse_unoptimised(&self, name: &str, hello: &Hello) -> Result<()> {
        if hello.profile == "optimised" || self.options.allow_debug {
            return Ok(());
        }
        Err(LabError::Unoptimised {
            contender: name.to_owned(),
            profile: hello.profile.clone(),
        })
    }

    /// Cell `number` of the matrix in the form of a plan.
    pub(crate) fn planned(&self, number: usize, iterations: u64, answer: Answer) -> PlannedCell {
        let cell = &self.matrix.cells[number];
        let workload = self.matrix.workload(cell);
        PlannedCell {
            contender: self.matrix.contender(cell).name.clone(),
            workload: workload.name.clone(),
            items: workload.items,
            iterations,
            samples: workload.samples.unwrap_or(usize::MAX),
            answer,
        }
    }

    /// Removes the cells of contenders that `failed` from the matrix and from `cells`. If no
    /// contender is left, returns the first failure as the error.
    pub(crate) fn keep(
        &mut self,
        mut cells: Vec<PlannedCell>,
        versions: BTreeMap<String, Fields>,
        failed: Vec<Failure>,
    ) -> Result<Prepared> {
        let down = |name: &str| failed.iter().any(|failure| failure.contender == name);
        cells.retain(|cell| !down(&cell.contender));
        let contenders = &self.matrix.contenders;
        self.matrix
            .cells
            .retain(|cell| !down(&contenders[cell.contender].name));
        if let (true, Some(first)) = (cells.is_empty(), failed.first()) {
            return Err(LabError::Unable {
                what: first.what.clone(),
            });
        }
        Ok(Prepared {
            cells,
            versions,
            failed,
        })
    }

    /// Compares the answers of every answer group at every workload. A cell without an answer is
    /// skipped.
    pub(crate) fn compare(&self, answers: &[Option<Answer>]) -> Result<()> {
        let mut first: BTreeMap<(String, usize), (usize, u64)> = BTreeMap::new();
        for (number, (cell, answer)) in self.matrix.cells.iter().zip(answers).enumerate() {
            let contender = self.matrix.contender(cell);
            let (Some(group), Some(answer)) = (&contender.answers, answer) else {
                continue;
            };
            let key = (group.clone(), cell.workload);
            let (other, content) = *first.entry(key).or_insert((number, answer.content));
            if content != answer.content {
                let left = &self.matrix.cells[other];
                return Err(LabError::Disagree {
                    workload: self.matrix.workload(cell).name.clone(),
                    left: self.matrix.contender(left).name.clone(),
                    left_answer: format!("{content:016x}"),
                    right: contender.name.clone(),
                    right_answer: format!("{:016x}", answer.content),
                });
            }
        }
        Ok(())
    }

    /// Bytes of every measured program, by name.
    fn programs(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        let mut programs = BTreeMap::new();
        for contender in &self.matrix.contenders {
            let words = self.words(contender);
            let Some(path) = words.first().map(PathBuf::from) else {
                continue;
            };
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
            let name = name.unwrap_or_default();
            if !programs.contains_key(&name) && path.is_file() {
                programs.insert(name, fs::read(&path).map_err(LabError::io(&path))?);
            }
        }
        Ok(programs)
    }
}

/// Checks that all contenders start and give equal answers. Only the batch sizes are timed.
pub fn check(
    experiment: Experiment,
    options: &Options,
    places: &Places,
) -> Result<(Matrix, Vec<PlannedCell>, Vec<Failure>)> {
    let mut session = Session::new(experiment, options, places, Arc::default())?;
    let _elsewhere = StandAside::new(session.cpu);
    let prepared = prepare(&mut session)?;
    Ok((session.matrix, prepared.cells, prepared.failed))
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
    let _elsewhere = StandAside::new(session.cpu);
    for absent in &session.matrix.absent {
        say(progress, &absent.line());
    }
    say(progress, "checking that contenders agree");
    let prepared = prepare(&mut session)?;
    for failure in &prepared.failed {
        say(progress, &failure.line());
    }
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
    let mut session = Session::new(experiment, &options, places, stop)?;
    let _elsewhere = StandAside::new(session.cpu);
    say(progress, "checking that contenders agree");
    let prepared = prepare(&mut session)?;
    for failure in &prepared.failed {
        say(progress, &failure.line());
    }
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
                say(progress, &budget_line(plan, set));
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
            say(progress, &failure.line());
        }
        let line = block_line(&head, plan.blocks);
        say(progress, &(line + &time_left(plan, set, number, &times)));
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
    let disturbed = shares.foreign > plan.foreign_max;
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
        if head.disturbed { ", DISTURBED" } else { "" }
    )
}

/// Estimates the seconds for the missing blocks after `number` from the median of `times`; empty if
/// no block is missing.
fn time_left(plan: &Plan, set: &ResultSet, number: usize, times: &[f64]) -> String {
    let missing = (number + 1..plan.blocks).filter(|block| !set.has_block(*block));
    let Some(left) = median(times).map(|time| time * missing.map(|_| 1.0).sum::<f64>()) else {
        return String::new();
    };
    match left {
        0.0 => String::new(),
        left if left < 90.0 => format!(", about {left:.0} s left"),
        left if left < 5_400.0 => format!(", about {:.0} min left", left / 60.0),
        left => format!(", about {:.1} h left", left / 3_600.0),
    }
}

fn budget_line(plan: &Plan, set: &ResultSet) -> String {
    let there = (0..plan.blocks).filter(|block| set.has_block(*block));
    format!(
        "the budget has no room for another block: {} of {} are there; the others: weir-lab run --resume {}",
        there.count(),
        plan.blocks,
        set.dir().display()
    )
}

/// Progress output is optional: a closed terminal does not end a run.
fn say(progress: &mut dyn Write, line: &str) {
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
struct StandAside {
    before: Option<CpuSet>,
}

impl StandAside {
    fn new(cpu: Option<usize>) -> StandAside {
        let before = rustix::thread::sched_getaffinity(None).ok();
        let others: Vec<usize> = allowed_cpus()
            .into_iter()
            .filter(|other| Some(*other) != cpu)
            .collect();
        if cpu.is_none() || others.is_empty() {
            return StandAside { before: None };
        }
        let mut set = CpuSet::new();
        for other in others {
            set.set(other);
        }
        // If the thread cannot move, the run is still valid.
        let _ = sched_setaffinity(None, &set);
        StandAside { before }
    }
}

impl Drop for StandAside {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = sched_setaffinity(None, before);
        }
    }
}

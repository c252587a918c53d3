//! A run's experiment, matrix and limits, which its check and all its blocks need.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Options, Places};
use crate::child::{Launch, Reaper};
use crate::error::{LabError, Result};
use crate::experiment::matrix::{Cell, Matrix, Selection};
use crate::experiment::{ContenderSpec, Experiment, Pin, PinName};
use crate::machine::allowed_cpus;
use crate::protocol::{Answer, Fields, Hello};
use crate::results::{Cut, Failure, PlannedCell};
use crate::rng::SplitMix64;

/// Maximum padding of a child's environment, in bytes.
const PADDING_MAX: usize = 4_096;
/// A quick run checks cells in one part of this number of parts of its time: it executes each cell in
/// the check, to find the size of a batch, and in the first round.
const QUICK_PARTS: f64 = 3.0;
/// Any contender may take this long for an answer, however short a quick run is: on a busy machine, a
/// program takes this long to start.
const ANSWER_MIN: Duration = Duration::from_secs(10);

/// The data that every block needs.
pub(crate) struct Session {
    pub(crate) experiment: Experiment,
    pub(crate) matrix: Matrix,
    pub(crate) places: Places,
    /// The CPU of the contenders.
    pub(crate) cpu: Option<usize>,
    /// The number of CPUs that the lab and the contenders can use.
    pub(crate) cpus: usize,
    pub(crate) options: Options,
    pub(crate) stop: Arc<AtomicBool>,
    pub(super) cut: Option<Cut>,
    /// Whether a quick run may leave out cells.
    may_cut: bool,
    started: Instant,
    _reaper: Reaper,
    /// Locked, so that no other lab measures in this checkout.
    _lock: File,
}

/// Cells that must be measured, with the results of the check.
pub(crate) struct Prepared {
    pub(crate) cells: Vec<PlannedCell>,
    pub(crate) versions: BTreeMap<String, Fields>,
    pub(crate) failed: Vec<Failure>,
}

impl Session {
    pub(crate) fn new(
        experiment: Experiment,
        options: &Options,
        places: &Places,
        stop: Arc<AtomicBool>,
    ) -> Result<Session> {
        let lock = lock(&places.scratch)?;
        let started = Instant::now();
        let selection = Selection {
            only: options.only.clone(),
            quick: options.quick,
            site: options.site.is_some(),
            peers: places.peers.clone(),
        };
        let generated = places.scratch.join("inputs");
        let matrix = Matrix::expand(&experiment, &places.root, &generated, &selection)?;
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
            cpus: allowed_cpus().len(),
            options: options.clone(),
            stop,
            cut: None,
            may_cut: options.quick,
            started,
            _reaper: Reaper::start(&places.lab)?,
            _lock: lock,
        })
    }

    /// Resumes a run with this `cut`: keeps its cells, and leaves out no others.
    pub(super) fn apply_cut(&mut self, cut: Option<Cut>) {
        if let Some(cut) = cut {
            self.cut(cut.checked);
        }
        self.may_cut = false;
    }

    /// Leaves out the cells after the first `checked` ones.
    pub(crate) fn cut(&mut self, checked: usize) {
        let of = self.matrix.cells.len();
        if checked < of {
            self.cut = Some(Cut { checked, of });
            self.matrix.cells.truncate(checked);
        }
    }

    /// Time limit of this run.
    fn budget(&self) -> Option<f64> {
        let quick = Duration::from_secs(self.experiment.header.quick_s);
        let budget = self.options.budget.or(self.options.quick.then_some(quick));
        budget.map(|budget| budget.as_secs_f64())
    }

    /// Whether a quick run has no time to check further cells.
    pub(crate) fn is_check_over(&self) -> bool {
        let spent = self.started.elapsed().as_secs_f64();
        let is_late = |budget: f64| spent * QUICK_PARTS > budget;
        self.may_cut && self.budget().is_some_and(is_late)
    }

    /// Whether the time of a quick run is up.
    pub(crate) fn is_quick_over(&self) -> bool {
        self.quick_left().is_some_and(|(left, _)| left <= 0.0)
    }

    /// Seconds that a quick run has left, and its limit.
    pub(super) fn quick_left(&self) -> Option<(f64, f64)> {
        let budget = self.options.quick.then(|| self.budget())??;
        let left = budget - self.started.elapsed().as_secs_f64();
        Some((left.max(0.0), budget))
    }

    /// Ends a run that the user interrupted before its blocks.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(LabError::Cancelled);
        }
        Ok(())
    }

    /// Whether the remaining budget is too short for a block as long as the longest of `times`.
    pub(super) fn is_over_budget(&self, times: &[f64]) -> bool {
        let longest = times.iter().copied().reduce(f64::max);
        let (Some(budget), Some(longest)) = (self.budget(), longest) else {
            return false;
        };
        self.started.elapsed().as_secs_f64() + longest > budget
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
        let header = &self.experiment.header;
        // A quick run waits for one answer no longer than for the whole experiment.
        let timeout = Duration::from_secs(header.timeout_s);
        let budget = self.budget().filter(|_| self.options.quick);
        let timeout = budget.map_or(timeout, |budget| {
            timeout.min(Duration::from_secs_f64(budget).max(ANSWER_MIN))
        });
        Launch {
            cpu: self.cpu,
            timeout,
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
        if let Some(site) = &self.options.site {
            fields.insert("site".to_owned(), site.clone());
        }
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

    /// Bytes of every measured program, by name. A load client and the server that it starts are two.
    pub(super) fn programs(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        let mut programs = BTreeMap::new();
        for contender in &self.matrix.contenders {
            for (place, word) in self.words(contender).iter().enumerate() {
                let path = Path::new(word);
                let is_program = place == 0 || path.starts_with(&self.places.peers);
                let Some(name) = path.file_name().filter(|_| is_program && path.is_file()) else {
                    continue;
                };
                let name = name.to_string_lossy().into_owned();
                if let Entry::Vacant(new) = programs.entry(name) {
                    new.insert(fs::read(path).map_err(LabError::io(path))?);
                }
            }
        }
        Ok(programs)
    }
}

/// Locks the file beside the directory `scratch`, and blocks while another lab has it locked: two
/// labs that measure at the same time disturb each other.
fn lock(scratch: &Path) -> Result<File> {
    let path = scratch.with_extension("lock");
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(LabError::io(parent))?;
    }
    let file = File::create(&path).map_err(LabError::io(&path))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::Error(source)) => return Err(LabError::io(&path)(source)),
        Err(TryLockError::WouldBlock) => {}
    }
    eprintln!("weir-lab: waiting for another run in this checkout");
    file.lock().map_err(LabError::io(&path))?;
    Ok(file)
}

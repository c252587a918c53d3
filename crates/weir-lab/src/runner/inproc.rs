//! Blocks of resident contenders, which are measured batch by batch in turn.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Measured, Prepared, Session, moment, sample, watched};
use crate::child::Child;
use crate::error::{LabError, Result};
use crate::machine::between;
use crate::protocol::Timed;
use crate::results::{Failure, Plan, PlannedCell};
use crate::rng::SplitMix64;

/// Maximum iterations of a batch.
const ITERATIONS_MAX: u64 = 1 << 32;
/// Number of warm-up batches that must agree within [`STEADY`].
const WINDOWS: usize = 3;
/// Maximum relative spread of the last batches that counts as steady.
const STEADY: f64 = 0.02;
/// A batch that takes this many times as long as the shortest batch is not repeated in the check: a
/// first execution is rarely so much slower than the others.
const REPEATED_MAX: u64 = 100;

/// The children of a block.
#[derive(Default)]
struct Children {
    running: BTreeMap<usize, Child>,
    failed: Vec<Failure>,
    /// Contenders that were started, by number.
    seen: BTreeSet<usize>,
}

impl Children {
    /// Starts the contenders of all cells except those in `without`, and loads the input of each
    /// cell.
    fn start(
        session: &Session,
        block: usize,
        without: &BTreeSet<String>,
        rng: &mut SplitMix64,
    ) -> Result<Children> {
        let mut children = Children::default();
        for (number, cell) in session.matrix.cells.iter().enumerate() {
            if !without.contains(&session.matrix.contender(cell).name) {
                children.add(session, number, block, rng)?;
            }
        }
        Ok(children)
    }

    /// Starts the contender of cell `number` if it was not started yet, and loads the input of the
    /// cell.
    fn add(
        &mut self,
        session: &Session,
        number: usize,
        block: usize,
        rng: &mut SplitMix64,
    ) -> Result<()> {
        let cell = &session.matrix.cells[number];
        if self.seen.insert(cell.contender) {
            let contender = session.matrix.contender(cell);
            let words = session.words(contender);
            match Child::start(&contender.name, &words, session.launch(rng)) {
                Ok(child) => {
                    session.refuse_unoptimised(&contender.name, child.hello())?;
                    self.running.insert(cell.contender, child);
                }
                Err(error) => self.failed.push(session.failure(cell, error)?),
            }
        }
        let load = |child: &mut Child| child.load(number, session.fields(cell, block));
        self.ask(session, number, load).map(drop)
    }

    /// The answer of the contender of cell `number` to `question`; `None` if the contender failed
    /// now or before. A contender that fails is ended.
    fn ask<T>(
        &mut self,
        session: &Session,
        number: usize,
        question: impl FnOnce(&mut Child) -> Result<T>,
    ) -> Result<Option<T>> {
        let cell = &session.matrix.cells[number];
        let Some(child) = self.running.get_mut(&cell.contender) else {
            return Ok(None);
        };
        match question(child) {
            Ok(answer) => Ok(Some(answer)),
            Err(error) => {
                self.running.remove(&cell.contender);
                self.failed.push(session.failure(cell, error)?);
                Ok(None)
            }
        }
    }
}

/// Starts the contenders, compares answers, and finds the batch sizes. A quick run leaves out the
/// cells for which it has no time.
pub(super) fn prepare(session: &mut Session) -> Result<Prepared> {
    let mut rng = SplitMix64::derive(session.experiment.header.seed, "prepare");
    let mut children = Children::default();
    let mut answers = Vec::new();
    for number in 0..session.matrix.cells.len() {
        session.check_cancelled()?;
        if number > 0 && session.is_check_over() {
            break;
        }
        children.add(session, number, 0, &mut rng)?;
        answers.push(children.ask(session, number, |child| child.check(number))?);
    }
    session.cut(answers.len());
    session.compare(&answers)?;
    let mut cells = Vec::new();
    for (number, answer) in answers.into_iter().enumerate() {
        session.check_cancelled()?;
        let iterations = children.ask(session, number, |child| batch(session, child, number))?;
        if let (Some(answer), Some(iterations)) = (answer, iterations) {
            cells.push(session.planned(number, iterations, answer));
        }
    }
    let versions = children
        .running
        .iter()
        .map(|(contender, child)| {
            (
                session.matrix.contenders[*contender].name.clone(),
                child.hello().versions.clone(),
            )
        })
        .collect();
    session.keep(cells, versions, children.failed)
}

/// Doubles the iterations until a batch takes long enough. The first execution of an input can take
/// much longer than the others, so the batch must take long enough twice in a row.
fn batch(session: &Session, child: &mut Child, number: usize) -> Result<u64> {
    let header = &session.experiment.header;
    if header.warmup_ms == 0 {
        return Ok(1);
    }
    let least_ns = header.batch_us * 1_000;
    let mut iterations = 1;
    loop {
        let mut wall_ns = child.run(number, iterations)?.wall_ns;
        if (least_ns..least_ns.saturating_mul(REPEATED_MAX)).contains(&wall_ns) {
            wall_ns = child.run(number, iterations)?.wall_ns;
        }
        if wall_ns >= least_ns || iterations >= ITERATIONS_MAX {
            return Ok(iterations);
        }
        iterations *= 2;
    }
}

/// Measures one block, without the contenders in `without`. If a contender fails in the block, its
/// samples are dropped.
pub(super) fn block(
    session: &Session,
    plan: &Plan,
    dir: &Path,
    number: usize,
    without: &BTreeSet<String>,
    rng: &mut SplitMix64,
) -> Result<Measured> {
    let mut children = Children::start(session, number, without, rng)?;
    let pids: Vec<u32> = children.running.values().map(Child::pid).collect();
    for (cell, planned) in plan.cells.iter().enumerate() {
        session.check_stop(dir)?;
        children.ask(session, cell, |child| {
            warm_up(session, child, cell, planned)
        })?;
    }
    let mut order: Vec<usize> = (0..plan.cells.len()).collect();
    let mut samples = Vec::with_capacity(order.len() * plan.samples);
    let from = moment(session, &pids);
    for round in 0..plan.samples {
        if round > 0 && session.is_quick_over() {
            break;
        }
        rng.shuffle(&mut order);
        for cell in &order {
            session.check_stop(dir)?;
            let planned = &plan.cells[*cell];
            if round >= planned.samples {
                continue;
            }
            let timed = children.ask(session, *cell, |child| once(child, *cell, planned))?;
            samples.extend(timed.map(|timed| sample(*cell, planned.iterations, timed)));
        }
    }
    let shares = between(from, moment(session, &pids), watched(session).len());
    Ok(Measured::new(plan, samples, shares, children.failed))
}

/// Times a batch, whose TOUCH must match the check.
fn once(child: &mut Child, cell: usize, planned: &PlannedCell) -> Result<Timed> {
    let timed = child.run(cell, planned.iterations)?;
    let expected = planned.answer.touch.wrapping_mul(planned.iterations);
    if timed.touch == expected {
        return Ok(timed);
    }
    let what = format!(
        "`{}`: {} iterations touched {:x} instead of {expected:x}",
        planned.workload, planned.iterations, timed.touch
    );
    Err(LabError::contender(&planned.contender, what))
}

/// Runs batches until three in a row agree, or until the time is up. A quick run has no warm-up.
#[allow(clippy::cast_precision_loss)] // nanoseconds of a batch
fn warm_up(session: &Session, child: &mut Child, cell: usize, planned: &PlannedCell) -> Result<()> {
    if session.options.quick {
        return Ok(());
    }
    let budget_ns = session.experiment.header.warmup_ms * 1_000_000;
    let mut spent = 0u64;
    let mut windows: Vec<f64> = Vec::new();
    while spent < budget_ns {
        let wall = child.run(cell, planned.iterations)?.wall_ns;
        spent += wall.max(1);
        windows.push(wall as f64);
        let last = windows
            .get(windows.len().saturating_sub(WINDOWS)..)
            .unwrap_or_default();
        let highest = last.iter().copied().fold(0.0, f64::max);
        let lowest = last.iter().copied().fold(f64::INFINITY, f64::min);
        if last.len() == WINDOWS && highest <= lowest * (1.0 + STEADY) {
            return Ok(());
        }
    }
    Ok(())
}

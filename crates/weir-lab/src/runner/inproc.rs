//! Blocks of resident contenders, measured batch by batch in turn.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Prepared, Session, moment, sample, watched};
use crate::child::Child;
use crate::error::{LabError, Result};
use crate::machine::{Shares, between};
use crate::results::{Plan, PlannedCell, Sample};
use crate::rng::SplitMix64;

/// Most iterations of a batch.
const ITERATIONS_MAX: u64 = 1 << 32;
/// Warm-up batches that must agree within [`STEADY`].
const WINDOWS: usize = 3;
/// Relative spread of the last windows that counts as steady.
const STEADY: f64 = 0.02;

/// The children of a block, by contender.
type Children = BTreeMap<usize, Child>;

fn start(session: &Session, block: usize, rng: &mut SplitMix64) -> Result<Children> {
    let mut children = Children::new();
    for (number, cell) in session.matrix.cells.iter().enumerate() {
        let contender = session.matrix.contender(cell);
        let child = match children.entry(cell.contender) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let words = session.words(contender);
                let child = Child::start(&contender.name, &words, session.launch(rng))?;
                let profile = &child.hello().profile;
                if profile != "optimised" && !session.options.allow_debug {
                    return Err(LabError::Unoptimised {
                        contender: contender.name.clone(),
                        profile: profile.clone(),
                    });
                }
                entry.insert(child)
            }
        };
        child.load(number, session.fields(cell, block))?;
    }
    Ok(children)
}

fn child_of<'a>(
    session: &Session,
    children: &'a mut Children,
    number: usize,
) -> Result<&'a mut Child> {
    let cell = &session.matrix.cells[number];
    let missing = || LabError::contender(&session.matrix.contender(cell).name, "was not started");
    children.get_mut(&cell.contender).ok_or_else(missing)
}

/// Starts everything, compares answers, finds the size of a batch.
pub(super) fn prepare(session: &Session) -> Result<Prepared> {
    let mut rng = SplitMix64::derive(session.experiment.header.seed, "prepare");
    let mut children = start(session, 0, &mut rng)?;
    let mut answers = Vec::new();
    for number in 0..session.matrix.cells.len() {
        answers.push(child_of(session, &mut children, number)?.check(number)?);
    }
    session.compare(&answers)?;
    let mut cells = Vec::new();
    for (number, answer) in answers.into_iter().enumerate() {
        let cell = &session.matrix.cells[number];
        let child = child_of(session, &mut children, number)?;
        cells.push(PlannedCell {
            contender: session.matrix.contender(cell).name.clone(),
            workload: session.matrix.workload(cell).name.clone(),
            items: session.matrix.workload(cell).items,
            iterations: batch(session, child, number)?,
            samples: session.matrix.workload(cell).samples.unwrap_or(usize::MAX),
            answer,
        });
    }
    let versions = children
        .iter()
        .map(|(contender, child)| {
            (
                session.matrix.contenders[*contender].name.clone(),
                child.hello().versions.clone(),
            )
        })
        .collect();
    Ok(Prepared { cells, versions })
}

/// Doubles the iterations until a batch takes long enough.
fn batch(session: &Session, child: &mut Child, number: usize) -> Result<u64> {
    let header = &session.experiment.header;
    if header.warmup_ms == 0 {
        return Ok(1);
    }
    let mut iterations = 1;
    loop {
        let timed = child.run(number, iterations)?;
        if timed.wall_ns >= header.batch_us * 1_000 || iterations >= ITERATIONS_MAX {
            return Ok(iterations);
        }
        iterations *= 2;
    }
}

/// Measures one block.
pub(super) fn block(
    session: &Session,
    plan: &Plan,
    dir: &Path,
    number: usize,
    rng: &mut SplitMix64,
) -> Result<(Vec<Sample>, Shares)> {
    let mut children = start(session, number, rng)?;
    let pids: Vec<u32> = children.values().map(Child::pid).collect();
    for (cell, planned) in plan.cells.iter().enumerate() {
        session.check_stop(dir)?;
        warm_up(
            session,
            child_of(session, &mut children, cell)?,
            cell,
            planned,
        )?;
    }
    let mut order: Vec<usize> = (0..plan.cells.len()).collect();
    let mut samples = Vec::with_capacity(order.len() * plan.samples);
    let from = moment(session, &pids);
    for round in 0..plan.samples {
        rng.shuffle(&mut order);
        for cell in &order {
            session.check_stop(dir)?;
            let planned = &plan.cells[*cell];
            if round >= planned.samples {
                continue;
            }
            let child = child_of(session, &mut children, *cell)?;
            let timed = child.run(*cell, planned.iterations)?;
            let expected = planned.answer.touch.wrapping_mul(planned.iterations);
            if timed.touch != expected {
                let what = format!(
                    "`{}`: {} iterations touched {:x} instead of {expected:x}",
                    planned.workload, planned.iterations, timed.touch
                );
                return Err(LabError::contender(&planned.contender, what));
            }
            samples.push(sample(*cell, planned.iterations, timed));
        }
    }
    let shares = between(from, moment(session, &pids), watched(session).len());
    Ok((samples, shares))
}

/// Runs batches until three in a row agree or the time is up.
#[allow(clippy::cast_precision_loss)] // nanoseconds of a batch
fn warm_up(session: &Session, child: &mut Child, cell: usize, planned: &PlannedCell) -> Result<()> {
    let header = &session.experiment.header;
    let budget_ms = if session.options.quick {
        1.min(header.warmup_ms)
    } else {
        header.warmup_ms
    };
    let mut spent = 0u64;
    let mut windows: Vec<f64> = Vec::new();
    while spent < budget_ms * 1_000_000 {
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

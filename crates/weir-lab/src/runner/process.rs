//! Blocks of whole processes: a command is run to its end for every sample.
//!
//! The answer of a command is its output. Metrics: `wall`, `cpu` (user and system), `max_rss`
//! (bytes).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::sync_channel;
use std::thread;

use wait4::Wait4;

use super::{Measured, Prepared, Session, moment, sample, watched};
use crate::child::{command, end_group, spawn_on};
use crate::clock;
use crate::error::{LabError, Result};
use crate::experiment::matrix::Cell;
use crate::machine::between;
use crate::protocol::{Answer, Fields, Timed};
use crate::results::{Failure, Plan};
use crate::rng::{SplitMix64, fnv1a64};

/// The words of a cell's command.
fn words(session: &Session, cell: &Cell, block: usize) -> Vec<String> {
    let contender = session.matrix.contender(cell);
    let fields = session.fields(cell, block);
    let lab = session.places.lab.display().to_string();
    match (&contender.builtin, &contender.command) {
        (Some(builtin), _) => {
            let listed = fields.iter().map(|(name, value)| format!("{name}={value}"));
            [lab, "once".to_owned(), builtin.clone()]
                .into_iter()
                .chain(listed)
                .collect()
        }
        (None, Some(words)) => words
            .iter()
            .map(|word| {
                fields
                    .iter()
                    .fold(session.fill(word), |word, (name, value)| {
                        word.replace(&format!("{{{name}}}"), value)
                    })
            })
            .collect(),
        (None, None) => Vec::new(),
    }
}

/// The output of the command of `cell`; `None` if its contender failed now, or is already in
/// `failed`.
fn attempt(
    session: &Session,
    cell: &Cell,
    failed: &mut Vec<Failure>,
    run: impl FnOnce() -> Result<(Timed, u64)>,
) -> Result<Option<(Timed, u64)>> {
    let name = &session.matrix.contender(cell).name;
    if failed.iter().any(|failure| failure.contender == *name) {
        return Ok(None);
    }
    match run() {
        Ok(answer) => Ok(Some(answer)),
        Err(error) => {
            failed.push(session.failure(cell, error)?);
            Ok(None)
        }
    }
}

/// Runs every command once and compares the outputs.
pub(super) fn prepare(session: &mut Session) -> Result<Prepared> {
    let mut rng = SplitMix64::derive(session.experiment.header.seed, "prepare");
    let mut answers = Vec::new();
    let mut failed = Vec::new();
    for cell in &session.matrix.cells {
        session.check_cancelled()?;
        if !answers.is_empty() && session.is_check_over() {
            break;
        }
        let run = || once(session, cell, 0, &mut rng);
        let answer = attempt(session, cell, &mut failed, run)?;
        answers.push(answer.map(|(_, content)| Answer {
            content,
            ..Answer::default()
        }));
    }
    session.cut(answers.len());
    session.compare(&answers)?;
    let cells = answers
        .into_iter()
        .enumerate()
        .filter_map(|(number, answer)| Some(session.planned(number, 1, answer?)))
        .collect();
    let rustc = Fields::from([("rustc".to_owned(), env!("WEIR_LAB_RUSTC").to_owned())]);
    let built_in = session
        .matrix
        .contenders
        .iter()
        .filter(|c| c.builtin.is_some());
    let versions: BTreeMap<String, Fields> = built_in
        .map(|contender| (contender.name.clone(), rustc.clone()))
        .collect();
    session.keep(cells, versions, failed)
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
    let mut order: Vec<usize> = (0..plan.cells.len()).collect();
    let mut samples = Vec::new();
    let mut failed = Vec::new();
    let from = moment(session, &[]);
    let mut ours = 0u64;
    for round in 0..plan.samples {
        if round > 0 && session.is_quick_over() {
            break;
        }
        rng.shuffle(&mut order);
        for cell in &order {
            session.check_stop(dir)?;
            let planned = &plan.cells[*cell];
            if round >= planned.samples || without.contains(&planned.contender) {
                continue;
            }
            let run = || {
                let (timed, content) = once(session, &session.matrix.cells[*cell], number, rng)?;
                if content == planned.answer.content {
                    return Ok((timed, content));
                }
                let what = format!("`{}`: its output differs from the check", planned.workload);
                Err(LabError::contender(&planned.contender, what))
            };
            let done = attempt(session, &session.matrix.cells[*cell], &mut failed, run)?;
            if let Some((timed, _)) = done {
                ours += timed.cpu_ns;
                samples.push(sample(*cell, 1, timed));
            }
        }
    }
    let cpus = watched(session).len();
    let to = moment(session, &[]).with_ours(ours);
    Ok(Measured::new(
        plan,
        samples,
        between(from, to, cpus),
        failed,
    ))
}

/// Runs the command of `cell` to its end. Returns its times and the hash of its output.
#[allow(clippy::cast_precision_loss)] // bytes of memory
fn once(
    session: &Session,
    cell: &Cell,
    block: usize,
    rng: &mut SplitMix64,
) -> Result<(Timed, u64)> {
    let name = &session.matrix.contender(cell).name;
    let launch = session.launch(rng);
    let words = words(session, cell, block);
    let out = session
        .places
        .scratch
        .join(format!("stdout-{}", std::process::id()));
    let file = File::create(&out).map_err(LabError::io(&out))?;
    let mut command = command(&words, launch.padding);
    command.stdin(Stdio::null()).stdout(file);
    let start = clock::wall_ns();
    let child = spawn_on(&mut command, launch.cpu).map_err(|source| LabError::Start {
        contender: name.clone(),
        program: words.first().cloned().unwrap_or_default(),
        source,
    })?;
    let pid = child.id();
    // At the deadline, a separate thread kills the group.
    let (done, waiting) = sync_channel::<()>(1);
    let watchdog = thread::spawn(move || {
        if waiting.recv_timeout(launch.timeout) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            end_group(pid);
        }
    });
    let used = child.wait4();
    let wall_ns = clock::wall_ns() - start;
    drop(done);
    let _ = watchdog.join();
    let used = used.map_err(|error| LabError::contender(name, error.to_string()))?;
    if !used.status.success() {
        return Err(LabError::contender(name, format!("ended: {}", used.status)));
    }
    let printed = std::fs::read(&out).map_err(LabError::io(&out))?;
    let _ = std::fs::remove_file(&out);
    let cpu = used.rusage.utime + used.rusage.stime;
    let timed = Timed {
        wall_ns,
        cpu_ns: u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX),
        touch: 0,
        extra: BTreeMap::from([("max_rss".to_owned(), used.rusage.maxrss as f64)]),
    };
    Ok((timed, fnv1a64(&printed)))
}

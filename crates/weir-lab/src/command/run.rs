//! `weir-lab run`: builds the missing peers of experiments, runs them, and reports.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::{find_all, make_report, print};
use crate::error::{LabError, Result};
use crate::experiment::{ContenderSpec, Experiment};
use crate::results::ResultSet;
use crate::runner::{self, Options, Places};

/// The program that builds the peers, below the repository.
const INSTALL: &str = "lab/peers/install.sh";

/// Runs an experiment, or all experiments of an alias in turn, or resumes a result set, and
/// reports. If one of several experiments fails, the others still run; the first error is returned.
pub fn run(
    name: Option<&str>,
    resume: Option<&Path>,
    options: &Options,
    places: &Places,
    out: &mut dyn Write,
) -> Result<()> {
    let stop = stop_flag()?;
    let name = match (name, resume) {
        (None, Some(dir)) => {
            let set = ResultSet::open(dir)?;
            return finish(runner::resume(set, options, places, stop, out), out);
        }
        (Some(name), None) => name,
        _ => {
            let what = "give either an experiment or --resume DIR";
            return Err(LabError::Usage {
                what: what.to_owned(),
            });
        }
    };
    let began = Instant::now();
    let paths = find_all(places, name)?;
    let mut failure = None;
    for (index, path) in paths.iter().enumerate() {
        if paths.len() > 1 {
            let (number, of) = (index + 1, paths.len());
            print(out, &format!("\n[{number} of {of}] {}\n", path.display()))?;
        }
        let left = u32::try_from(paths.len() - index).unwrap_or(u32::MAX);
        let budget = options.budget.map(|budget| {
            let budget = budget.saturating_sub(began.elapsed());
            budget / left
        });
        let options = Options {
            budget,
            ..options.clone()
        };
        match run_file(path, &options, places, &stop, out) {
            Ok(()) => {}
            Err(error) if paths.len() == 1 || error.exit_code() == 130 => return Err(error),
            Err(error) => {
                print(out, &format!("{}: {error}\n", path.display()))?;
                failure.get_or_insert(error);
            }
        }
    }
    if paths.len() > 1 {
        let (count, seconds) = (paths.len(), began.elapsed().as_secs());
        print(out, &format!("{count} experiments in {seconds} s\n"))?;
    }
    failure.map_or(Ok(()), Err)
}

fn run_file(
    path: &Path,
    options: &Options,
    places: &Places,
    stop: &Arc<AtomicBool>,
    out: &mut dyn Write,
) -> Result<()> {
    let text = fs::read_to_string(path).map_err(LabError::io(path))?;
    let experiment = Experiment::parse(&text, path)?;
    install(&experiment, options, places, out)?;
    let stop = Arc::clone(stop);
    let finished = runner::start(&text, experiment, options, places, stop, out);
    finish(finished, out)
}

/// Builds the peers of `experiment` if a program of one of its contenders is missing. A contender
/// with `needs` does not count, because its program may be impossible to build here. Peers that
/// cannot be built are failures of their contenders, and the others are measured.
fn install(
    experiment: &Experiment,
    options: &Options,
    places: &Places,
    out: &mut dyn Write,
) -> Result<()> {
    let script = places.root.join(INSTALL);
    let is_missing = |contender: &ContenderSpec| {
        let named = options.only.contains(&contender.name);
        let asked = named || (options.only.is_empty() && (contender.quick || !options.quick));
        let missing = contender.missing_program(&places.peers);
        asked && contender.needs.is_none() && missing.is_some()
    };
    if !experiment.contenders.iter().any(is_missing) || !script.is_file() {
        return Ok(());
    }
    let groups: Vec<&str> = experiment.header.peers.iter().map(|p| p.word()).collect();
    let line = format!("building peers: {INSTALL} {}\n", groups.join(" "));
    print(out, &line)?;
    let status = Command::new("sh").arg(&script).args(&groups).status();
    if !status.map_err(LabError::io(&script))?.success() {
        let line = "some peers could not be built; the contenders without a program will fail\n";
        print(out, line)?;
    }
    Ok(())
}

/// Reports on a run that `finished`, or that ended with a result set.
fn finish(finished: Result<ResultSet>, out: &mut dyn Write) -> Result<()> {
    match finished {
        Ok(set) => {
            make_report(set.dir(), out)?;
            print(out, &format!("results: {}\n", set.dir().display()))
        }
        Err(error) => {
            if let LabError::Interrupted { dir }
            | LabError::TooNoisy { dir, .. }
            | LabError::Incomplete { dir, .. } = &error
            {
                make_report(dir, out)?;
            }
            Err(error)
        }
    }
}

/// Set by the first SIGINT or SIGTERM; the second ends the process.
pub(super) fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(LabError::io("signal handler"))?;
    }
    Ok(stop)
}

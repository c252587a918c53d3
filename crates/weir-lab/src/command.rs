//! The commands of `weir-lab`, without the parsing of arguments.

mod noise;
mod run;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::claim::Verdict;
use crate::compare::{self, Change};
use crate::contender::{BUILT_IN, by_name};
use crate::error::{LabError, Result};
use crate::experiment::matrix::Matrix;
use crate::experiment::reference::Reference;
use crate::experiment::{Experiment, Peers};
use crate::profile::Wanted;
use crate::protocol::Fields;
use crate::report::{self, html};
use crate::results::{Block, Failure, Plan, PlannedCell, ResultSet};
use crate::runner::{self, Options, Places};
use crate::summary::Summary;

pub use noise::noise;
pub use run::run;

/// Directory of the experiment files below the repository.
pub const EXPERIMENTS: &str = "lab/experiments";
/// Name that stands for every experiment.
pub const ALL: &str = "all";

/// How result sets are compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Comparing {
    /// A regression is an error.
    pub gate: bool,
    /// The machines may differ.
    pub across: bool,
    /// JSON instead of Markdown.
    pub json: bool,
}

/// How samples are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Comma-separated fields (RFC 4180), with a header line.
    Csv,
    /// One JSON object a line.
    Json,
}

/// Finds the repository from the current directory upward, and the directories of the lab in it.
pub fn places() -> Result<Places> {
    let here = std::env::current_dir().map_err(LabError::io("."))?;
    let root = here
        .ancestors()
        .find(|dir| dir.join(EXPERIMENTS).is_dir())
        .unwrap_or(&here);
    let lab = std::env::current_exe().map_err(LabError::io("weir-lab"))?;
    Ok(Places {
        root: root.to_owned(),
        lab,
        peers: root.join("target/lab-peers"),
        results: root.join("lab/results"),
        scratch: root.join("target/lab-scratch"),
    })
}

/// The experiment files, in order of name.
pub fn experiments(places: &Places) -> Result<Vec<(PathBuf, Experiment)>> {
    let dir = places.root.join(EXPERIMENTS);
    let Ok(entries) = fs::read_dir(&dir) else {
        return Ok(Vec::new());
    };
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| Experiment::read(&path).map(|read| (path, read)))
        .collect()
}

/// The files of the experiments called `name`, by name, alias or path, in order of name. Only an
/// alias and [`ALL`] can match several files.
pub fn find_all(places: &Places, name: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(name);
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let all = experiments(places)?.into_iter();
    let called = all.filter(|(_, experiment)| {
        let header = &experiment.header;
        name == ALL || header.name == name || header.alias.as_deref() == Some(name)
    });
    let paths: Vec<PathBuf> = called.map(|(path, _)| path).collect();
    if paths.is_empty() {
        return Err(LabError::Usage {
            what: format!("no experiment `{name}`; `weir-lab list` shows them"),
        });
    }
    Ok(paths)
}

/// The file of the one experiment called `name`.
pub fn find(places: &Places, name: &str) -> Result<PathBuf> {
    match find_all(places, name)?.as_slice() {
        [path] => Ok(path.clone()),
        _ => Err(LabError::Usage {
            what: format!("`{name}` stands for several experiments; choose one of them"),
        }),
    }
}

/// Prints the groups that `lab/peers/install.sh` must build for the experiment `name`, or for all
/// experiments, one a line. Prints nothing if all contenders are built in.
pub fn peers(name: Option<&str>, places: &Places, out: &mut dyn Write) -> Result<()> {
    let wanted: Vec<Experiment> = match name {
        Some(name) => {
            let paths = find_all(places, name)?;
            let read = paths.iter().map(|path| Experiment::read(path));
            read.collect::<Result<_>>()?
        }
        None => experiments(places)?.into_iter().map(|(_, e)| e).collect(),
    };
    let groups: BTreeSet<Peers> = wanted.into_iter().flat_map(|e| e.header.peers).collect();
    for group in groups {
        print(out, &format!("{}\n", group.word()))?;
    }
    Ok(())
}

/// Prints the experiments and the built-in contenders.
pub fn list(places: &Places, out: &mut dyn Write) -> Result<()> {
    let mut table = report::Table::new(&[
        "experiment",
        "alias",
        "mode",
        "contenders",
        "claims",
        "question",
    ]);
    for (_, experiment) in experiments(places)? {
        let header = &experiment.header;
        table.row(vec![
            header.name.clone(),
            header.alias.clone().unwrap_or_default(),
            format!("{:?}", header.mode).to_lowercase(),
            experiment.contenders.len().to_string(),
            experiment.claims.len().to_string(),
            header.question.clone(),
        ]);
    }
    let mut built_in = report::Table::new(&["built-in contender", "what it is"]);
    for (name, what) in BUILT_IN {
        built_in.row(vec![name.to_owned(), what.to_owned()]);
    }
    print(out, &format!("{}\n{}", table.render(), built_in.render()))
}

/// Prints the matrix of an experiment after it has started all contenders and compared their
/// answers.
pub fn check(name: &str, options: &Options, places: &Places, out: &mut dyn Write) -> Result<()> {
    let experiment = Experiment::read(&find(places, name)?)?;
    let (blocks, samples) = (experiment.header.blocks, experiment.header.samples);
    let (matrix, cells, failed) = runner::check(experiment, options, places)?;
    print(out, &matrix_text(&matrix, &cells))?;
    for failure in &failed {
        print(out, &format!("{}\n", failure.line()))?;
    }
    print(
        out,
        &format!(
            "\n{} cells, {blocks} blocks of {samples} samples; contenders agree\n",
            cells.len()
        ),
    )?;
    let Some(first) = failed.into_iter().next() else {
        return Ok(());
    };
    Err(LabError::Unable { what: first.what })
}

/// Samples where contenders use CPU time.
pub fn profile(
    name: &str,
    options: &Options,
    wanted: &Wanted,
    places: &Places,
    out: &mut dyn Write,
) -> Result<()> {
    let experiment = Experiment::read(&find(places, name)?)?;
    if let Some(dir) = &wanted.into {
        let set = ResultSet::open(dir)?;
        let measured = Experiment::read(&set.path("experiment.toml"))?.header.name;
        if measured != experiment.header.name {
            let what = format!("{} is a result set of `{measured}`", dir.display());
            return Err(LabError::Usage { what });
        }
    }
    crate::profile::run(experiment, options, wanted, places, out)?;
    match &wanted.into {
        Some(dir) => make_report(dir, &mut std::io::sink()),
        None => Ok(()),
    }
}

fn matrix_text(matrix: &Matrix, cells: &[PlannedCell]) -> String {
    let mut table =
        report::Table::new(&["workload", "contender", "answer", "batch", "allocations"]);
    for cell in cells {
        table.row(vec![
            cell.workload.clone(),
            cell.contender.clone(),
            format!("{:016x}", cell.answer.content),
            cell.iterations.to_string(),
            cell.answer.allocations.to_string(),
        ]);
    }
    let skipped =
        matrix
            .skipped
            .iter()
            .fold(String::new(), |text, (contender, workload, reason)| {
                format!("{text}left out: {contender} with {workload}: {reason}\n")
            });
    let absent: String = matrix
        .absent
        .iter()
        .map(|absent| absent.line() + "\n")
        .collect();
    table.render() + &skipped + &absent
}

/// Regenerates `summary.json`, `report.md`, `report.html` and `figures.csv` of a result set, and
/// prints the report.
pub fn make_report(dir: &Path, out: &mut dyn Write) -> Result<()> {
    let set = ResultSet::open(dir)?;
    if set.is_older_record() {
        let dir = dir.display();
        let what =
            format!("{dir} is a record without blocks.jsonl; its report cannot be regenerated");
        return Err(LabError::Usage { what });
    }
    let experiment = Experiment::read(&set.path("experiment.toml"))?;
    let plan: Plan = set.read_json("plan.json")?;
    let blocks = set.read_blocks(&plan)?;
    let summary = Summary::new(&experiment, &plan, &blocks);
    let fingerprint = set.read_json("fingerprint.json")?;
    let text = report::markdown(&experiment, &plan, &blocks, &summary, &fingerprint);
    set.write_json("summary.json", &summary)?;
    set.write("report.md", text.as_bytes())?;
    let flames = flames(&set.path("profiles"))?;
    let page = html::page(&experiment, &plan, &blocks, &summary, &fingerprint, &flames);
    set.write("report.html", page.as_bytes())?;
    let csv = html::csv(&experiment, &plan, &blocks);
    set.write("figures.csv", csv.as_bytes())?;
    print(out, &text)
}

/// Prints the changes from the result set `old` to `new`. With `gate`, a regression is an error.
pub fn compare(old: &Path, new: &Path, wanted: Comparing, out: &mut dyn Write) -> Result<()> {
    let compared = compare::compare(old, new, wanted.across)?;
    let text = if wanted.json {
        let text = serde_json::to_string_pretty(&compared).map_err(|source| LabError::Stored {
            path: new.to_owned(),
            line: 1,
            source,
        })?;
        text + "\n"
    } else {
        compared.markdown()
    };
    print(out, &text)?;
    match compared.count(Change::Regressed) {
        cells if wanted.gate && cells > 0 => Err(LabError::Regressed { cells }),
        _ => Ok(()),
    }
}

/// Prints every sample of a result set, one a line: as CSV, or as one JSON object a line. The
/// totals of a sample cover all of its iterations.
pub fn export(dir: &Path, format: Format, out: &mut dyn Write) -> Result<()> {
    let set = ResultSet::open(dir)?;
    let plan: Plan = set.read_json("plan.json")?;
    if format == Format::Csv {
        let head = "block,disturbed,workload,contender,iterations,wall_ns,cpu_ns,others\n";
        print(out, head)?;
    }
    for block in set.read_blocks(&plan)? {
        let mut text = String::new();
        for sample in &block.samples {
            let Some(cell) = plan.cells.get(sample.cell) else {
                continue;
            };
            text += &match format {
                Format::Csv => {
                    let others = sample.extra.iter().map(|(k, v)| format!("{k}={v}"));
                    let fields = [
                        (block.head.block + 1).to_string(),
                        block.head.disturbed.to_string(),
                        cell.workload.clone(),
                        cell.contender.clone(),
                        sample.n.to_string(),
                        sample.wall_ns.to_string(),
                        sample.cpu_ns.to_string(),
                        others.collect::<Vec<_>>().join(";"),
                    ];
                    fields.map(|field| html::quoted(&field)).join(",")
                }
                Format::Json => serde_json::json!({
                    "block": block.head.block + 1,
                    "disturbed": block.head.disturbed,
                    "workload": cell.workload,
                    "contender": cell.contender,
                    "iterations": sample.n,
                    "wall_ns": sample.wall_ns,
                    "cpu_ns": sample.cpu_ns,
                    "others": sample.extra,
                })
                .to_string(),
            };
            text.push('\n');
        }
        print(out, &text)?;
    }
    Ok(())
}

/// Prints one cell, `CONTENDER@WORKLOAD` or `CONTENDER@WORKLOAD:METRIC`: its figure in each block,
/// and percentiles and a histogram of its samples.
pub fn show(dir: &Path, cell: &str, out: &mut dyn Write) -> Result<()> {
    let set = ResultSet::open(dir)?;
    let experiment = Experiment::read(&set.path("experiment.toml"))?;
    let plan: Plan = set.read_json("plan.json")?;
    let blocks = set.read_blocks(&plan)?;
    let metric = experiment.header.show.first();
    let wanted = Reference::parse(cell, metric.map_or("wall", String::as_str));
    let place = plan.cells.iter().position(|planned| {
        planned.contender == wanted.contender && Some(&planned.workload) == wanted.workload.as_ref()
    });
    let usage = |what: String| LabError::Usage { what };
    let place = place.ok_or_else(|| {
        let cells = plan.cells.iter();
        let names = cells.map(|cell| format!("{}@{}", cell.contender, cell.workload));
        let names: Vec<String> = names.collect();
        usage(format!("no cell `{cell}`; there are {}", names.join(", ")))
    })?;
    let shown = report::cell(
        &plan,
        &blocks,
        &experiment.header.show,
        place,
        &wanted.metric,
    );
    let text = shown.ok_or_else(|| {
        let metric = &wanted.metric;
        usage(format!("no sample of `{cell}` has the metric `{metric}`"))
    })?;
    print(out, &text)
}

/// The flame graphs in `dir`, in order of name; none if `dir` does not exist.
fn flames(dir: &Path) -> Result<Vec<(String, String)>> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Ok(Vec::new());
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "svg"));
    paths.sort();
    let read = |path: &PathBuf| {
        let svg = fs::read_to_string(path).map_err(LabError::io(path))?;
        let name = path.file_stem().map(|name| name.to_string_lossy());
        Ok((name.unwrap_or_default().into_owned(), svg))
    };
    paths.iter().map(read).collect()
}

/// Copies the parts of a result set that are committed (summary, report, flame graphs, plan,
/// fingerprint, descriptions of the blocks and compressed samples) to `to`. Refuses an incomplete
/// set: a quick run, a run of some contenders, a missing block, a missing contender that is not
/// optional, one that failed at the check or in two blocks, or a claim that was not measured.
pub fn record(dir: &Path, to: &Path, out: &mut dyn Write) -> Result<()> {
    make_report(dir, &mut std::io::sink())?;
    let set = ResultSet::open(dir)?;
    let plan: Plan = set.read_json("plan.json")?;
    let blocks = set.read_blocks(&plan)?;
    let experiment = Experiment::read(&set.path("experiment.toml"))?;
    let summary = Summary::new(&experiment, &plan, &blocks);
    if let Some(lack) = lack(&experiment, &plan, &blocks).or_else(|| unmeasured(&summary)) {
        let what = format!("{} is not a whole record: {lack}", dir.display());
        return Err(LabError::Usage { what });
    }
    fs::create_dir_all(to).map_err(LabError::io(to))?;
    for name in [
        "summary.json",
        "report.md",
        "report.html",
        "figures.csv",
        "plan.json",
        "fingerprint.json",
        "experiment.toml",
    ] {
        fs::copy(set.path(name), to.join(name)).map_err(LabError::io(to))?;
    }
    for (name, svg) in flames(&set.path("profiles"))? {
        let profiles = to.join("profiles");
        fs::create_dir_all(&profiles).map_err(LabError::io(&profiles))?;
        let path = profiles.join(name + ".svg");
        fs::write(&path, svg).map_err(LabError::io(&path))?;
    }
    ResultSet::record_blocks(to, &blocks)?;
    print(out, &format!("recorded in {}\n", to.display()))
}

/// The first reason why a result set is incomplete.
fn lack(experiment: &Experiment, plan: &Plan, blocks: &[Block]) -> Option<String> {
    if plan.quick {
        return Some("it was a quick run".to_owned());
    }
    if !plan.only.is_empty() {
        return Some(format!("it ran {} only", plan.only.join(", ")));
    }
    if plan.site {
        return Some("it read a site that others cannot read".to_owned());
    }
    if blocks.len() < plan.blocks {
        let (measured, all) = (blocks.len(), plan.blocks);
        return Some(format!("{measured} of {all} blocks were measured"));
    }
    let failed_in = |block: &Block, name: &str| {
        let mut failed = block.head.failed.iter();
        failed.any(|failure| failure.contender == name)
    };
    let has_failed_twice = |failure: &&Failure| {
        let blocks = blocks.iter();
        let blocks = blocks.filter(|block| failed_in(block, &failure.contender));
        blocks.count() > 1
    };
    // A failure in one block is a row of the report; the contender has figures in all other blocks.
    let repeated = blocks.iter().flat_map(|block| &block.head.failed);
    let failed = plan.failed.iter().chain(repeated.filter(has_failed_twice));
    let mut failed = failed.map(|failure| format!("{} failed", failure.contender));
    let is_optional = |name: &str| {
        let mut contenders = experiment.contenders.iter();
        contenders.any(|contender| contender.name == name && contender.optional)
    };
    let mut absent = plan.absent.iter();
    let absent = absent.find(|absent| !is_optional(&absent.contender));
    failed
        .next()
        .or_else(|| absent.map(|absent| format!("{} was left out", absent.contender)))
}

/// The first claim that was not measured.
fn unmeasured(summary: &Summary) -> Option<String> {
    let mut claims = summary.claims.iter();
    let claim = claims.find(|claim| claim.verdict == Verdict::NotMeasured)?;
    Some(format!(
        "nothing was measured for the claim `{}`",
        claim.text
    ))
}

/// Serves a built-in contender on standard input and output.
pub fn contender(name: &str) -> Result<()> {
    let mut contender = known(name)?;
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    match crate::contender::serve(contender.as_mut(), input, output) {
        // The parent has ended, so no process can read the error.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(LabError::io("pipe")),
    }
}

/// Runs a built-in contender once with `words` as its parameters.
pub fn once(name: &str, words: &[String], out: &mut dyn Write) -> Result<()> {
    let mut contender = known(name)?;
    let fields: Option<Fields> = words
        .iter()
        .map(|word| {
            word.split_once('=')
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
        })
        .collect();
    let fields = fields.ok_or_else(|| LabError::Usage {
        what: "parameters are name=value".to_owned(),
    })?;
    let failed =
        |error: crate::contender::ContenderError| LabError::contender(name, error.to_string());
    contender.load(0, &fields).map_err(failed)?;
    let answer = contender.check(0).map_err(failed)?;
    print(out, &format!("{:016x}\n", answer.content))
}

fn known(name: &str) -> Result<Box<dyn crate::contender::Contender>> {
    by_name(name).ok_or_else(|| LabError::Usage {
        what: format!("no built-in contender `{name}`"),
    })
}

fn print(out: &mut dyn Write, text: &str) -> Result<()> {
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(LabError::io("output"))
}

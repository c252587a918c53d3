//! `weir-lab`: experiments, run and reported. The manual is
//! `docs/guide/lab.md`.
#![forbid(unsafe_code)]

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use weir_lab::alloc::Counting;
use weir_lab::command::{self, Comparing, Format};
use weir_lab::error::Result;
use weir_lab::profile::Wanted;
use weir_lab::runner::Options;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Measure Weir beside its peers, and report how certain the figures are.
#[derive(Parser)]
#[command(
    name = "weir-lab",
    version,
    after_help = "Exit codes: 0 done, 1 error, 2 usage, 3 regression found (compare --gate), 4 machine too noisy to decide, 5 contenders disagree or stall, 130 interrupted (resumable)."
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show the experiments and the built-in contenders.
    List,
    /// Print what lab/peers/install.sh has to build for an experiment, or for all.
    Peers {
        /// Name, alias or file of the experiment.
        experiment: Option<String>,
    },
    /// Start every contender of an experiment and compare their answers.
    Check {
        /// Name, alias or file of the experiment.
        experiment: String,
        #[command(flatten)]
        choice: Choice,
    },
    /// Send the HTTP contenders every vector in every form, and look for those that stall.
    VerifyContenders {
        #[command(flatten)]
        choice: Choice,
    },
    /// Build the missing peers of an experiment, run it, and report.
    Run {
        /// Name, alias or file of the experiment; `all` runs every experiment in turn.
        experiment: Option<String>,
        #[command(flatten)]
        choice: Choice,
        /// Resume an interrupted result set.
        #[arg(long, value_name = "DIR")]
        resume: Option<PathBuf>,
    },
    /// Sample where contenders spend their CPU time: flame graphs and shares. Uses `perf` if it is
    /// permitted.
    Profile {
        /// Name, alias or file of the experiment.
        experiment: String,
        #[command(flatten)]
        choice: Choice,
        /// Only workloads that match this pattern; `*` stands for any text.
        #[arg(long, value_name = "PATTERN")]
        workload: Option<String>,
        /// Duration of each cell.
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
        /// Samples a second of `perf`.
        #[arg(long, value_name = "HZ", default_value_t = 1_999, value_parser = clap::value_parser!(u32).range(1..=9_999))]
        rate: u32,
        /// Add the flame graphs to this result set and regenerate its report.
        #[arg(long, value_name = "DIR")]
        into: Option<PathBuf>,
    },
    /// Regenerate the report of a result set.
    Report {
        /// The result set.
        dir: PathBuf,
    },
    /// Compare two result sets of one experiment, cell by cell.
    Compare {
        /// The result set before.
        old: PathBuf,
        /// The result set after.
        new: PathBuf,
        /// Exit with code 3 if a cell of the first metric shown regressed.
        #[arg(long)]
        gate: bool,
        /// Compare sets of different machines.
        #[arg(long)]
        across: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print one cell: its blocks, its percentiles, a histogram.
    Show {
        /// The result set.
        dir: PathBuf,
        /// CONTENDER@WORKLOAD or CONTENDER@WORKLOAD:METRIC.
        #[arg(long)]
        cell: String,
    },
    /// Print every sample as a flat table.
    Export {
        /// The result set.
        dir: PathBuf,
        /// What to print.
        #[arg(long, value_enum, default_value = "csv")]
        format: Format,
    },
    /// Measure two copies of the same work, which shows the noise of this machine.
    Noise {
        #[command(flatten)]
        choice: Choice,
        /// Make 200 comparisons of a contender with a copy of itself, and count those that find a
        /// difference.
        #[arg(long)]
        false_alarms: bool,
    },
    /// Copy summary, report and compressed samples of a result set.
    Record {
        /// The result set.
        dir: PathBuf,
        /// The directory to write, usually below lab/record.
        to: PathBuf,
    },
    /// Serve a built-in contender on standard input and output.
    #[command(hide = true)]
    Contender {
        /// Its name.
        name: String,
    },
    /// Become a program that is killed when the process that started this one ends.
    #[command(hide = true)]
    Guard {
        /// Id of that process.
        parent: u32,
        /// The program and its words.
        #[arg(last = true, required = true)]
        words: Vec<String>,
    },
    /// Kill what a lab has started, when standard input ends.
    #[command(hide = true)]
    Reap {
        /// Id of the lab's process.
        lab: u32,
    },
    /// Run a built-in contender once.
    #[command(hide = true)]
    Once {
        /// Its name.
        name: String,
        /// Parameters, `name=value`.
        parameters: Vec<String>,
    },
}

#[derive(clap::Args)]
struct Choice {
    /// Only these contenders.
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    only: Vec<String>,
    /// Number of blocks instead of that of the experiment.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    blocks: Option<u16>,
    /// Seed instead of that of the experiment.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run three short blocks, only to check that everything works. Leaves out cells that do not
    /// fit into `quick_s` of the experiment.
    #[arg(long)]
    quick: bool,
    /// Time for the whole command, like 10m: no block is started that would probably
    /// end after it. One block is always measured.
    #[arg(long, value_name = "TIME", value_parser = weir::units::duration)]
    budget: Option<Duration>,
    /// Share of foreign CPU time (0 to 1) above which a block is disturbed,
    /// instead of the experiment's.
    #[arg(long, value_name = "SHARE")]
    foreign_max: Option<f64>,
    /// Address of your own server, for experiments that read one: boundary-http.
    #[arg(long, value_name = "URL", value_parser = site)]
    site: Option<String>,
    /// Accept unoptimised contenders, whose figures mean nothing.
    #[arg(long, hide = true)]
    allow_debug: bool,
}

impl Choice {
    fn options(self) -> Options {
        Options {
            blocks: self.blocks.map(usize::from),
            seed: self.seed,
            quick: self.quick,
            foreign_max: self.foreign_max,
            only: self.only,
            budget: self.budget,
            site: self.site,
            allow_debug: self.allow_debug,
        }
    }
}

/// An address that a contender can get as a parameter.
fn site(text: &str) -> std::result::Result<String, String> {
    let is_http = text.starts_with("http://") || text.starts_with("https://");
    if is_http && !text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Ok(text.to_owned());
    }
    Err("an address begins with http:// or https:// and has no blanks".to_owned())
}

fn main() -> ExitCode {
    match run(Arguments::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-lab: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(verb: Verb) -> Result<()> {
    // Serving must not hold standard output, which it locks itself.
    match verb {
        Verb::Contender { name } => return command::contender(&name),
        Verb::Reap { lab } => {
            weir_lab::child::reap(lab, io::stdin().lock());
            return Ok(());
        }
        Verb::Guard { parent, words } => return weir_lab::child::guard(parent, &words),
        Verb::Once { name, parameters } => {
            return command::once(&name, &parameters, &mut io::stdout());
        }
        _ => {}
    }
    let places = command::places()?;
    let out = &mut io::stdout();
    match verb {
        Verb::List => command::list(&places, out),
        Verb::Peers { experiment } => command::peers(experiment.as_deref(), &places, out),
        Verb::Check { experiment, choice } => {
            command::check(&experiment, &choice.options(), &places, out)
        }
        Verb::VerifyContenders { choice } => {
            weir_lab::verify::contenders(&choice.options(), &places, out)
        }
        Verb::Run {
            experiment,
            choice,
            resume,
        } => command::run(
            experiment.as_deref(),
            resume.as_deref(),
            &choice.options(),
            &places,
            out,
        ),
        Verb::Profile {
            experiment,
            choice,
            workload,
            seconds,
            rate,
            into,
        } => {
            let wanted = Wanted {
                workload,
                time: Duration::from_secs(seconds),
                rate,
                into,
            };
            command::profile(&experiment, &choice.options(), &wanted, &places, out)
        }
        Verb::Report { dir } => command::make_report(&dir, out),
        Verb::Compare {
            old,
            new,
            gate,
            across,
            json,
        } => command::compare(&old, &new, Comparing { gate, across, json }, out),
        Verb::Show { dir, cell } => command::show(&dir, &cell, out),
        Verb::Export { dir, format } => command::export(&dir, format, out),
        Verb::Noise {
            choice,
            false_alarms,
        } => command::noise(&choice.options(), false_alarms, &places, out),
        Verb::Record { dir, to } => command::record(&dir, &to, out),
        Verb::Contender { .. } | Verb::Once { .. } | Verb::Guard { .. } | Verb::Reap { .. } => {
            Ok(())
        }
    }
}

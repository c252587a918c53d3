//! The command line: its grammar, and the dispatch to the commands.
//!
//! Each command accepts the common options after its name. `weir` itself accepts them before the
//! name. This module only dispatches; each command has its own file.

#![allow(clippy::doc_markdown, reason = "they are help texts")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use weir::{Consistency, Durability, IntentionLimits};

use crate::caller::Caller;
use crate::completion;
use crate::credentials::Credentials;
use crate::output::{Format, Style};
use crate::overview;
use crate::report;
use crate::row_fields;
use crate::settings::{self, Flags, Settings};

/// The text that `weir` prints without arguments.
const WELCOME: &str = "\
weir keeps structured messages: an event store in a directory, nothing to install or start.
Write to a topic: the verdict arrives when the record is safe on disk.

Try these:
  weir demo                                  the whole tour on real data, in a minute
  weir put orders '{\"id\":1}' --key 1         write a record; creates the topic if needed
  weir get orders --key 1                    read it back
  weir tail orders                           all records of a topic, in order
  weir import data.ndjson --topic things --key '$.id'
                                             load a file; safe to interrupt and repeat

Where: a directory or a server, by `--at DIR`, `--at weir://HOST`, WEIR_AT or `weir context`;
       else ./weir-data. `weir serve` starts a server.
More:  `weir help` lists all commands, `weir help COMMAND` explains one with examples,
       `weir help E104` explains an error, `weir help exit` the exit codes,
       `weir help guide` lists the guides, `weir man DIR` writes the manual pages.
";

/// An event store in a directory: write, read, follow, import, verify, back up
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    disable_help_subcommand = true,
    max_term_width = 100
)]
#[command(after_help = "`weir COMMAND -h` lists its options; `weir --help` explains the commands.")]
#[command(after_long_help = "Examples:\n  \
    weir put orders '{\"id\":1}' --key 1\n  \
    weir tail orders")]
pub(crate) struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Options of every command that works on a store.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Common options")]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub(crate) struct Common {
    /// Directory, weir://HOST:PORT, weirs:// (TLS) or unix:PATH [else WEIR_AT, context,
    /// ./weir-data]
    #[arg(long, global = true, value_name = "PLACE", hide_short_help = true)]
    at: Option<String>,
    /// Output format; `help` lists the fields
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT")]
    #[arg(hide_short_help = true)]
    output: Option<Format>,
    /// Show these fields only, in this order
    #[arg(
        long,
        global = true,
        value_delimiter = ',',
        value_name = "A,B",
        hide_short_help = true
    )]
    columns: Option<Vec<String>>,
    /// Print no headings
    #[arg(long, global = true, hide_short_help = true)]
    no_headers: bool,
    /// Print data and errors only
    #[arg(short, long, global = true, hide_short_help = true)]
    quiet: bool,
    /// Explain each step
    #[arg(short, long, global = true, hide_short_help = true)]
    verbose: bool,
    /// When a write is acknowledged: group, each, interval:TIME or memory [default: group]
    #[arg(long, global = true, value_parser = settings::durability, value_name = "LEVEL")]
    #[arg(hide_short_help = true)]
    durability: Option<Durability>,
    /// Maximum size of a value [default: 1MiB, at most 64MiB]
    #[arg(long, global = true, value_parser = settings::value_bytes_max, value_name = "SIZE")]
    #[arg(hide_short_help = true)]
    value_max: Option<usize>,
    /// Maximum wait for another process that has the store open, or for a server [default: 2s]
    #[arg(long, global = true, value_parser = settings::duration, value_name = "TIME")]
    #[arg(hide_short_help = true)]
    lock_wait: Option<Duration>,
    /// Consistency of reads in a cluster: local, leader or linear [default: linear for keys,
    /// else local]
    #[arg(long, global = true, value_parser = settings::consistency, value_name = "LEVEL")]
    #[arg(hide_short_help = true)]
    consistency: Option<Consistency>,
    /// Create the store even in a directory that has other files
    #[arg(long, global = true, hide_short_help = true)]
    create: bool,
    /// Configuration file [else ./weir.toml, then the files of the user and the system]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    config: Option<PathBuf>,
    #[command(flatten)]
    credentials: Credentials,
}

/// The arguments of a command with the common options.
#[derive(Debug, Args)]
pub(crate) struct With<T: Args> {
    #[command(flatten)]
    own: T,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a record, or one for each line of input
    Put(With<crate::put::PutArgs>),
    /// Read one record by offset or key
    Get(With<crate::get::GetArgs>),
    /// Read records in order, and follow new ones
    Tail(With<crate::tail::TailArgs>),
    /// Filter, order and aggregate files and topics; items are printed byte for byte
    Query(Box<With<crate::query::QueryArgs>>),
    /// Remove a key
    Delete(With<crate::delete::DeleteArgs>),
    /// Write several records to a topic in one transaction
    Txn(With<crate::txn::TxnArgs>),
    /// Create, list, show, change and remove topics
    Topic(With<crate::topic::TopicArgs>),
    /// Share a topic between readers: work queues and durable positions
    Group(With<crate::group::GroupArgs>),
    /// Check, test and install the programs that validate the writes of a topic
    Program(With<crate::program::ProgramArgs>),
    /// Show the main features on real data, in a minute
    Demo(With<crate::demo::DemoArgs>),
    /// Write many values from a file, each exactly once, even after interruptions
    Import(With<crate::import::ImportArgs>),
    /// Print the records of a topic as JSON that `weir import` reads
    Export(With<crate::export::ExportArgs>),
    /// Measure how fast the store responds: writes, reads, listeners
    Bench(With<crate::bench::BenchArgs>),
    /// Serve the store over HTTP and the native protocol
    Serve(Box<With<crate::serve::ServeArgs>>),
    /// Run several nodes that replicate one store, so that one of them may fail
    Cluster(With<crate::cluster::ClusterArgs>),
    /// Show the state of a store: durability, disk, log, sessions
    Status(With<crate::status::StatusArgs>),
    /// Check whether this machine and directory suit a store
    Doctor(With<crate::doctor::DoctorArgs>),
    /// Check every byte of a store that no process has open
    Verify(With<crate::verify::VerifyArgs>),
    /// Copy a store into a directory
    Backup(With<crate::backup::BackupArgs>),
    /// Create a store from a backup, and check it
    Restore(With<crate::restore::RestoreArgs>),
    /// Create a store from the readable part of a damaged one
    Repair(With<crate::repair::RepairArgs>),
    /// Remove replaced records and the log that is no longer needed
    Compact(With<crate::compact::CompactArgs>),
    /// Create, show and check the configuration file
    Config(With<crate::config::ConfigArgs>),
    /// Name directories and servers, and switch between them
    Context(With<crate::context::ContextArgs>),
    /// Create, list and revoke the tokens of clients of a server
    Token(With<crate::token::TokenArgs>),
    /// Create a certificate authority; issue certificates for servers, clients and nodes
    Cert(With<crate::cert::CertArgs>),
    /// Show PSYC packets and values, byte by byte
    Psyc(crate::psyc::PsycArgs),
    /// Run experiments that measure Weir and its peers (the program weir-lab)
    Lab(crate::lab::LabArgs),
    /// Keep a replica of a Jira site: pull, list, show and search it without waiting
    Jira(With<crate::jira::JiraArgs>),
    /// Run a simulator of Jira, for tests and demonstrations
    JiraSim(With<crate::jira_sim::JiraSimArgs>),
    /// Run a server of notes, to measure HTTP clients
    NotesSim(With<crate::notes_sim::NotesSimArgs>),
    /// Print a completion script for a shell
    Completion(crate::completion::CompletionArgs),
    /// Write the manual pages
    Man(crate::man::ManArgs),
    /// Print version and build
    Version(With<crate::version::VersionArgs>),
    /// Explain a command, an error code or the exit codes; print a guide
    Help(crate::help::HelpArgs),
}

impl Cli {
    /// Reads the command line. Prints help and errors, then exits.
    pub(crate) fn read() -> Self {
        let mut grammar = Self::build();
        if std::env::args_os().any(|word| word == "-h") {
            grammar = grammar.max_term_width(SHORT_COLUMNS);
        }
        let matches = grammar.try_get_matches();
        let cli = matches.and_then(|matches| Self::from_arg_matches(&matches));
        cli.unwrap_or_else(|mut error| {
            if error.kind() == ErrorKind::MissingRequiredArgument {
                let words: Vec<OsString> = std::env::args_os().collect();
                let (path, common) = Self::read_loosely(&words);
                if common.output == Some(Format::Help)
                    && let Some(fields) = row_fields::of_command(&path)
                {
                    let shown = common.style().explain(fields);
                    let code =
                        shown.map_or_else(|error| report::print(&error), |()| ExitCode::SUCCESS);
                    report::flush();
                    std::process::exit(i32::from(code != ExitCode::SUCCESS));
                }
            }
            Self::suggest(&mut error);
            error.exit()
        })
    }

    /// Adds the similar command to the error for an unknown one. clap compares words in a way that
    /// finds no short ones, such as `get` for `gte`.
    fn suggest(error: &mut clap::Error) {
        let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
            return;
        };
        if error.get(ContextKind::SuggestedSubcommand).is_some() {
            return;
        }
        let words: Vec<OsString> = std::env::args_os().collect();
        let (path, _) = Self::read_loosely(&words);
        let grammar = Self::build();
        let mut at = &grammar;
        for name in path.split_whitespace() {
            let Some(next) = at.find_subcommand(name) else {
                return;
            };
            at = next;
        }
        let mut commands = at.get_subcommands().map(clap::Command::get_name);
        let Some(name) = commands.find(|name| crate::help::is_similar(word, name)) else {
            return;
        };
        let names = ContextValue::Strings(vec![name.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, names);
    }

    /// Returns the command names in these words, joined by blanks, and the common options. Required
    /// arguments may be missing.
    fn read_loosely(words: &[OsString]) -> (String, Common) {
        fn loose(command: clap::Command) -> clap::Command {
            let command = command.ignore_errors(true).subcommand_required(false);
            command
                .mut_args(|arg| arg.required(false))
                .mut_subcommands(loose)
        }
        let Ok(matches) = loose(Self::build()).try_get_matches_from(words) else {
            return (String::new(), Common::default());
        };
        let read = |matches: &ArgMatches| Common::from_arg_matches(matches).unwrap_or_default();
        let (mut path, mut common, mut at) = (Vec::new(), read(&matches), &matches);
        while let Some((name, own)) = at.subcommand() {
            (common, at) = (read(own).or(common), own);
            path.push(name);
        }
        (path.join(" "), common)
    }

    /// The grammar, for help, completion and manual pages.
    pub(crate) fn build() -> clap::Command {
        // Each command also accepts these options after its name, so most of them are hidden here.
        let command = Self::command().mut_args(|arg| {
            let hidden = !SHORT.contains(&arg.get_id().as_str());
            arg.global(false).hide_short_help(hidden)
        });
        let command = completion::with_topics(reflowed(command), |words| {
            Self::read_loosely(words).1.quick_caller()
        });
        overview::grouped(command)
    }
}

/// Maximum width of the short help in columns: that of a small terminal, so that no line wraps.
const SHORT_COLUMNS: usize = 80;

/// The common options in the short help of `weir`. Commands list them in the long help only.
const SHORT: [&str; 2] = ["at", "output"];

/// A line of help with at least this many characters continues in the next line of its paragraph.
const WRAPPED_CHARS: usize = 70;

/// Joins the lines of each paragraph in the help of the command and its subcommands. clap wraps a
/// paragraph to the width of the terminal, but keeps the line breaks in it.
fn reflowed(command: clap::Command) -> clap::Command {
    let help = command.get_after_long_help().map(ToString::to_string);
    let command = match help {
        Some(help) => command.after_long_help(joined(&help)),
        None => command,
    };
    command.mut_subcommands(reflowed)
}

/// Joins the lines of each paragraph. Indented lines, and short lines before another line, are not
/// part of a paragraph.
fn joined(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = "";
    for (at, line) in text.lines().enumerate() {
        let continues = before.chars().count() >= WRAPPED_CHARS && !before.starts_with(' ');
        if at > 0 {
            let is_text = !line.is_empty() && !line.starts_with([' ', '-']);
            out.push(if continues && is_text { ' ' } else { '\n' });
        }
        out.push_str(line);
        before = line;
    }
    out
}

impl Common {
    /// Fills the options that are not set from `first`.
    fn or(self, first: Self) -> Self {
        Self {
            at: self.at.or(first.at),
            output: self.output.or(first.output),
            columns: self.columns.or(first.columns),
            no_headers: self.no_headers || first.no_headers,
            quiet: self.quiet || first.quiet,
            verbose: self.verbose || first.verbose,
            durability: self.durability.or(first.durability),
            value_max: self.value_max.or(first.value_max),
            lock_wait: self.lock_wait.or(first.lock_wait),
            consistency: self.consistency.or(first.consistency),
            create: self.create || first.create,
            config: self.config.or(first.config),
            credentials: self.credentials.or(first.credentials),
        }
    }

    /// The style of the options alone, without configuration files.
    fn style(self) -> Style {
        Style {
            format: self.output,
            columns: self.columns,
            no_headers: self.no_headers,
        }
    }

    /// Resolves the options for a call that must be quick and prints no messages.
    fn quick_caller(mut self) -> anyhow::Result<Caller> {
        (self.quiet, self.verbose) = (true, false);
        self.lock_wait = Some(completion::WAIT);
        self.caller()
    }

    fn caller(self) -> anyhow::Result<Caller> {
        let settings = Settings::resolve(&Flags {
            config: self.config,
            at: self.at,
            output: self.output,
            durability: self.durability,
            credentials: self.credentials.clone(),
        })?;
        let mut limits = IntentionLimits::default();
        if let Some(bytes) = self.value_max {
            limits.value_bytes_max = bytes;
        }
        Ok(Caller {
            style: Style {
                format: settings.output.value,
                columns: self.columns,
                no_headers: self.no_headers,
            },
            settings,
            credentials: self.credentials,
            quiet: self.quiet,
            verbose: self.verbose,
            lock_wait: self.lock_wait.unwrap_or(Duration::from_secs(2)),
            create: self.create,
            consistency: self.consistency,
            limits,
            tool: false,
        })
    }
}

impl<T: Args> With<T> {
    fn split(self, first: Common) -> anyhow::Result<(T, Caller)> {
        Ok((self.own, self.common.or(first).caller()?))
    }
}

/// Runs the parsed command.
pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let first = cli.common;
    let Some(command) = cli.command else {
        report::stdout(std::io::Write::write_all(
            &mut std::io::stdout(),
            WELCOME.as_bytes(),
        ))?;
        return Ok(ExitCode::SUCCESS);
    };
    /// Separates the common options, and calls the command.
    macro_rules! call {
        ($module:ident, $with:expr) => {{
            let (args, caller) = $with.split(first)?;
            crate::$module::run(&caller, &args)
        }};
    }
    /// Like `call`, for the store tools, which have separate exit codes.
    macro_rules! tool {
        ($module:ident, $with:expr) => {{
            let (args, mut caller) = $with.split(first)?;
            caller.tool = true;
            crate::$module::run(&caller, &args)
        }};
    }
    match command {
        Command::Put(with) => call!(put, with),
        Command::Get(with) => call!(get, with),
        Command::Tail(with) => call!(tail, with),
        Command::Query(with) => call!(query, with),
        Command::Delete(with) => call!(delete, with),
        Command::Txn(with) => call!(txn, with),
        Command::Topic(with) => call!(topic, with),
        Command::Group(with) => call!(group, with),
        Command::Program(with) => call!(program, with),
        Command::Demo(with) => call!(demo, with),
        Command::Import(with) => call!(import, with),
        Command::Export(with) => call!(export, with),
        Command::Bench(with) => call!(bench, with),
        Command::Serve(with) => tool!(serve, with),
        Command::Cluster(with) => tool!(cluster, with),
        Command::Status(with) => call!(status, with),
        Command::Doctor(with) => call!(doctor, with),
        Command::Verify(with) => tool!(verify, with),
        Command::Backup(with) => tool!(backup, with),
        Command::Restore(with) => tool!(restore, with),
        Command::Repair(with) => tool!(repair, with),
        Command::Compact(with) => call!(compact, with),
        Command::Config(with) => call!(config, with),
        Command::Token(with) => call!(token, with),
        Command::Cert(with) => call!(cert, with),
        Command::Psyc(args) => crate::psyc::run(&args),
        Command::Jira(with) => call!(jira, with),
        Command::JiraSim(with) => call!(jira_sim, with),
        Command::NotesSim(with) => call!(notes_sim, with),
        Command::Lab(args) => crate::lab::run(&args),
        Command::Man(args) => crate::man::run(&args, Cli::build()),
        Command::Context(with) => call!(context, with),
        Command::Completion(args) => crate::completion::run(&args),
        Command::Version(with) => call!(version, with),
        Command::Help(args) => crate::help::run(&args, Cli::build()),
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "a test may fail by panicking")]
mod tests {
    use super::{Cli, overview};

    /// Lines and columns of the screen that must fit the `-h` of `weir` and of each command.
    const SCREEN: (usize, usize) = (24, super::SHORT_COLUMNS);

    #[test]
    fn the_short_help_of_every_command_is_one_screen() {
        let mut too_long = Vec::new();
        let mut grammar = Cli::build().max_term_width(SCREEN.1);
        grammar.build();
        let mut left = vec![grammar];
        let mut seen = 0;
        while let Some(command) = left.pop() {
            seen += 1;
            left.extend(command.get_subcommands().cloned());
            let help = command.clone().render_help().to_string();
            let widest = help.lines().map(|line| line.chars().count()).max();
            let size = (help.lines().count(), widest.unwrap_or_default());
            if size.0 > SCREEN.0 || size.1 > SCREEN.1 {
                too_long.push(format!("{size:?}\n{help}"));
            }
        }
        assert!(seen > 90, "{seen} commands");
        assert!(too_long.is_empty(), "{}", too_long.join("\n"));
    }

    #[test]
    fn only_the_long_help_of_a_command_lists_the_common_options() {
        let mut grammar = Cli::build();
        grammar.build();
        let mut left: Vec<clap::Command> = grammar.get_subcommands().cloned().collect();
        while let Some(mut command) = left.pop() {
            left.extend(command.get_subcommands().cloned());
            let short = command.render_help().to_string();
            let long = command.render_long_help().to_string();
            let is_common = command
                .get_arguments()
                .any(|arg| arg.get_id() == "lock_wait");
            assert!(!short.contains("--lock-wait"), "{short}");
            assert_eq!(long.contains("--lock-wait"), is_common, "{long}");
        }
    }

    /// Commands with required arguments that print no rows.
    const NO_ROWS: &[&str] = &[
        "cluster add",
        "cluster join",
        "cluster rm",
        "cluster transfer",
        "context create",
        "context rm",
        "context set",
        "jira project create",
        "jira project rm",
        "jira project set",
        "jira show",
        "program new",
    ];

    #[test]
    fn the_fields_of_every_command_are_known_without_its_arguments() {
        let mut grammar = Cli::build();
        grammar.build();
        let (mut left, mut without) = (vec![(String::new(), grammar)], Vec::new());
        while let Some((path, command)) = left.pop() {
            let subs = command.get_subcommands().cloned();
            left.extend(subs.map(|sub| (format!("{path} {}", sub.get_name()), sub)));
            let has = |test: fn(&clap::Arg) -> bool| command.get_arguments().any(test);
            let needs = has(clap::Arg::is_required_set) && has(|arg| arg.get_id() == "output");
            let path = path.trim_start();
            if needs && super::row_fields::of_command(path).is_none() {
                without.push(path.to_owned());
            }
        }
        without.sort_unstable();
        assert_eq!(without, NO_ROWS);
    }

    #[test]
    fn each_command_is_in_one_group_of_the_help() {
        let grammar = Cli::build();
        let jira = grammar.find_subcommand("jira");
        let jira = jira.expect("weir has the command jira");
        for (command, of_jira) in [(&grammar, false), (jira, true)] {
            let mut all: Vec<&str> = command
                .get_subcommands()
                .map(clap::Command::get_name)
                .collect();
            let mut grouped = overview::names(of_jira);
            all.sort_unstable();
            grouped.sort_unstable();
            assert_eq!(grouped, all);
        }
    }
}

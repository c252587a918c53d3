//! `weir jira-sim`: a server that answers like Jira Cloud, or like Jira Data Center.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use weir::ErrorCode;
use weir_jira::sim::{SIM_PORT, SimOptions, Simulator};

use crate::caller::Caller;
use crate::report::{Failure, note};

#[derive(Debug, Args)]
#[command(after_long_help = "\
It listens at 127.0.0.1 only, keeps its state in memory, and makes the same data for the same seed.
`POST /_sim/faults` adds a fault, `POST /_sim/edit` is a change by somebody else, `GET /_sim/log` lists
the requests; docs/guide/jira.md has all of them. Ctrl-C ends it.

Examples:
  weir jira-sim --port 0 --issues 10 --check
  weir jira-sim --port 0 --mode dc --check
  weir jira-sim --port 0 --email me@example.com --token-file /dev/null --check")]
pub(crate) struct JiraSimArgs {
    /// Port at 127.0.0.1; 0: one that is free
    #[arg(long, default_value_t = SIM_PORT)]
    port: u16,
    /// Seed of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of projects
    #[arg(long, default_value_t = 2)]
    projects: usize,
    /// Number of issues
    #[arg(long, default_value_t = 100)]
    issues: usize,
    /// Comments of an issue on average
    #[arg(long, default_value_t = 2)]
    comments: usize,
    /// Number of users
    #[arg(long, default_value_t = 5)]
    users: usize,
    /// Milliseconds by which the search index is late
    #[arg(long, default_value_t = 0, value_name = "MS")]
    search_lag: i64,
    /// Most issues of a page
    #[arg(long, default_value_t = 100)]
    page_cap: usize,
    /// Milliseconds before each answer
    #[arg(long, default_value_t = 0, value_name = "MS")]
    latency: u64,
    /// Which Jira it answers like; Data Center can only be read
    #[arg(long, value_enum, default_value_t = Mode::Cloud)]
    mode: Mode,
    /// E-mail address of the account that is asked for; needs --token-file. With `--mode dc` it is left
    /// out: the token is a personal access token
    #[arg(long, requires = "token_file", value_name = "EMAIL")]
    email: Option<String>,
    /// Make the data, listen, and end at once
    #[arg(long)]
    check: bool,
}

/// A kind of Jira.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Jira Cloud
    Cloud,
    /// Jira Data Center
    Dc,
}

/// Carries out `weir jira-sim`.
pub(crate) fn run(caller: &Caller, args: &JiraSimArgs) -> anyhow::Result<ExitCode> {
    let data_center = args.mode == Mode::Dc;
    let mut auth = None;
    if args.email.is_some() || (data_center && caller.credentials.token_file.is_some()) {
        let token = caller.credentials.token()?.unwrap_or_default();
        auth = Some((args.email.clone().unwrap_or_default(), token));
    }
    let options = SimOptions {
        port: args.port,
        seed: args.seed,
        projects: args.projects,
        issues: args.issues,
        comments: args.comments,
        users: args.users,
        search_lag_ms: args.search_lag,
        page_cap: args.page_cap,
        latency_ms: args.latency,
        auth,
        data_center,
        ..SimOptions::default()
    };
    let sim = Simulator::start(options).map_err(|error| {
        Failure::new(
            ErrorCode::AddressTaken,
            format!("cannot listen at port {}", args.port),
        )
        .because(error)
        .advise("choose another port: `--port 0` takes one that is free")
    })?;
    note(caller.quiet, &format!("a simulated Jira at {}", sim.url()));
    if !args.check {
        sim.wait();
    }
    Ok(ExitCode::SUCCESS)
}

//! `weir jira-sim`: a simulator of Jira Cloud or Jira Data Center.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use weir::ErrorCode;
use weir_jira::access::Site;
use weir_jira::contract::{self, Outcome};
use weir_jira::sim::{SIM_PORT, SimOptions, Simulator, TlsIdentity};

use crate::caller::Caller;
use crate::jira::{failed, open_directory};
use crate::output::{Cell, Field, Shape, field};
use crate::place::Access;
use crate::report::{Failure, FailureContext, note};

#[derive(Debug, Args)]
#[command(after_long_help = "\
The simulator listens on 127.0.0.1 only, and generates equal data from equal seeds. The data is in
memory, or in topics with --store. `POST /_sim/faults` adds a fault, `POST /_sim/edit` acts as another
user, and `GET /_sim/log` lists the requests; `weir help guide jira` describes all of them. The e-mail
addresses member@example.com and outsider@example.com select accounts with fewer rights. Ctrl-C ends
the simulator.

With --against, no simulator runs. The command checks that a site behaves as Weir expects, and prints
a line for each expectation. It only reads the site, unless --write names a project: there it creates,
changes and deletes one issue. If an expectation is broken, the exit code is not 0.

Examples:
  weir jira-sim --port 0 --issues 10 --check
  weir jira-sim --port 0 --mode dc --check
  weir jira-sim --port 0 --email me@example.com --token-file /dev/null --check")]
pub(crate) struct JiraSimArgs {
    /// Port on 127.0.0.1; 0: any free port
    #[arg(long, default_value_t = SIM_PORT)]
    port: u16,
    /// Seed of the generated data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of projects
    #[arg(long, default_value_t = 2)]
    projects: usize,
    /// Number of issues
    #[arg(long, default_value_t = 100)]
    issues: usize,
    /// Average number of comments per issue
    #[arg(long, default_value_t = 2, hide_short_help = true)]
    comments: usize,
    /// Average number of worklogs per issue
    #[arg(long, default_value_t = 0, hide_short_help = true)]
    worklogs: usize,
    /// Number of users, at least 3
    #[arg(long, default_value_t = 5, hide_short_help = true)]
    users: usize,
    /// Generate also subtasks, links, moved issues, and long and nested texts
    #[arg(long, hide_short_help = true)]
    varied: bool,
    /// Time until the search index shows a change, in milliseconds
    #[arg(long, default_value_t = 0, value_name = "MS", hide_short_help = true)]
    search_lag: i64,
    /// Maximum number of issues in a page
    #[arg(long, default_value_t = 100, hide_short_help = true)]
    page_cap: usize,
    /// Delay of each response, in milliseconds; with JITTER, up to this much more at random
    #[arg(long, default_value = "0", value_parser = latency, value_name = "MS[:JITTER]",
        hide_short_help = true)]
    latency: (u64, u64),
    /// Additional delay of the first response on a connection, in milliseconds
    #[arg(long, default_value_t = 0, value_name = "MS", hide_short_help = true)]
    connect_latency: u64,
    /// Maximum requests per second, and burst; more requests get 429 [else no limit]
    #[arg(long, value_parser = rate, value_name = "RATE:BURST", hide_short_help = true)]
    rate: Option<(u32, u32)>,
    /// Clock of the site; a virtual clock only advances on request
    #[arg(long, value_enum, default_value_t = Clock::Real, hide_short_help = true)]
    clock: Clock,
    /// Time zone of the account, for times in JQL: a name such as Europe/Berlin, or an offset such
    /// as +05:30
    #[arg(long, default_value = "Etc/UTC", value_parser = zone, value_name = "ZONE",
        allow_hyphen_values = true, hide_short_help = true)]
    timezone: String,
    /// Kind of Jira to simulate; Data Center is read-only
    #[arg(long, value_enum, default_value_t = Mode::Cloud)]
    mode: Mode,
    /// E-mail address that requests must use, with the token of --token-file [else no check]
    ///
    /// With `--mode dc`, omit it: the token of --token-file is a personal access token.
    #[arg(
        long,
        requires = "token_file",
        value_name = "EMAIL",
        hide_short_help = true
    )]
    email: Option<String>,
    /// Respond over TLS, with a new certificate for 127.0.0.1 and localhost, which is written to
    /// FILE
    ///
    /// Clients must trust it: `SSL_CERT_FILE=FILE weir jira login URL`.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    tls: Option<PathBuf>,
    /// Store the data in topics of the store in DIR; a later run continues with it [else in memory]
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    store: Option<PathBuf>,
    /// Generate the data, listen, then end at once
    #[arg(long)]
    check: bool,
    /// Check that the site at URL behaves as Weir expects; run no simulator
    #[arg(long, value_name = "URL", conflicts_with = "check")]
    against: Option<String>,
    /// Key of the project whose issues --against reads [else the first project]
    #[arg(long, requires = "against", value_name = "KEY")]
    read: Option<String>,
    /// Key of a project in which --against creates, changes and deletes an issue
    #[arg(
        long,
        requires = "against",
        conflicts_with = "read",
        value_name = "KEY"
    )]
    write: Option<String>,
}

/// Checks the name of a time zone, or its offset, `+05:30`. Returns the name.
fn zone(text: &str) -> Result<String, String> {
    let name = if text.starts_with(['+', '-']) {
        format!("GMT{text}")
    } else {
        text.to_owned()
    };
    match weir_jira::time::zone(&name) {
        Some(_) => Ok(name),
        None => {
            Err("it is neither a name such as Europe/Berlin nor an offset such as +05:30".into())
        }
    }
}

/// Parses `RATE:BURST`.
fn rate(text: &str) -> Result<(u32, u32), String> {
    let (rate, burst) = text.split_once(':').ok_or("it has no `:`")?;
    let number = |text: &str| match text.parse::<u32>() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{text:?} is not a number of at least 1")),
    };
    Ok((number(rate)?, number(burst)?))
}

/// Parses `MS[:JITTER]`.
fn latency(text: &str) -> Result<(u64, u64), String> {
    let (ms, jitter) = text.split_once(':').unwrap_or((text, "0"));
    let number = |text: &str| {
        let number = text.parse::<u64>();
        number.map_err(|_| format!("{text:?} is not a number of milliseconds"))
    };
    Ok((number(ms)?, number(jitter)?))
}

/// Fields of a check.
const FIELDS: &[Field] = &[
    field("expectation", "text", "what Weir expects of the site"),
    field("outcome", "text", "kept, broken or skipped"),
    field(
        "detail",
        "text",
        "why the expectation is broken or was skipped",
    ),
];

/// A kind of Jira.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Jira Cloud
    Cloud,
    /// Jira Data Center
    Dc,
}

/// A clock of the simulated site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Clock {
    /// The time of this machine
    Real,
    /// From 2024-11-28 13:20 UTC, advanced only by `POST /_sim/clock`
    Virtual,
}

/// Runs `weir jira-sim --against`.
fn check(caller: &Caller, args: &JiraSimArgs, url: &str) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::List, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let what = format!("cannot check {url}");
    let url = url.trim_end_matches('/').to_owned();
    let mut site = Site {
        api_url: url.clone(),
        site_url: url,
        email: args.email.clone().unwrap_or_default(),
        ..Site::default()
    };
    let token = caller.credentials.token()?;
    let found = site.detect(token.as_deref()).and_then(|()| {
        let project = args.write.as_deref().or(args.read.as_deref());
        contract::check(
            &site.client(token.as_deref())?,
            project,
            args.write.is_some(),
        )
    });
    let found = found.map_err(|error| failed(&what, &error))?;
    let mut broken = 0;
    for finding in &found {
        let (outcome, detail) = match &finding.outcome {
            Outcome::Passed => ("kept", ""),
            Outcome::Failed(why) => ("broken", why.as_str()),
            Outcome::Skipped(why) => ("skipped", why.as_str()),
        };
        broken += usize::from(outcome == "broken");
        out.row(&[
            Cell::Text(Cow::Borrowed(finding.expectation)),
            Cell::Text(Cow::Borrowed(outcome)),
            Cell::Text(Cow::Borrowed(detail)),
        ])?;
    }
    out.finish()?;
    if broken > 0 {
        let text = format!("{broken} of {} expectations do not hold", found.len());
        return Err(Failure::new(ErrorCode::Protocol, what).because(text).into());
    }
    Ok(ExitCode::SUCCESS)
}

/// Creates a certificate for this machine, and writes it to a file.
pub(crate) fn identity(file: &Path) -> anyhow::Result<TlsIdentity> {
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let new = rcgen::generate_simple_self_signed(names)?;
    let what = || format!("cannot write the certificate to {}", file.display());
    std::fs::write(file, new.cert.pem()).failed(what)?;
    Ok(TlsIdentity {
        certificate: new.cert.der().to_vec(),
        key: new.signing_key.serialize_der(),
    })
}

/// Runs `weir jira-sim`.
pub(crate) fn run(caller: &Caller, args: &JiraSimArgs) -> anyhow::Result<ExitCode> {
    if let Some(url) = &args.against {
        return check(caller, args, url);
    }
    let data_center = args.mode == Mode::Dc;
    let mut auth = None;
    if args.email.is_some() || (data_center && caller.credentials.token_file.is_some()) {
        let token = caller.credentials.token()?.unwrap_or_default();
        auth = Some((args.email.clone().unwrap_or_default(), token));
    }
    let store = args.store.as_deref();
    let store = store.map(|at| open_directory(caller, at, Access::Write));
    let options = SimOptions {
        tls: args.tls.as_deref().map(identity).transpose()?,
        port: args.port,
        seed: args.seed,
        projects: args.projects,
        issues: args.issues,
        comments: args.comments,
        worklogs: args.worklogs,
        users: args.users,
        varied: args.varied,
        search_lag_ms: args.search_lag,
        page_cap: args.page_cap,
        virtual_clock: args.clock == Clock::Virtual,
        latency_ms: args.latency.0,
        latency_jitter_ms: args.latency.1,
        connect_latency_ms: args.connect_latency,
        rate: args.rate,
        time_zone: args.timezone.clone(),
        auth,
        data_center,
        store: store.transpose()?,
        ..SimOptions::default()
    };
    let sim = Simulator::start(options).map_err(|error| {
        if error.kind() == io::ErrorKind::Other {
            return Failure::new(ErrorCode::Io, "cannot use the store").because(error);
        }
        Failure::new(
            ErrorCode::AddressTaken,
            format!("cannot listen at port {}", args.port),
        )
        .because(error)
        .advise("choose another port: `--port 0` selects a free port")
    })?;
    note(caller.quiet, &format!("a simulated Jira at {}", sim.url()));
    if !args.check {
        sim.wait();
    }
    Ok(ExitCode::SUCCESS)
}

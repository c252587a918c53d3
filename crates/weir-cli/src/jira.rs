//! `weir jira`: keeps a replica of a Jira site and reads it without a request.
//!
//! Invariants:
//! - `list`, `show` and `search` send no request.
//! - A token is never printed.

mod read;
mod site;
mod sync;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use weir::{ErrorCode, Weir};
use weir_jira::JiraError;
use weir_jira::access::Site;
use weir_jira::client::Client;
use weir_jira::replica::Replica;

use crate::caller::Caller;
use crate::place::{self, Access, PROGRAM, Where};
use crate::progress::Progress;
use crate::report::{Failure, note};

/// Largest value of a replica: issues can have megabytes of text.
const VALUE_BYTES_MAX: usize = 64 << 20;

#[derive(Debug, Args)]
#[command(after_long_help = "\
The replica lies in topics `jira.SITE.…` of the store: every other command reads them too. Only
login, pull and watch ask the site; list, show and search never do.")]
pub(crate) struct JiraArgs {
    /// Name of the site [else the only one]
    #[arg(long, global = true, value_name = "NAME")]
    site: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Keep the address and the token of a site, and test each right that is needed
    Login(site::LoginArgs),
    /// Bring what changed at the site into the replica
    Pull(sync::PullArgs),
    /// Pull again and again until Ctrl-C
    Watch(sync::WatchArgs),
    /// List issues of the replica, all or by a JQL query
    List(read::ListArgs),
    /// Show an issue of the replica with its comments
    Show(read::ShowArgs),
    /// Find words in summaries, descriptions and comments of the replica
    Search(read::SearchArgs),
}

/// Carries out `weir jira`.
pub(crate) fn run(caller: &Caller, args: &JiraArgs) -> anyhow::Result<ExitCode> {
    let named = args.site.as_deref();
    match &args.verb {
        Verb::Login(own) => site::login(caller, named, own),
        Verb::Pull(own) => sync::pull(caller, named, own),
        Verb::Watch(own) => sync::watch(caller, named, own),
        Verb::List(own) => read::list(caller, named, own),
        Verb::Show(own) => read::show(caller, named, own),
        Verb::Search(own) => read::search(caller, named, own),
    }
}

/// Milliseconds since 1970-01-01 UTC.
fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// The folder of settings and tokens of sites.
fn folder() -> anyhow::Result<PathBuf> {
    let home = crate::contexts::home();
    let home = home.ok_or_else(|| {
        Failure::new(ErrorCode::BadOption, "cannot find the settings of sites")
            .because("neither XDG_CONFIG_HOME nor HOME is set")
    })?;
    Ok(home.join("jira"))
}

/// The name of the site of the call, with its settings.
fn chosen(named: Option<&str>) -> anyhow::Result<(String, Site)> {
    let folder = folder()?;
    let name = if let Some(name) = named {
        name.to_owned()
    } else {
        let mut known = Site::names(&folder);
        match known.len() {
            1 => known.remove(0),
            0 => {
                let failure = Failure::new(ErrorCode::BadOption, "no site is known");
                return Err(failure.advise("run `weir jira login URL` first").into());
            }
            _ => {
                let failure = Failure::new(ErrorCode::BadOption, "there is more than one site");
                let advice = format!("choose with --site: {}", known.join(", "));
                return Err(failure.advise(advice).into());
            }
        }
    };
    let site = Site::load(&folder, &name);
    let site = site.map_err(|error| failed(&format!("cannot use the site {name}"), &error))?;
    Ok((name, site))
}

/// The replica of the site of the call.
fn replica(caller: &Caller, access: Access, name: &str) -> anyhow::Result<Replica> {
    Ok(Replica::new(open(caller, access)?, name))
}

fn open(caller: &Caller, access: Access) -> anyhow::Result<Weir> {
    let Where::Directory(at) = place::place(caller)? else {
        return place::open(caller, access);
    };
    let (at, progress) = (Path::new(at), Progress::default());
    let wait = caller.lock_wait;
    place::open_at(
        caller,
        at,
        access,
        PROGRAM,
        wait,
        true,
        &progress,
        |options| {
            options.limits.value_bytes_max = VALUE_BYTES_MAX;
        },
    )
}

/// A client of a site, with its token. Warns of a token that ends soon.
fn client(caller: &Caller, name: &str, site: &Site) -> anyhow::Result<Client> {
    let token = site.token(&folder()?, name);
    let token = token.map_err(|error| failed("cannot read the token", &error))?;
    match site.expires_within(now_ms()) {
        Some(days) if days < 0 => note(false, &format!("warning: the token of {name} has expired")),
        Some(days) => {
            let text = format!("the token of {name} expires in {days} days; make a new one");
            note(caller.quiet, &format!("warning: {text}"));
        }
        None => {}
    }
    let login = token.as_deref().map(|token| (site.email.as_str(), token));
    Ok(Client::new(&site.api_url, login))
}

/// The failure of a call of the library.
fn failed(what: &str, error: &JiraError) -> Failure {
    let code = match error {
        JiraError::Store(error) => return Failure::weir(what, error),
        JiraError::Transport { .. } => ErrorCode::Unreachable,
        JiraError::Unauthenticated | JiraError::Captcha => ErrorCode::Unauthenticated,
        JiraError::UnknownIssue(_) => ErrorCode::KeyAbsent,
        JiraError::Busy => ErrorCode::Busy,
        JiraError::Refused(code) => *code,
        JiraError::File { .. } => ErrorCode::Io,
        JiraError::Record(_) => ErrorCode::NotJson,
        JiraError::Status { status: 429, .. } => ErrorCode::Rate,
        JiraError::Status { status: 403, .. } => ErrorCode::Forbidden,
        JiraError::Status { .. } | JiraError::Garbage { .. } | JiraError::Paging(_) => {
            ErrorCode::Protocol
        }
        JiraError::TooManyGone { .. } => ErrorCode::Rejected,
        _ => ErrorCode::BadRequest,
    };
    Failure::new(code, what).because(error)
}

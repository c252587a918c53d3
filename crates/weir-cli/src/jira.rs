//! `weir jira`: keeps a replica of a Jira site and reads it without a request.
//!
//! Invariants:
//! - Only `login`, `pull`, `push`, `watch`, `fields --ask`, `list --ask` and changes of
//!   projects send requests.
//! - A change is durable in the outbox before its command ends.
//! - A token is never printed.

mod edit;
mod outbox;
mod project;
mod read;
mod site;
mod sync;
mod wait;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use edit::Change;
use jiff::Timestamp;
use wait::SiteClient;
use weir::{ErrorCode, Weir};
use weir_jira::JiraError;
use weir_jira::access::Site;
use weir_jira::replica::{Replica, VALUE_BYTES_MAX};

use crate::caller::Caller;
use crate::place::{self, Access, Location, PROGRAM};
use crate::progress::Progress;
use crate::report::{Failure, note};

/// The commands with required arguments that print rows, and the fields of the rows.
pub(crate) const ROWS: &[(&str, &[crate::output::Field])] = &[
    ("jira login", site::FIELDS),
    ("jira search", read::FIELDS),
    ("jira set", edit::FIELDS),
    ("jira move", edit::FIELDS),
    ("jira assign", edit::FIELDS),
    ("jira label", edit::FIELDS),
    ("jira watch-issue", edit::FIELDS),
    ("jira link", edit::FIELDS),
    ("jira comment", edit::FIELDS),
    ("jira worklog", edit::FIELDS),
    ("jira create", edit::FIELDS),
    ("jira clone", edit::FIELDS),
    ("jira rm", edit::FIELDS),
    ("jira resolve", edit::FIELDS),
    ("jira fields", outbox::KINDS),
];

#[derive(Debug, Args)]
#[command(after_long_help = "\
The replica is stored in the topics `jira.SITE.…`, which all other commands can read. Only login,
pull, push, watch, changes of projects, and the option --ask send requests to the site. Changes of
issues are stored in the outbox and shown at once; `push` or `watch` sends them to the site.")]
pub(crate) struct JiraArgs {
    /// Name of the site [else the only known site]
    #[arg(long, global = true, value_name = "NAME")]
    site: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Store address and token of a site, and test the required rights
    Login(site::LoginArgs),
    /// Fetch the changes of the site into the replica
    Pull(sync::PullArgs),
    /// Push and pull repeatedly until Ctrl-C
    Watch(sync::WatchArgs),
    /// List the issues of the replica, all or those that match a JQL query
    Ls(read::ListArgs),
    /// Show an issue of the replica with its comments
    Show(read::ShowArgs),
    /// Find words in summaries, descriptions and comments of the replica
    Search(read::SearchArgs),
    /// Set fields of an issue
    Set(edit::EditArgs),
    /// Move an issue to another status
    Move(edit::MoveArgs),
    /// Assign an issue
    Assign(edit::AssignArgs),
    /// Add labels to an issue, or remove them
    Label(edit::LabelArgs),
    /// Watch an issue, or stop watching it
    WatchIssue(edit::WatchIssueArgs),
    /// Link two issues, or remove their link
    Link(edit::LinkArgs),
    /// Add a comment, change it or delete it
    Comment(edit::CommentArgs),
    /// Add a worklog to an issue, change it or delete it
    Worklog(edit::WorklogArgs),
    /// Create an issue
    Create(edit::CreateArgs),
    /// Create a copy of an issue
    Clone(edit::CloneArgs),
    /// Delete an issue
    Rm(edit::DeleteArgs),
    /// Send the outbox to the site
    Push(outbox::PushArgs),
    /// List the changes that were not sent to the site yet
    Outbox(outbox::OutboxArgs),
    /// Resolve a change that is in conflict or that the site rejected
    Resolve(outbox::ResolveArgs),
    /// List the fields of an issue that can be edited
    Fields(outbox::FieldsArgs),
    /// List, create, change and delete projects
    Project(project::ProjectArgs),
}

/// Runs `weir jira`.
pub(crate) fn run(caller: &Caller, args: &JiraArgs) -> anyhow::Result<ExitCode> {
    let named = args.site.as_deref();
    match &args.verb {
        Verb::Login(own) => site::login(caller, named, own),
        Verb::Pull(own) => sync::pull(caller, named, own),
        Verb::Watch(own) => sync::watch(caller, named, own),
        Verb::Ls(own) => read::list(caller, named, own),
        Verb::Show(own) => read::show(caller, named, own),
        Verb::Search(own) => read::search(caller, named, own),
        Verb::Set(own) => edit::change(caller, named, &Change::Edit(own)),
        Verb::Move(own) => edit::change(caller, named, &Change::Move(own)),
        Verb::Assign(own) => edit::change(caller, named, &Change::Assign(own)),
        Verb::Label(own) => edit::change(caller, named, &Change::Label(own)),
        Verb::WatchIssue(own) => edit::change(caller, named, &Change::Watch(own)),
        Verb::Link(own) => edit::change(caller, named, &Change::Link(own)),
        Verb::Comment(own) => edit::change(caller, named, &Change::Comment(own)),
        Verb::Worklog(own) => edit::change(caller, named, &Change::Worklog(own)),
        Verb::Create(own) => edit::change(caller, named, &Change::Create(own)),
        Verb::Clone(own) => edit::change(caller, named, &Change::Clone(own)),
        Verb::Rm(own) => edit::change(caller, named, &Change::Delete(own)),
        Verb::Push(own) => outbox::push(caller, named, own),
        Verb::Outbox(own) => outbox::list(caller, named, own),
        Verb::Resolve(own) => outbox::resolve(caller, named, own),
        Verb::Fields(own) => outbox::fields(caller, named, own),
        Verb::Project(own) => project::run(caller, named, own),
    }
}

/// Milliseconds since 1970-01-01 UTC.
fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// The folder for settings and tokens of sites.
fn folder() -> anyhow::Result<PathBuf> {
    let home = crate::context_file::home();
    let home = home.ok_or_else(|| {
        Failure::new(ErrorCode::BadOption, "cannot find the settings of sites")
            .because("neither XDG_CONFIG_HOME nor HOME is set")
    })?;
    Ok(home.join("jira"))
}

/// The name and settings of the site that the call selects.
fn select_site(named: Option<&str>) -> anyhow::Result<(String, Site)> {
    let folder = folder()?;
    let name = if let Some(name) = named {
        name.to_owned()
    } else {
        let known = Site::names(&folder);
        let mut known = known.map_err(|error| failed("cannot find a site", &error))?;
        match known.len() {
            1 => known.remove(0),
            0 => {
                let failure = Failure::new(ErrorCode::BadOption, "no site is configured")
                    .because("no login has stored a site yet");
                return Err(failure.advise("run `weir jira login URL` first").into());
            }
            _ => {
                let failure = Failure::new(ErrorCode::BadOption, "several sites are configured")
                    .because("the command does not name one of them");
                let advice = format!("choose one with --site: {}", known.join(", "));
                return Err(failure.advise(advice).into());
            }
        }
    };
    let site = Site::load(&folder, &name);
    let site = site.map_err(|error| failed(&format!("cannot use the site {name}"), &error))?;
    Ok((name, site))
}

/// The replica of a site.
fn replica(caller: &Caller, access: Access, name: &str) -> anyhow::Result<Replica> {
    Ok(Replica::new(open(caller, access)?, name))
}

fn open(caller: &Caller, access: Access) -> anyhow::Result<Weir> {
    match place::location(caller)? {
        Location::Directory(at) => open_directory(caller, Path::new(at), access),
        Location::Server(_) => place::open(caller, access),
    }
}

/// Opens the store in a directory, with the limits that issues need.
pub(crate) fn open_directory(caller: &Caller, at: &Path, access: Access) -> anyhow::Result<Weir> {
    let (progress, wait) = (Progress::default(), caller.lock_wait);
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

/// A client of a site, with its token. Warns if the token expires soon, and prints a line if a
/// request takes long.
fn client(caller: &Caller, name: &str, site: &Site) -> anyhow::Result<SiteClient> {
    let token = site.token(&folder()?, name);
    let token = token.map_err(|error| failed("cannot read the token", &error))?;
    match site.expires_within(now_ms()) {
        Some(days) if days < 0 => note(false, &format!("warning: the token of {name} has expired")),
        Some(days) => {
            let text = format!("the token of {name} expires in {days} days; create a new token");
            note(caller.quiet, &format!("warning: {text}"));
        }
        None => {}
    }
    let client = site.client(token.as_deref());
    let client = client.map_err(|error| failed("cannot use the token", &error))?;
    Ok(SiteClient::new(client, caller.quiet, &site.site_url))
}

/// The failure of a call to the library.
pub(crate) fn failed(what: &str, error: &JiraError) -> Failure {
    let code = match error {
        JiraError::Store(error) => return Failure::weir(what, error),
        JiraError::Transport { .. } => ErrorCode::Unreachable,
        JiraError::Unauthenticated | JiraError::Captcha => ErrorCode::Unauthenticated,
        JiraError::UnknownIssue(_) | JiraError::UnknownOp(_) => ErrorCode::KeyAbsent,
        JiraError::Busy => ErrorCode::Busy,
        JiraError::Refused(code) => *code,
        JiraError::ReadOnly => ErrorCode::Unsupported,
        JiraError::File { .. } => ErrorCode::Io,
        JiraError::Record(_) => ErrorCode::NotJson,
        JiraError::Status { status: 429, .. } | JiraError::Limited { .. } => ErrorCode::Rate,
        JiraError::Status { status: 403, .. } => ErrorCode::Forbidden,
        JiraError::Status { .. } | JiraError::Garbage { .. } | JiraError::Paging(_) => {
            ErrorCode::Protocol
        }
        JiraError::TooManyGone { .. } => ErrorCode::Rejected,
        _ => ErrorCode::BadRequest,
    };
    let failure = Failure::new(code, what).because(error);
    match advice(error) {
        Some(advice) => failure.advise(advice),
        None => failure,
    }
}

/// What to do about an error of a site or its replica; `None`: the advice of its code fits.
fn advice(error: &JiraError) -> Option<&'static str> {
    Some(match error {
        JiraError::Transport { .. } => {
            "check the address of the site and the network; the replica remains readable"
        }
        JiraError::Unauthenticated => {
            "check the e-mail address and the token; `weir jira login` stores a new token"
        }
        JiraError::Captcha => "log in with a browser once, then retry",
        JiraError::Status {
            status: 300..400, ..
        } => {
            "log in with the address to which the site redirects, without `/rest/` and what follows"
        }
        JiraError::Status { status: 403, .. } => {
            "grant the account this right, or the token this scope"
        }
        JiraError::Status { status: 404, .. } => {
            "check the address and path of the site, and whether the account can see the item"
        }
        JiraError::Status { status: 429, .. } | JiraError::Limited { .. } => {
            "retry in a few minutes; changes stay in the outbox"
        }
        JiraError::Status {
            status: 500..600, ..
        } => "retry later: the site reported an internal error",
        JiraError::Status { .. } => "correct the error that the site reports",
        JiraError::Garbage { .. } | JiraError::Paging(_) => {
            "check that the address is that of a Jira site, and that no proxy changes the responses"
        }
        JiraError::TooManyGone { .. } => {
            "check what the account can see at the site, then use --confirm-removal"
        }
        JiraError::ReadOnly => "change the issue at the site, then pull",
        JiraError::UnknownIssue(_) => "check the key; `weir jira pull` fetches new issues",
        JiraError::UnknownOp(_) => "`weir jira outbox` lists the operations",
        JiraError::UnknownFilter { .. } => {
            "mark the filter as a favourite at the site (a pull reads the favourites once a day), or \
             list its query with `weir jira ls JQL`"
        }
        JiraError::Field { .. } => "`weir jira fields KEY` lists the fields and their values",
        _ => return None,
    })
}

//! `weir jira login`: stores address and token of a site, and tests the rights of the token.

use std::borrow::Cow;
use std::io::Read;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, ValueEnum};
use weir::ErrorCode;
use weir_jira::access::{self, Right, Site, TokenStore};
use weir_jira::client::Deployment;

use super::wait::WaitLine;
use super::{failed, folder, now_ms};
use crate::caller::Caller;
use crate::output::{Cell, Field, Output, Shape, field};
use crate::report::{Failure, FailureContext, note};

/// Maximum bytes of a token.
const TOKEN_BYTES_MAX: u64 = 4096;

#[derive(Debug, Args)]
#[command(after_long_help = "\
The token is read from --token-file, or from standard input. It is stored in a file that only you can
read (mode 0600). With --keep keyring, it is stored in the keyring of the desktop, which needs the
program `secret-tool`.

A token with scopes needs --gateway; links still use the URL of the site. A personal access token of
Jira Data Center needs no --email. Data Center is read-only: login, pull, watch, list, show, search.

Examples:
  weir jira login https://acme.atlassian.net --email me@example.com --token-file ./token
  weir jira login https://jira.example.com/jira --token-file ./personal-access-token
  weir jira login http://127.0.0.1:1938")]
pub(super) struct LoginArgs {
    /// Address of the site, as in a browser
    url: String,
    /// E-mail address of the account (Data Center: user name) [else no token, unless --token-file]
    #[arg(long, value_name = "EMAIL")]
    email: Option<String>,
    /// Address for requests: `https://api.atlassian.com/ex/jira/CLOUDID` [else URL]
    #[arg(long, value_name = "URL")]
    gateway: Option<String>,
    /// Date on which the token expires, YYYY-MM-DD
    #[arg(long, value_name = "DATE")]
    expires: Option<String>,
    /// Where the token is stored: a file of mode 0600, or the keyring of the desktop
    #[arg(long, value_enum, default_value_t = TokenStorage::File, value_name = "WHERE")]
    keep: TokenStorage,
    /// Keys of the projects in the replica [else all that the account can see]
    #[arg(long, value_delimiter = ',', value_name = "KEY")]
    project: Vec<String>,
}

/// Where a token is stored.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum TokenStorage {
    File,
    Keyring,
}

/// Fields of a right.
pub(super) const FIELDS: &[Field] = &[
    field("right", "text", "name of the right in Jira"),
    field("granted", "flag", "whether the token has the right"),
    field("needed_for", "text", "verbs that need the right"),
];

/// Runs `weir jira login`.
pub(super) fn login(
    caller: &Caller,
    named: Option<&str>,
    args: &LoginArgs,
) -> anyhow::Result<ExitCode> {
    let Some(out) = caller.style.open(Shape::List, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let what = format!("cannot log in at {}", args.url);
    let mut site = args.site();
    if let Err(error) = site.check_expiry(now_ms()) {
        let failure = Failure::new(ErrorCode::BadOption, what).because(error);
        return Err(failure.advise("correct --expires, or omit it").into());
    }
    let with_token = !site.email.is_empty() || caller.credentials.token_file.is_some();
    let token = with_token.then(|| token(caller)).transpose()?;
    let folder = folder()?;
    let name = named.map_or_else(|| Site::name_in(&folder, &args.url), str::to_owned);
    let has_gateway = args.gateway.is_some();
    let rights = request_rights(caller.quiet, &mut site, token.as_deref(), has_gateway);
    let rights = rights.map_err(|error| failed(&what, &error))?;
    print_rights(out, &rights)?;
    let missing = missing(&rights);
    if missing.contains(&"BROWSE_PROJECTS") {
        let failure = Failure::new(ErrorCode::Forbidden, what)
            .because("the right BROWSE_PROJECTS is missing, and every read needs it")
            .advise("grant the token the scope read:jira-work, or the account the right");
        return Err(failure.into());
    }
    site.save(&folder, &name, token.as_deref())
        .map_err(|error| failed(&what, &error))?;
    print_notes(caller.quiet, &site, &name, &missing);
    Ok(ExitCode::SUCCESS)
}

impl LoginArgs {
    /// The settings of the site, before the site was asked for its interface.
    fn site(&self) -> Site {
        let api_url = self.gateway.as_ref().unwrap_or(&self.url);
        Site {
            site_url: self.url.trim_end_matches('/').to_owned(),
            api_url: api_url.trim_end_matches('/').to_owned(),
            email: self.email.clone().unwrap_or_default(),
            expires: self.expires.clone(),
            projects: self.project.clone(),
            token_store: match self.keep {
                TokenStorage::File => TokenStore::File,
                TokenStorage::Keyring => TokenStore::Keyring,
            },
            ..Site::default()
        }
    }
}

/// Asks the site for its interface, and for the rights of the token. Prints a line if this takes
/// long.
fn request_rights(
    quiet: bool,
    site: &mut Site,
    token: Option<&str>,
    has_gateway: bool,
) -> weir_jira::Result<Vec<Right>> {
    let began = Instant::now();
    let _line = WaitLine::start(quiet, &site.site_url, move || Some(began.elapsed()));
    // Only Jira Cloud is reached through a gateway.
    if !has_gateway {
        site.detect(token)?;
    }
    access::rights(&site.client(token)?)
}

fn print_rights(mut out: Output, rights: &[Right]) -> anyhow::Result<()> {
    for right in rights {
        out.row(&[
            Cell::Text(Cow::Borrowed(right.name)),
            Cell::Flag(right.granted),
            Cell::Text(Cow::Borrowed(right.purpose)),
        ])?;
    }
    out.finish()
}

/// The names of the rights that the token does not have.
fn missing(rights: &[Right]) -> Vec<&'static str> {
    let missing = rights.iter().filter(|right| !right.granted);
    missing.map(|right| right.name).collect()
}

/// Prints warnings about the token, and the name of the site.
fn print_notes(quiet: bool, site: &Site, name: &str, missing: &[&str]) {
    if !missing.is_empty() {
        let text = format!("warning: missing rights: {}", missing.join(", "));
        note(quiet, &text);
    }
    if site.expires_within(now_ms()).is_some() {
        note(quiet, "warning: the token expires within 14 days");
    }
    let kind = match site.deployment {
        Deployment::Cloud => "",
        Deployment::DataCenter => " (Jira Data Center, read-only)",
    };
    let text = format!("logged in; the name of the site is {name}{kind}");
    note(quiet, &text);
}

/// Reads the token from `--token-file`, or from standard input.
fn token(caller: &Caller) -> anyhow::Result<String> {
    if caller.credentials.token_file.is_some() {
        return Ok(caller.credentials.token()?.unwrap_or_default());
    }
    let mut text = String::new();
    let input = std::io::stdin().take(TOKEN_BYTES_MAX);
    let mut input = input;
    input
        .read_to_string(&mut text)
        .failed(|| "cannot read the token".to_owned())?;
    Ok(text.trim().to_owned())
}

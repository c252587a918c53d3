//! `weir jira login`: stores address and token of a site, and tests the rights of the token.

use std::borrow::Cow;
use std::io::Read;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, ValueEnum};
use weir::ErrorCode;
use weir_jira::access::{self, Site, TokenStore};
use weir_jira::client::Deployment;

use super::wait::WaitLine;
use super::{failed, folder, now_ms};
use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field};
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
    let Some(mut out) = caller.style.open(Shape::List, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let what = format!("cannot log in at {}", args.url);
    let mut site = Site {
        site_url: args.url.trim_end_matches('/').to_owned(),
        api_url: args
            .gateway
            .as_ref()
            .unwrap_or(&args.url)
            .trim_end_matches('/')
            .to_owned(),
        email: args.email.clone().unwrap_or_default(),
        expires: args.expires.clone(),
        projects: args.project.clone(),
        token_store: match args.keep {
            TokenStorage::File => TokenStore::File,
            TokenStorage::Keyring => TokenStore::Keyring,
        },
        ..Site::default()
    };
    if let Err(error) = site.check_expiry(now_ms()) {
        let failure = Failure::new(ErrorCode::BadOption, what).because(error);
        return Err(failure.advise("correct --expires, or omit it").into());
    }
    let with_token = !site.email.is_empty() || caller.credentials.token_file.is_some();
    let token = with_token.then(|| token(caller)).transpose()?;
    let folder = folder()?;
    let name = named.map_or_else(|| Site::name_in(&folder, &args.url), str::to_owned);
    let began = Instant::now();
    let line = WaitLine::start(caller.quiet, &site.site_url, move || Some(began.elapsed()));
    if args.gateway.is_none() {
        // Only Jira Cloud is reached through a gateway.
        site.detect(token.as_deref())
            .map_err(|error| failed(&what, &error))?;
    }
    let client = site.client(token.as_deref());
    let client = client.map_err(|error| failed(&what, &error))?;
    let rights = access::rights(&client).map_err(|error| failed(&what, &error))?;
    drop(line);
    let mut missing = Vec::new();
    for right in &rights {
        if !right.granted {
            missing.push(right.name);
        }
        out.row(&[
            Cell::Text(Cow::Borrowed(right.name)),
            Cell::Flag(right.granted),
            Cell::Text(Cow::Borrowed(right.purpose)),
        ])?;
    }
    out.finish()?;
    if missing.contains(&"BROWSE_PROJECTS") {
        let failure = Failure::new(ErrorCode::Forbidden, what)
            .because("the right BROWSE_PROJECTS is missing, and every read needs it")
            .advise("grant the token the scope read:jira-work, or the account the right");
        return Err(failure.into());
    }
    site.save(&folder, &name, token.as_deref())
        .map_err(|error| failed(&what, &error))?;
    if !missing.is_empty() {
        note(
            caller.quiet,
            &format!("warning: missing rights: {}", missing.join(", ")),
        );
    }
    if site.expires_within(now_ms()).is_some() {
        note(caller.quiet, "warning: the token expires within 14 days");
    }
    let kind = match site.deployment {
        Deployment::Cloud => "",
        Deployment::DataCenter => " (Jira Data Center, read-only)",
    };
    note(
        caller.quiet,
        &format!("logged in; the name of the site is {name}{kind}"),
    );
    Ok(ExitCode::SUCCESS)
}

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

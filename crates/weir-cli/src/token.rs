//! `weir token`: the tokens of clients of a server, and their rights.
//!
//! Invariant: a token appears only in the output that the user requested.

use std::borrow::Cow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use weir::ErrorCode;
use weir_server::security::{
    IdentitiesError, IdentitiesFile, Token, TokenEntry, now_ms, write_private,
};

use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field, wide};
use crate::report::{self, Failure, FailureContext};

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    verb: Verb,
}

/// The file of identities.
#[derive(Debug, Args)]
struct FileArgs {
    /// File of identities, as for `weir serve`
    #[arg(long, value_name = "FILE", env = "WEIR_SERVE_IDENTITIES")]
    #[arg(default_value = "identities.toml", hide_env = true)]
    identities: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a token, add it to the file of identities, and show it once
    #[command(after_long_help = "\
RIGHT is a list of rights, separated by commas, followed by patterns of topics: 'put,read orders.**'.
The rights are create, destroy, put, delete, read, group, program, admin and all. In a pattern, `*`
matches one part of a name between dots; `**` at the end matches one or more parts. Only a pattern that
begins with a dot matches the topics of the store, as in 'read .weir.audit'. Everything that no right
allows is denied.

Examples:
  weir token create loader --right 'create,put orders.**' --right 'read stock.*'
  weir token create watcher --right 'read **' --expires 12h -o raw --columns token
  weir token create root --right 'all **' --expires never --out ./root.token")]
    Create {
        /// Name of the principal that gets the token
        name: String,
        /// A right, such as 'put,read orders.**'; repeat the option for more rights
        #[arg(short, long = "right", value_name = "RIGHT", required = true)]
        rights: Vec<String>,
        /// Lifetime: a time such as 12h or 90d, or never
        #[arg(long, value_name = "TIME", default_value = "90d", value_parser = lifetime)]
        expires: Lifetime,
        /// Write the token to a new file of mode 0600 instead of showing it
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        place: FileArgs,
    },
    /// List the tokens in the file of identities, without their secrets
    #[command(after_long_help = "Examples:\n  \
        weir token create a --right 'read **' && weir token ls\n  \
        weir token create b --right 'read **' && weir token ls -o json")]
    Ls {
        #[command(flatten)]
        place: FileArgs,
    },
    /// Revoke a token; its entry remains in the file, marked as revoked
    #[command(after_long_help = "Examples:\n  \
        id=$(weir token create a --right 'read **' -o raw --columns id) && weir token revoke $id\n  \
        id=$(weir token create b --right 'read **' -o raw --columns id) && weir token revoke $id -o json")]
    Revoke {
        /// Id of the token: 8 hexadecimal digits
        id: String,
        #[command(flatten)]
        place: FileArgs,
    },
}

/// A lifetime; `None`: unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime(pub(crate) Option<Duration>);

/// Reads a time span, or `never`.
fn lifetime(text: &str) -> Result<Lifetime, String> {
    if text == "never" {
        return Ok(Lifetime(None));
    }
    let time = crate::settings::duration(text).map_err(|why| format!("{why}, or never"))?;
    Ok(Lifetime(Some(time)))
}

/// Fields of a new token.
pub(crate) const NEW_FIELDS: &[Field] = &[
    field("id", "text", "id of the token; not a secret"),
    field("name", "text", "name of the principal"),
    field("token", "text", "the token; null with --out"),
    field("expires", "time", "when the token expires, null: never"),
    field("rights", "text", "rights of the token"),
    field("file", "text", "file of identities that contains the token"),
];

/// Fields of a token in the file.
pub(crate) const FIELDS: &[Field] = &[
    field("id", "text", "id of the token; not a secret"),
    field("name", "text", "name of the principal"),
    field("state", "text", "valid, expired or revoked"),
    field("expires", "time", "when the token expires, null: never"),
    field("rights", "text", "rights of the token"),
    wide("created", "time", "when the token was created"),
    wide(
        "revoked",
        "time",
        "when the token was revoked, null: not revoked",
    ),
];

fn row(token: &TokenEntry, now_ms: u64) -> [Cell<'_>; 7] {
    let state = match token {
        token if token.revoked_ms.is_some() => "revoked",
        token if token.expires_ms.is_some_and(|end| end <= now_ms) => "expired",
        _ => "valid",
    };
    let time = |ms: Option<u64>| ms.map_or(Cell::Nothing, Cell::Time);
    [
        Cell::Text(Cow::Borrowed(&token.id)),
        Cell::Text(Cow::Borrowed(&token.name)),
        Cell::Text(state.into()),
        time(token.expires_ms),
        Cell::Text(token.rights.join("; ").into()),
        Cell::Time(token.created_ms),
        time(token.revoked_ms),
    ]
}

/// Runs `weir token`.
pub(crate) fn run(caller: &Caller, args: &TokenArgs) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::Create {
            name,
            rights,
            expires,
            out,
            place,
        } => {
            let new_token = NewToken {
                name,
                rights,
                expires: *expires,
                out: out.as_ref(),
            };
            create(caller, place, &new_token)
        }
        Verb::Ls { place } => list(caller, place),
        Verb::Revoke { id, place } => revoke(caller, place, id),
    }
}

/// The properties of a new token.
struct NewToken<'a> {
    name: &'a str,
    rights: &'a [String],
    expires: Lifetime,
    out: Option<&'a PathBuf>,
}

fn create(caller: &Caller, place: &FileArgs, new_token: &NewToken<'_>) -> anyhow::Result<ExitCode> {
    let Some(mut rows) = caller.style.open(Shape::One, NEW_FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let path = &place.identities;
    let what = || format!("cannot add a token to {}", path.display());
    // The lock serialises two concurrent commands: the later one reads the result of the earlier
    // one.
    let _lock = IdentitiesFile::lock(path).map_err(|error| failure(what(), &error))?;
    let file = if path.exists() {
        read(place, what)?
    } else {
        IdentitiesFile::empty(path)
    };
    let now = now_ms();
    let span = new_token
        .expires
        .0
        .map(|time| u64::try_from(time.as_millis()));
    let expires = span.map(|ms| now.saturating_add(ms.unwrap_or(u64::MAX)));
    let token = Token::random().failed(|| "cannot create a token".to_owned())?;
    let file = file.with_token(&token, new_token.name, new_token.rights, now, expires);
    // The error concerns an argument, not a line of the file.
    let file = file.map_err(|error| match error {
        IdentitiesError::Invalid { what: why, .. } => {
            Failure::new(ErrorCode::BadOption, what()).because(why)
        }
        error => failure(what(), &error),
    })?;
    if let Some(out) = new_token.out {
        let line = format!("{}\n", token.expose());
        write_private(out, line.as_bytes(), false)
            .failed(|| format!("cannot write the token into {}", out.display()))?;
    }
    file.write().map_err(|error| {
        if let Some(out) = new_token.out {
            // No server accepts the token. The error of the write is reported, not one of this.
            drop(std::fs::remove_file(out));
        }
        failure(what(), &error)
    })?;
    let shown = match new_token.out {
        Some(_) => Cell::Nothing,
        None => Cell::Text(token.expose().into()),
    };
    rows.row(&[
        Cell::Text(token.id().into()),
        Cell::Text(new_token.name.into()),
        shown,
        expires.map_or(Cell::Nothing, Cell::Time),
        Cell::Text(new_token.rights.join("; ").into()),
        Cell::Text(path.display().to_string().into()),
    ])?;
    rows.finish()?;
    let location = match new_token.out {
        Some(out) => format!("the token is in {}", out.display()),
        None => "copy the token now: it is not stored and cannot be shown again".to_owned(),
    };
    report::note(caller.quiet, &location);
    report::note(
        caller.quiet,
        &format!(
            "next: run `weir serve --identities {}`; clients send `Authorization: Bearer TOKEN`; \
             a running server accepts the token within 5 seconds",
            path.display()
        ),
    );
    Ok(ExitCode::SUCCESS)
}

fn list(caller: &Caller, place: &FileArgs) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::List, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let file = read(place, || "cannot list the tokens".to_owned())?;
    let now = now_ms();
    for token in &file.tokens {
        out.row(&row(token, now))?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn revoke(caller: &Caller, place: &FileArgs, id: &str) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let what = || format!("cannot revoke {id}");
    let now = now_ms();
    let lock = IdentitiesFile::lock(&place.identities);
    let _lock = lock.map_err(|error| failure(what(), &error))?;
    let file = read(place, what)?;
    let file = file.without_token(id, now).map_err(|error| {
        let failure = failure(what(), &error);
        let named = file.tokens.iter().filter(|token| token.name == id);
        let named = named.filter(|token| token.revoked_ms.is_none());
        let ids: Vec<&str> = named.map(|token| token.id.as_str()).collect();
        match ids.as_slice() {
            [] => failure,
            [one] => failure.advise(format!(
                "give the id of the token, not a name: `weir token revoke {one}`"
            )),
            all => failure.advise(format!(
                "give the id of a token, not a name; the tokens of {id} are {}",
                all.join(" ")
            )),
        }
    })?;
    file.write().map_err(|error| failure(what(), &error))?;
    if let Some(token) = file.tokens.iter().find(|token| token.id == id) {
        out.row(&row(token, now))?;
    }
    out.finish()?;
    let next = "a running server rejects the token within 5 seconds, or at once after \
                `systemctl reload` or `kill -HUP PID`, also on open connections";
    report::note(caller.quiet, next);
    Ok(ExitCode::SUCCESS)
}

fn read(place: &FileArgs, what: impl Fn() -> String) -> anyhow::Result<IdentitiesFile> {
    let read = IdentitiesFile::read(&place.identities);
    Ok(read.map_err(|error| failure(what(), &error))?)
}

fn failure(what: String, error: &IdentitiesError) -> Failure {
    let with = |code| Failure::new(code, what).because(error);
    match error {
        IdentitiesError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            with(ErrorCode::Io).advise(
                "create the file with `weir token create`, or name another one with `--identities`",
            )
        }
        IdentitiesError::Io { source, .. } => with(report::io_code(source)),
        IdentitiesError::Invalid { .. } => with(ErrorCode::BadLine)
            .advise("correct the line; until then, a running server ignores the change"),
        IdentitiesError::Open { path, .. } => with(ErrorCode::NotPermitted).advise(format!(
            "deny other users access to the file: `chmod 600 {}`",
            path.display()
        )),
        _ => with(ErrorCode::BadOption).advise("`weir token ls` shows the ids"),
    }
}

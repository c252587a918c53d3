//! `weir cert`: a private certificate authority for a small cluster.
//!
//! Invariants:
//! - A file that exists is never overwritten.
//! - Only its owner can read a key.

mod authority;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use weir::{ErrorCode, units};
use weir_server::security::{CertificateFields, TlsError, now_ms, read_certificates};

use crate::caller::Caller;
use crate::output::{Cell, Field, Output, Shape, field, wide};
use crate::report::{self, Failure};

#[derive(Debug, Args)]
pub(crate) struct CertArgs {
    #[command(subcommand)]
    verb: Verb,
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Purpose {
    /// Identifies a server to its clients
    Server,
    /// Identifies a client to a server
    Client,
    /// Both: identifies a node of a cluster to other nodes
    Node,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a certificate authority: ca.pem (public) and ca.key (secret)
    #[command(after_long_help = "Examples:\n  \
        weir cert ca\n  \
        weir cert ca ./pki --name 'orders authority' --expires 1825d")]
    Ca {
        /// Directory for the two files
        #[arg(default_value = ".")]
        dir: PathBuf,
        /// Name of the authority
        #[arg(long, default_value = "weir authority")]
        name: String,
        /// Lifetime in whole days, at most 36500d
        #[arg(long, default_value = "3650d", value_parser = authority_days, value_name = "TIME")]
        expires: u32,
    },
    /// Create a key, and its certificate signed by the authority
    #[command(after_long_help = "\
Writes NAME.pem and NAME.key, named after the first NAME. A server accepts a client by any name in
its certificate: list one of the names under [[certificate]] in the file of identities.

Examples:
  weir cert ca && weir cert issue localhost 127.0.0.1
  weir cert ca ./pki && weir cert issue loader.example --for client --ca ./pki --expires 30d")]
    Issue {
        /// Host names, IP addresses or URIs of the certificate
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Purpose of the certificate
        #[arg(long = "for", value_enum, default_value = "server")]
        purpose: Purpose,
        /// Directory with ca.pem and ca.key, and for the new files
        #[arg(long, value_name = "DIR", default_value = ".")]
        ca: PathBuf,
        /// Lifetime in whole days, at most 3650d; ends no later than that of the authority
        #[arg(long, default_value = "90d", value_parser = certificate_days, value_name = "TIME")]
        expires: u32,
    },
    /// Show the certificates in a file
    #[command(after_long_help = "Examples:\n  \
        weir cert ca && weir cert show ca.pem\n  \
        weir cert ca ./pki && weir cert show ./pki/ca.pem -o json")]
    Show {
        /// File with certificates, PEM
        file: PathBuf,
    },
}

const DAY: Duration = Duration::from_hours(24);

/// Parses the lifetime of an authority, in days.
fn authority_days(text: &str) -> Result<u32, String> {
    days(text, 36_500)
}

/// Parses the lifetime of a certificate, in days.
fn certificate_days(text: &str) -> Result<u32, String> {
    days(text, 3650)
}

fn days(text: &str, most: u32) -> Result<u32, String> {
    let time = units::duration(text).map_err(|error| error.to_string())?;
    let days = u32::try_from(time.as_secs() / DAY.as_secs()).unwrap_or(u32::MAX);
    if days == 0 || days > most || time != DAY * days {
        return Err(format!(
            "{text} is not a whole number of days from 1d to {most}d"
        ));
    }
    Ok(days)
}

/// Fields of a certificate.
pub(crate) const FIELDS: &[Field] = &[
    field("file", "text", "file of the certificate"),
    field(
        "names",
        "text",
        "host names, addresses and URIs of the certificate",
    ),
    field("issuer", "text", "name of the signing authority"),
    field("state", "text", "valid, expired, or early: not valid yet"),
    field("expires", "time", "when the certificate expires"),
    field("days", "number", "whole days until the certificate expires"),
    wide("subject", "text", "common name of the certificate"),
    wide(
        "authority",
        "bool",
        "whether the certificate may sign others",
    ),
    wide("begins", "time", "when the certificate becomes valid"),
    wide("serial", "text", "serial number, hexadecimal"),
];

/// Runs `weir cert`.
pub(crate) fn run(caller: &Caller, args: &CertArgs) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::Ca { dir, name, expires } => {
            let Some(out) = caller.style.open(Shape::One, FIELDS)? else {
                return Ok(ExitCode::SUCCESS);
            };
            let certificate = authority::create(dir, name, *expires)?;
            print(out, &certificate)?;
            report::note(
                caller.quiet,
                &format!(
                    "protect {}: a reader of this file can impersonate every server, node and client",
                    dir.join("ca.key").display()
                ),
            );
            let next = format!("next: `weir cert issue HOST --ca {}`", dir.display());
            report::note(caller.quiet, &next);
        }
        Verb::Issue {
            names,
            purpose,
            ca,
            expires,
        } => {
            let Some(out) = caller.style.open(Shape::One, FIELDS)? else {
                return Ok(ExitCode::SUCCESS);
            };
            let certificate = authority::issue(ca, names, *purpose, *expires)?;
            print(out, &certificate)?;
            let key = certificate.with_extension("key");
            let (certificate, key) = (certificate.display(), key.display());
            let first = names.first().map_or("", String::as_str);
            let next = match purpose {
                Purpose::Client => format!(
                    "next: add `[[certificate]]` with `name = \"{first}\"` to the file of \
                     identities; the client uses {certificate} with {key}"
                ),
                Purpose::Node => format!(
                    "next: `weir serve --peer-cert {certificate} --peer-key {key} --peer-ca {}`",
                    ca.join("ca.pem").display()
                ),
                Purpose::Server => format!(
                    "next: `weir serve --tls-cert {certificate} --tls-key {key}`; clients must trust {}",
                    ca.join("ca.pem").display()
                ),
            };
            report::note(caller.quiet, &next);
        }
        Verb::Show { file } => {
            let Some(out) = caller.style.open(Shape::List, FIELDS)? else {
                return Ok(ExitCode::SUCCESS);
            };
            print(out, file)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a row for each certificate in a file.
fn print(mut out: Output, file: &Path) -> anyhow::Result<()> {
    let shown = file.display().to_string();
    let now = now_ms();
    for found in &read(file)? {
        let state = match found {
            found if found.not_after_ms < now => "expired",
            found if found.not_before_ms > now => "early",
            _ => "valid",
        };
        out.row(&[
            Cell::Text(Cow::Borrowed(&shown)),
            Cell::Text(found.names.join(" ").into()),
            Cell::Text(Cow::Borrowed(&found.issuer_name)),
            Cell::Text(state.into()),
            Cell::Time(found.not_after_ms),
            Cell::Count(found.not_after_ms.saturating_sub(now) / 86_400_000),
            Cell::Text(Cow::Borrowed(&found.common_name)),
            Cell::Flag(found.is_authority),
            Cell::Time(found.not_before_ms),
            Cell::Text(crate::bytes::hex(&found.serial).into()),
        ])?;
    }
    out.finish()
}

fn read(file: &Path) -> anyhow::Result<Vec<CertificateFields>> {
    read_certificates(file).map_err(|error| {
        let what = format!("cannot read {}", file.display());
        let code = match &error {
            TlsError::Io { source, .. } => report::io_code(source),
            _ => ErrorCode::BadLine,
        };
        let failure = Failure::new(code, what).because(&error);
        failure
            .advise("create such files with `weir cert ca` and `weir cert issue`")
            .into()
    })
}

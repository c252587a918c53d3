//! `weir config`: shows, checks and creates the configuration.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use weir::{Durability, ErrorCode};

use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field};
use crate::report::{Failure, FailureContext, note};
use crate::settings::Settings;

/// The text that `create` writes: every key with its default, commented out.
const TEMPLATE: &str = "\
# Configuration of weir. It is looked for as ./weir.toml, then
# $XDG_CONFIG_HOME/weir/weir.toml, then /etc/weir/weir.toml; the first one found
# is used. Flags and WEIR_AT, WEIR_OUTPUT, WEIR_DURABILITY win over it.
# `weir config show` prints what holds and where it comes from.

# The directory of the store.
#at = \"./weir-data\"

# table, wide, json, jsonl, csv or raw; else it depends on command and terminal.
#output = \"table\"

# When a write is answered:
#   group         when it is synced; all that wait share one sync
#   each          the same with a sync of its own
#   interval:TIME when it is written; a power cut loses up to that much time, as in interval:50ms
#   memory        when it is written; a power cut can lose everything
#durability = \"group\"

# What `weir serve` does; all keys with their values: `weir serve --print-config`.
#[serve]
#http = \"127.0.0.1:7070\"
#native = \"127.0.0.1:7071\"
";

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show every setting, its value and its origin
    #[command(after_long_help = "Examples:\n  weir config show\n  weir config show -o json")]
    Show,
    /// Check the file; exits with 2 if it is invalid
    #[command(after_long_help = "Examples:\n  \
        weir config create && weir config check\n  \
        weir config create --file my.toml && weir config check --config my.toml")]
    Check,
    /// Write a file that explains every key
    #[command(after_long_help = "Examples:\n  \
        weir config create\n  \
        weir config create --file other.toml")]
    Create {
        /// File to write; it must not exist
        #[arg(long, default_value = "weir.toml")]
        file: PathBuf,
    },
}

/// Fields of a setting.
pub(crate) const FIELDS: &[Field] = &[
    field("key", "text", "name of the setting"),
    field(
        "value",
        "text",
        "its value, null when it depends on the command",
    ),
    field(
        "origin",
        "text",
        "flag, environment, context, file or default",
    ),
];

/// Runs `weir config`.
pub(crate) fn run(caller: &Caller, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::Show => show(caller)?,
        Verb::Check => {
            // An invalid file has already ended the command.
            let text = match &caller.settings.file {
                Some(path) => format!("{} is right", path.display()),
                None => "there is no file; defaults hold".to_owned(),
            };
            note(caller.quiet, &text);
        }
        Verb::Create { file } => {
            let shown = file.display().to_string();
            let options = std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(file);
            let mut opened = options.map_err(|error| {
                Failure::new(ErrorCode::Io, format!("cannot make {shown}")).because(error)
            })?;
            let written = opened.write_all(TEMPLATE.as_bytes());
            written.failed(|| format!("cannot write {shown}"))?;
            note(caller.quiet, &format!("wrote {shown}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(caller: &Caller) -> anyhow::Result<()> {
    let Some(mut out) = caller.style.open(Shape::List, FIELDS)? else {
        return Ok(());
    };
    let Settings {
        at,
        output,
        durability,
        ..
    } = &caller.settings;
    let level = match durability.value {
        Durability::Interval(time) => format!("interval:{}", time.as_millis()),
        level => level.name().to_owned(),
    };
    let format = output.value.map(|format| format.name().to_owned());
    let rows = [
        ("at", Some(at.value.clone()), &at.origin),
        ("output", format, &output.origin),
        ("durability", Some(level), &durability.origin),
    ];
    let credentials = caller.settings.shown_credentials.iter();
    let credentials = credentials.map(|(key, value, origin)| (*key, value.clone(), origin));
    for (key, value, origin) in rows.into_iter().chain(credentials) {
        out.row(&[
            Cell::Text(key.into()),
            value.map_or(Cell::Nothing, |value| Cell::Text(value.into())),
            Cell::Text(origin.as_str().into()),
        ])?;
    }
    out.finish()
}

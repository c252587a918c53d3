//! `weir config`: shows, checks and creates the configuration.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use weir::ErrorCode;

use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field};
use crate::report::{Failure, FailureContext, note};
use crate::settings::{Settings, durability_text};

/// The text that `create` writes: every key with its default, commented out.
const TEMPLATE: &str = "\
# Configuration of weir. The first of these files that exists is used: ./weir.toml,
# $XDG_CONFIG_HOME/weir/weir.toml, /etc/weir/weir.toml. Flags, the variables WEIR_AT,
# WEIR_OUTPUT and WEIR_DURABILITY, and the current context override the file.
# `weir config show` prints the settings in effect and their origins.

# The store: a directory, or the address of a server.
#at = \"./weir-data\"

# Output format: table, wide, json, jsonl, csv or raw. If it is not set, the format
# depends on the command and the terminal.
#output = \"table\"

# When a write is acknowledged (default: group):
#   group         after its sync; waiting writes share one sync
#   each          after its own sync
#   interval:TIME after it is written; a power cut loses at most the writes of TIME (interval:50ms)
#   memory        after it is written; a power cut can lose all writes since the open
#durability = \"group\"

# Settings of `weir serve`. `weir serve --print-config` prints all keys and their meanings.
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
    /// Check the file; the exit code is 2 if it is invalid
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
        "value of the setting; null: depends on the command",
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
                Some(path) => format!("{} is valid", path.display()),
                None => "there is no configuration file; the defaults apply".to_owned(),
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
                Failure::new(ErrorCode::Io, format!("cannot create {shown}")).because(error)
            })?;
            let written = opened.write_all(TEMPLATE.as_bytes());
            if written.is_err() {
                // So that the command can be repeated.
                drop(std::fs::remove_file(file));
            }
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
    let level = durability_text(durability.value);
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

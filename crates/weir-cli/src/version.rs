//! `weir version`: prints the version, and how the program was built.

use std::process::ExitCode;

use clap::Args;
use weir::OpenOptions;

use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field};

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  weir version\n  weir version -o json")]
pub(crate) struct VersionArgs {}

/// Fields of a version.
pub(crate) const FIELDS: &[Field] = &[
    field("version", "text", "version of the program"),
    field(
        "commit",
        "text",
        "commit of the source that was built, null: unknown",
    ),
    field(
        "profile",
        "text",
        "debug or release; debug builds are for tests",
    ),
    field("target", "text", "operating system and processor"),
    field(
        "durability",
        "text",
        "default durability level: when a write is acknowledged",
    ),
];

/// Runs `weir version`.
pub(crate) fn run(caller: &Caller, _args: &VersionArgs) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let text = |text: &'static str| Cell::Text(text.into());
    let target = format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH);
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    out.row(&[
        text(env!("CARGO_PKG_VERSION")),
        option_env!("WEIR_COMMIT").map_or(Cell::Nothing, text),
        text(profile),
        Cell::Text(target.into()),
        text(OpenOptions::default().durability.name()),
    ])?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

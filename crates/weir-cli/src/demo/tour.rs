//! The chapters in their order, and the text at the end.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use weir::{ErrorCode, Weir};

use super::facts::{Facts, seconds};
use super::output::{self, DemoOutput, OutputOptions, bytes, count, time};
use super::quakes::{Quakes, topic};
use super::{bank, crash, failover, load, read, reopen, rules, strongest, write};
use crate::report::Failure;
use crate::scratch::{self, ScratchDirectory};

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Events of the load chapter.
    pub(super) load_events: u64,
    /// Transfers of the bank, a multiple of its writers.
    pub(super) transfers: u64,
    /// How often the writer process is killed.
    pub(super) kills: u32,
    /// Name in the facts.
    pub(super) name: &'static str,
}

impl Size {
    /// The size of a run of `make demo`.
    pub(super) const FULL: Self = Self {
        load_events: 200_000,
        transfers: 80_000,
        kills: 5,
        name: "full",
    };
    /// The size of a run in tests.
    pub(super) const QUICK: Self = Self {
        load_events: 20_000,
        transfers: 8_000,
        kills: 2,
        name: "quick",
    };
}

/// Runs all chapters and prints the result.
pub(super) fn run(
    keep: Option<&Path>,
    size: Size,
    show: OutputOptions,
) -> anyhow::Result<ExitCode> {
    let mut output = DemoOutput::new(show)?;
    let mut facts = Facts::new();
    let start = Instant::now();
    let mut place = match ScratchDirectory::new(keep) {
        Ok(place) => place,
        Err(error) => {
            output::explain(&error, "use another directory, or omit --keep");
            return end_after_failure(&error, facts, show.json);
        }
    };
    let ended = chapters(&mut output, &mut facts, &place, size);
    if ended.is_err() && output.interrupt().is_requested() {
        return interrupted(place, facts, show.json);
    }
    if let Err(error) = ended {
        let kept = place.keep();
        let advice = format!("examine the stores, which are kept in {}", kept.display());
        output::explain(&error, &advice);
        return end_after_failure(&error, facts, show.json);
    }
    let next = next_steps(&place);
    let disk_bytes = scratch::disk_bytes(place.path())?;
    facts.insert("disk_bytes".into(), disk_bytes.into());
    facts.insert("seconds".into(), seconds(start.elapsed()));
    facts.insert("steps".into(), output.steps().into());
    facts.insert("next".into(), json!(next));
    facts.insert("ok".into(), true.into());
    let kept = place.is_kept().then(|| place.path().to_owned());
    facts.insert("kept".into(), json!(kept));
    place.close()?;
    if show.json {
        output::print(&Value::Object(facts))?;
    } else {
        summary(&output, &facts, start.elapsed())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn chapters(
    output: &mut DemoOutput,
    facts: &mut Facts,
    place: &ScratchDirectory,
    size: Size,
) -> anyhow::Result<()> {
    let quakes = Quakes::read()?;
    let file_system = scratch::file_system(place.path()).unwrap_or_else(|| "unknown".into());
    facts.insert("size".into(), size.name.into());
    facts.insert("version".into(), env!("CARGO_PKG_VERSION").into());
    facts.insert("file_system".into(), file_system.clone().into());
    facts.insert("durability".into(), "group".into());
    output.print_line(&format!(
        "Weir {}: a week of real earthquakes, in an event store inside this process.\n\
         The store is in {} ({file_system}).\n\
         A write is acknowledged after it is synced to disk.\n",
        env!("CARGO_PKG_VERSION"),
        place.path().display(),
    ))?;
    let directory = place.path().join("store");
    let weir = output.step("open", |_| {
        let start = Instant::now();
        let weir = Weir::open(&directory)?;
        let took = time(start.elapsed());
        Ok((format!("an empty store, created in {took}"), weir))
    })?;
    write::topics(output, facts, &weir, &quakes)?;
    write::quakes(output, facts, &weir, &quakes)?;
    read::keys(output, facts, &weir, &quakes)?;
    strongest::run(output, facts, &weir, &quakes)?;
    rules::analysts(output, facts, &weir, &quakes)?;
    rules::same_feed(output, facts, &weir, &quakes)?;
    rules::transactions(output, facts, &weir)?;
    crash::kill_writers(output, facts, &place.path().join("killed"), size.kills)?;
    load::run(output, facts, &weir, size.load_events)?;
    bank::run(output, facts, &place.path().join("bank"), size.transfers)?;
    failover::run(output, facts, &place.path().join("cluster"))?;
    let kept = reopen::run(output, facts, weir, &directory)?;
    add_rejected_totals(facts);
    if place.is_kept() {
        kept.write(place.path())
            .context("the facts for a later --recheck")?;
    }
    Ok(())
}

/// Adds totals that combine several chapters.
fn add_rejected_totals(facts: &mut Facts) {
    let sum = |places: &[(&str, &str)]| -> u64 {
        let number = |(chapter, name): &(&str, &str)| facts.get(*chapter)?.get(*name)?.as_u64();
        places.iter().filter_map(number).sum()
    };
    let written = sum(&[
        ("write", "events"),
        ("analysts", "accepted"),
        ("transactions", "events"),
        ("kills", "events"),
        ("load", "events"),
    ]);
    let rejected = sum(&[("analysts", "rejected"), ("same_feed", "rejected")]);
    facts.insert("events_written".into(), written.into());
    facts.insert("conditions_rejected".into(), rejected.into());
}

/// Ends a run after a failure.
fn end_after_failure(
    error: &anyhow::Error,
    mut facts: Facts,
    json: bool,
) -> anyhow::Result<ExitCode> {
    if json {
        let failed = error.downcast_ref::<output::FailedStep>();
        facts.insert("ok".into(), false.into());
        facts.insert("failed".into(), json!(failed.map(|failed| failed.name)));
        facts.insert("error".into(), output::cause(error).into());
        output::print(&Value::Object(facts))?;
    }
    Ok(ExitCode::FAILURE)
}

/// Ends an interrupted run. The error of the step is only a consequence of the interrupt.
fn interrupted(place: ScratchDirectory, mut facts: Facts, json: bool) -> anyhow::Result<ExitCode> {
    let failure = Failure::new(ErrorCode::Cancelled, "the demo was interrupted");
    let failure = if place.is_kept() {
        let kept = place.path().display();
        failure.because(format!("the unfinished stores are kept in {kept}"))
    } else {
        failure.because("its directory is removed")
    };
    place.close()?;
    if json {
        facts.insert("ok".into(), false.into());
        facts.insert("error".into(), "interrupted".into());
        output::print(&Value::Object(facts))?;
    }
    Err(failure.into())
}

/// Commands that work after the demo, in this order.
fn next_steps(place: &ScratchDirectory) -> Vec<String> {
    let kept = place.is_kept().then(|| place.path().display().to_string());
    let directory = kept.clone().unwrap_or_else(|| "quakes".into());
    let store = shell_word(&format!("{directory}/store"));
    let bank = shell_word(&format!("{directory}/bank"));
    let directory = shell_word(&directory);
    let mut next = Vec::new();
    match kept {
        Some(_) => next.push(format!("weir demo --recheck {directory}")),
        None => next.push(format!("weir demo --keep {directory}")),
    }
    next.push(format!("weir tail {} --from -3 --at {store}", topic("uw")));
    next.push(format!("weir verify --at {store}"));
    next.push(format!("weir program trace bank 2 --at {bank}"));
    next
}

/// Quotes a path as one word of a shell command.
fn shell_word(path: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+".contains(c);
    if path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

fn summary(output: &DemoOutput, facts: &Facts, took: Duration) -> anyhow::Result<()> {
    let number = |chapter: &str, name: &str| {
        let value = facts.get(chapter).and_then(|facts| facts.get(name));
        value.and_then(Value::as_u64).unwrap_or_default()
    };
    let total = |name: &str| facts.get(name).and_then(Value::as_u64).unwrap_or_default();
    output.print_line(&format!(
        "\n{} events written, {} writes rejected by a condition,\n{} events/s under load, {} on disk, {} in total.",
        count(total("events_written")),
        count(total("conditions_rejected")),
        count(number("load", "events_per_s")),
        bytes(total("disk_bytes")),
        time(took),
    ))?;
    output.print_line(&format!(
        "Verified:\n\
         - Each of {} acknowledged events of the killed writers is stored once,\n  \
           at the offset that was acknowledged.\n\
         - {} records were read back, and all checksums match.\n\
         - The store has the same digest after it was closed and reopened.\n\
         - Each of {} transfers has the verdict of a model of the bank, and no\n  \
           account was overdrawn.",
        count(number("kills", "acknowledged")),
        count(number("verify", "records")),
        count(number("bank", "transfers")),
    ))?;
    output.print_line("\nWhat to try next:")?;
    let next = facts.get("next").and_then(Value::as_array);
    for command in next.into_iter().flatten().filter_map(Value::as_str) {
        output.print_line(&format!("  {command}"))?;
    }
    Ok(())
}

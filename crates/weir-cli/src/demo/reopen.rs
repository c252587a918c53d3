//! Chapters "reopen" and "verify": the store has an equal state after a close and an open.

use std::path::Path;
use std::time::Instant;

use anyhow::ensure;
use serde_json::json;
use weir::Weir;

use super::facts::{Facts, seconds};
use super::output::{DemoOutput, bytes, count, time};
use super::recheck::{StoreSummary, read_all, verify_files};

/// Closes the store, opens it again, and reads everything.
pub(super) fn run(
    output: &mut DemoOutput,
    facts: &mut Facts,
    weir: Weir,
    directory: &Path,
) -> anyhow::Result<StoreSummary> {
    let kept = StoreSummary::of(&weir)?;
    let weir = output.step("reopen", |_| {
        weir.close()?;
        let start = Instant::now();
        let weir = Weir::open(directory)?;
        let took = start.elapsed();
        kept.compare(&weir)?;
        let report = weir.store()?.report();
        ensure!(
            report.set_aside.is_empty(),
            "damaged: {:?}",
            report.set_aside
        );
        let replayed = report.replayed_intentions;
        facts.insert(
            "reopen".into(),
            json!({"seconds": seconds(took), "replayed": replayed,
                   "digest": weir.store()?.digest().to_string()}),
        );
        let line = format!(
            "store closed, reopened in {}: {} intentions replayed, the digest is still {}",
            time(took),
            count(replayed),
            weir.store()?.digest(),
        );
        Ok((line, weir))
    })?;
    output.step("verify", |_| {
        let start = Instant::now();
        let records = read_all(&weir)?;
        ensure!(
            records == kept.records(),
            "{records} records instead of {}",
            kept.records()
        );
        weir.close()?;
        let report = verify_files(directory)?;
        ensure!(
            report.digest.is_some_and(|digest| kept.has_digest(digest)),
            "the replayed log gives another digest: {:?}",
            report.digest
        );
        let took = start.elapsed();
        facts.insert(
            "verify".into(),
            json!({"records": records, "files": report.files, "bytes": report.bytes,
                   "seconds": seconds(took)}),
        );
        let line = format!(
            "{} records read back, {} files ({}) checked in {}: all checksums match",
            count(records),
            count(report.files),
            bytes(report.bytes),
            time(took),
        );
        Ok((line, ()))
    })?;
    Ok(kept)
}

//! Project rules that no compiler or linter checks.
//!
//! Each rule is a function in a module below; it adds its violations to `Findings`. Invariant: all
//! rules run, and all violations are printed, before the check fails.

mod circles;
mod data;
mod defaults;
mod documents;
mod imports;
mod invariants;
mod manifests;
mod rust_source;
mod sources;
mod words;

use anyhow::ensure;

/// The results of the rules.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Violations: each fails the check.
    pub(crate) wrong: Vec<String>,
    /// Notes for a review; they do not fail the check.
    pub(crate) notes: Vec<String>,
}

impl Findings {
    /// Adds a violation at `place`, a path with an optional line.
    pub(crate) fn wrong(&mut self, place: &str, what: &str) {
        self.wrong.push(format!("{place}: {what}"));
    }

    /// Adds a note on `place`.
    pub(crate) fn note(&mut self, place: &str, what: &str) {
        self.notes.push(format!("{place}: {what}"));
    }
}

/// Runs all rules.
pub(crate) fn tidy() -> anyhow::Result<()> {
    let mut findings = Findings::default();
    let files = crate::tree::files()?;
    let packages = crate::metadata::load()?;
    imports::check(&packages, &mut findings);
    circles::check(&packages, &mut findings)?;
    manifests::check(&packages, &files, &mut findings)?;
    sources::check(&packages, &files, &mut findings)?;
    documents::check(&files, &mut findings)?;
    data::check(&files, &mut findings)?;
    defaults::check(&files, &mut findings)?;
    invariants::check(&files, &mut findings)?;
    words::check(&files, &mut findings)?;
    for note in &findings.notes {
        println!("note: {note}");
    }
    for wrong in &findings.wrong {
        println!("tidy: {wrong}");
    }
    ensure!(
        findings.wrong.is_empty(),
        "{} violations, listed above",
        findings.wrong.len()
    );
    println!("{} files, {} packages", files.len(), packages.len());
    Ok(())
}

//! Records the state of the stores that a run keeps, and checks it in a later run.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use weir::{Digest, OpenOptions, ReadFrom, Severity, VerifyReport, Weir};

use super::output::{self, DemoOutput, OutputOptions, count};

/// Name of the file in the kept directory.
const FILE: &str = "demo.json";

/// The state of a store in a few numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreSummary {
    digest: String,
    /// Name, newest offset and number of keys of each topic, by name.
    topics: Vec<(String, u64, u64)>,
}

impl StoreSummary {
    /// The summary of the store at this moment.
    pub(super) fn of(weir: &Weir) -> anyhow::Result<Self> {
        let store = weir.store()?;
        let topics = store.topics(true);
        Ok(Self {
            digest: store.digest().to_string(),
            topics: topics
                .into_iter()
                .map(|topic| (topic.name, topic.last.0, topic.keys))
                .collect(),
        })
    }

    /// Whether the digest of the summary is equal to `digest`.
    pub(super) fn has_digest(&self, digest: Digest) -> bool {
        self.digest == digest.to_string()
    }

    /// Number of records of all topics.
    pub(super) fn records(&self) -> u64 {
        self.topics.iter().map(|(_, last, _)| last).sum()
    }

    /// Checks that the store still has this state.
    pub(super) fn compare(&self, weir: &Weir) -> anyhow::Result<()> {
        let now = Self::of(weir)?;
        for (was, is) in self.topics.iter().zip(&now.topics) {
            ensure!(
                was == is,
                "a topic changed (name, newest offset, keys): {was:?} before, {is:?} now"
            );
        }
        ensure!(
            self.topics.len() == now.topics.len(),
            "the number of topics changed from {} to {}",
            self.topics.len(),
            now.topics.len()
        );
        ensure!(
            self.digest == now.digest,
            "the digest changed from {} to {}: the history differs",
            self.digest,
            now.digest
        );
        Ok(())
    }

    /// Writes the summary to the demo's directory.
    pub(super) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let text = json!({"digest": self.digest, "topics": self.topics});
        Ok(fs::write(directory.join(FILE), format!("{text:#}\n"))?)
    }

    fn read(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(FILE);
        let text = fs::read(&path)
            .with_context(|| format!("cannot read {}, which --keep writes", path.display()))?;
        let value: Value = serde_json::from_slice(&text)?;
        let kept = || {
            let topics = value.get("topics")?.as_array()?;
            let topic = |topic: &Value| {
                let name = topic.get(0)?.as_str()?.to_owned();
                Some((name, topic.get(1)?.as_u64()?, topic.get(2)?.as_u64()?))
            };
            Some(Self {
                digest: value.get("digest")?.as_str()?.to_owned(),
                topics: topics.iter().map(topic).collect::<Option<_>>()?,
            })
        };
        kept().with_context(|| format!("{} is not a file that --keep writes", path.display()))
    }
}

/// Checks the store that an earlier run kept in `directory`.
pub(super) fn run(directory: &Path, show: OutputOptions) -> anyhow::Result<ExitCode> {
    let mut output = DemoOutput::new(show)?;
    let result = check(&mut output, directory);
    if let Err(error) = &result {
        let advice = if directory.join(FILE).exists() {
            "run `weir verify`, or restore a backup; the directory was not changed"
        } else {
            "name a directory that an earlier `weir demo --keep DIR` created"
        };
        output::explain(error, advice);
    }
    if show.json {
        let facts = match &result {
            Ok(records) => json!({"ok": true, "records": records}),
            Err(error) => {
                let failed = error.downcast_ref::<output::FailedStep>();
                let failed = failed.map(|failed| failed.name);
                json!({"ok": false, "failed": failed, "error": output::cause(error)})
            }
        };
        output::print(&facts)?;
    }
    Ok(match result {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

fn check(output: &mut DemoOutput, directory: &Path) -> anyhow::Result<u64> {
    let kept = StoreSummary::read(directory)?;
    let weir = output.step("reopen", |_| {
        let options = OpenOptions {
            create: false,
            ..OpenOptions::default()
        };
        let weir = Weir::open_with(directory.join("store"), &options)?;
        kept.compare(&weir)?;
        Ok((format!("the digest is still {}", kept.digest), weir))
    })?;
    output.step("verify", |_| {
        let records = read_all(&weir)?;
        weir.close()?;
        let files = verify_files(&directory.join("store"))?.files
            + verify_files(&directory.join("bank"))?.files;
        let line = format!(
            "{} records read, {files} files checked: all checksums match",
            count(records)
        );
        Ok((line, records))
    })
}

/// Checks the files of a closed store, and returns the report. Notes are accepted: a store that
/// wrote a snapshot during the writes has records that are newer than the snapshot.
pub(super) fn verify_files(directory: &Path) -> anyhow::Result<VerifyReport> {
    let report = weir::verify(directory)?;
    let mut findings = report.findings.iter();
    if let Some(finding) = findings.find(|finding| finding.severity > Severity::Note) {
        bail!(
            "{} at byte {}: {}",
            finding.file,
            finding.position,
            finding.what
        );
    }
    Ok(report)
}

/// Reads every record of every topic and checks that offsets are dense.
/// Reading checks each block's checksum. Returns the number of records.
pub(super) fn read_all(weir: &Weir) -> anyhow::Result<u64> {
    let mut records = 0;
    for info in weir.store()?.topics(true) {
        let mut last = 0;
        for page in weir.topic(&info.name)?.pages(ReadFrom::Start)? {
            for record in &page? {
                let offset = record?.offset.0;
                ensure!(
                    offset == last + 1,
                    "{} has offset {offset} after {last}",
                    info.name
                );
                last = offset;
            }
        }
        ensure!(last == info.last.0, "{} ends at {last}", info.name);
        records += last;
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::fs;

    use tempfile::TempDir;
    use weir::Weir;

    #[test]
    fn records_after_a_snapshot_are_sound_and_a_changed_byte_is_not() {
        let dir = TempDir::new().unwrap();
        let weir = Weir::open(dir.path()).unwrap();
        let topic = weir.topic("t").unwrap();
        assert!(topic.ensure().unwrap());
        // The value is too large for the topic to buffer, so it is written at once.
        let value = vec![b'x'; 1 << 20];
        assert!(topic.put("a", &value).unwrap().is_valid());
        weir.store().unwrap().checkpoint().unwrap();
        assert!(topic.put("b", &value).unwrap().is_valid());
        weir.close().unwrap();
        let report = super::verify_files(dir.path()).unwrap();
        assert_eq!(report.findings.len(), 1, "{:?}", report.findings);

        let segment = dir.path().join("topics/00000000/0000000001.seg");
        let mut bytes = fs::read(&segment).unwrap();
        *bytes.get_mut(1 << 19).unwrap() ^= 1;
        fs::write(&segment, bytes).unwrap();
        assert!(super::verify_files(dir.path()).is_err());
    }
}

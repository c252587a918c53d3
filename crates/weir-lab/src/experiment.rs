//! Experiment files: what is compared, how, and what would be claimed.
//!
//! TOML with a fixed schema; an unknown field is an error, so a misspelt
//! bound cannot silently claim nothing. [`Experiment::read`] checks that
//! every name a claim mentions exists. The fields are explained in
//! `docs/guide/lab.md`.

pub mod matrix;
pub mod reference;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::contender::BUILT_IN;
use crate::error::{LabError, Result};
use reference::Reference;

/// Most contenders, workloads or claims of one file.
pub const ENTRIES_MAX: usize = 256;
/// Most blocks of one run.
pub const BLOCKS_MAX: usize = 1_000;
/// Most samples of one cell in one block.
pub const SAMPLES_MAX: usize = 10_000;

/// A whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// `[experiment]`.
    #[serde(rename = "experiment")]
    pub header: Header,
    /// `[[contender]]`.
    #[serde(rename = "contender")]
    pub contenders: Vec<ContenderSpec>,
    /// `[[workload]]`.
    #[serde(rename = "workload")]
    pub workloads: Vec<WorkloadSpec>,
    /// `[[skip]]`.
    #[serde(default, rename = "skip")]
    pub skips: Vec<Skip>,
    /// `[[claim]]`.
    #[serde(default, rename = "claim")]
    pub claims: Vec<ClaimSpec>,
}

/// How contenders are driven.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Resident children that run batches of iterations on demand.
    Inproc,
    /// A command is run to its end for every sample.
    Process,
}

/// Where contenders run.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Pin {
    /// On this CPU.
    Cpu(usize),
    /// `"none"`: wherever the kernel puts them, for contenders with threads.
    Named(PinName),
}

/// The named ways of pinning.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum PinName {
    /// Not pinned.
    None,
    /// On the last CPU this process may use.
    Auto,
}

/// `[experiment]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Short name: letters, digits, `-`.
    pub name: String,
    /// One line.
    pub title: String,
    /// The question the claims answer.
    pub question: String,
    /// Another name, usually of the study it repeats.
    pub alias: Option<String>,
    /// How contenders are driven.
    pub mode: Mode,
    /// Blocks of a run.
    #[serde(default = "default_blocks")]
    pub blocks: usize,
    /// Samples of each cell in each block.
    #[serde(default = "default_samples")]
    pub samples: usize,
    /// Shortest batch, microseconds (`inproc`).
    #[serde(default = "default_batch_us")]
    pub batch_us: u64,
    /// Warm-up of each cell in each block, milliseconds (`inproc`); 0 runs
    /// every sample as it comes, one iteration a batch.
    #[serde(default = "default_warmup_ms")]
    pub warmup_ms: u64,
    /// Seed of every random draw.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Where contenders run.
    #[serde(default = "default_pin")]
    pub pin: Pin,
    /// Contender that gets a twin, for the noise floor.
    pub twin: Option<String>,
    /// Share of foreign CPU time above which a block is disturbed; 1 never.
    #[serde(default = "default_foreign_max")]
    pub foreign_max: f64,
    /// What its contenders are built from, by the words of `lab/peers/install.sh`;
    /// none means that everything is built in.
    #[serde(default)]
    pub peers: Vec<Peers>,
    /// Whether the canary is read around each block; for tests of the lab.
    #[serde(default = "default_true")]
    pub canary: bool,
    /// Longest answer of a contender, seconds.
    #[serde(default = "default_timeout_s")]
    pub timeout_s: u64,
    /// Metrics the tables show, of `wall`, `cpu`, `max_rss` and what
    /// contenders report.
    #[serde(default = "default_show")]
    pub show: Vec<String>,
}

/// A group of programs that `lab/peers/install.sh` gets and builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peers {
    /// Parsers and SQLite, in C and C++.
    Libraries,
    /// Redis, NATS, etcd, Kafka.
    Brokers,
    /// HTTP servers and the client that loads them.
    Http,
    /// Programs that find items in pages of JSON.
    Json,
    /// Our packages for other languages.
    Bindings,
    /// Emacs with our module.
    Emacs,
}

impl Peers {
    /// The word of the script.
    pub fn word(self) -> &'static str {
        match self {
            Peers::Libraries => "libraries",
            Peers::Brokers => "brokers",
            Peers::Http => "http",
            Peers::Json => "json",
            Peers::Bindings => "bindings",
            Peers::Emacs => "emacs",
        }
    }
}

fn default_blocks() -> usize {
    10
}
fn default_samples() -> usize {
    20
}
fn default_batch_us() -> u64 {
    200
}
fn default_warmup_ms() -> u64 {
    10
}
fn default_seed() -> u64 {
    1
}
fn default_pin() -> Pin {
    Pin::Named(PinName::Auto)
}
fn default_foreign_max() -> f64 {
    0.10
}
fn default_timeout_s() -> u64 {
    120
}
fn default_show() -> Vec<String> {
    vec!["wall".to_owned()]
}
fn default_true() -> bool {
    true
}

/// `[[contender]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContenderSpec {
    /// Name in tables and claims.
    pub name: String,
    /// One of the contenders built into the lab.
    pub builtin: Option<String>,
    /// Or a program with its arguments.
    pub command: Option<Vec<String>>,
    /// Which of a workload's files it reads.
    pub syntax: Option<String>,
    /// Contenders of one answer group must give equal answers.
    pub answers: Option<String>,
    /// Patterns of the workloads it takes part in; none means all.
    #[serde(default)]
    pub workloads: Vec<String>,
    /// Parameters it gets with every workload.
    #[serde(default)]
    pub params: BTreeMap<String, toml::Value>,
    /// What its program needs to be built. Where the program is not there, the
    /// contender is left out and reports say so; without this it is an error.
    pub needs: Option<String>,
}

/// `[[workload]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Name in tables and claims; `{size}` stands for a member of `sizes`.
    pub name: String,
    /// Input file by syntax, relative to the repository.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Inputs made at run time instead: `binary-packet`.
    pub generate: Option<String>,
    /// Repeats the workload for each size.
    #[serde(default)]
    pub sizes: Vec<u64>,
    /// Units of work in one iteration, which times are divided by: a number,
    /// or `"size"`.
    #[serde(default)]
    pub items: Items,
    /// Parameters every contender gets.
    #[serde(default)]
    pub params: BTreeMap<String, toml::Value>,
    /// Samples of its cells in each block, at most the experiment's; for
    /// workloads whose single iteration takes long.
    pub samples: Option<usize>,
    /// Whether requests wait for answers.
    #[serde(default)]
    pub load: Load,
    /// Whether `--quick` runs it.
    #[serde(default = "default_true")]
    pub quick: bool,
}

/// When a workload's requests are sent.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// Each caller sends its next request after the answer to the one before.
    #[default]
    Closed,
    /// Requests are sent at their times, whether or not answers came. A latency counts
    /// from the time the request was due.
    Open,
}

impl Load {
    /// The word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Load::Closed => "closed",
            Load::Open => "open",
        }
    }
}

/// Units of work in one iteration.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Items {
    /// As many.
    Count(u64),
    /// `"size"`: the member of `sizes`.
    Named(String),
}

impl Default for Items {
    fn default() -> Items {
        Items::Count(1)
    }
}

/// `[[skip]]`: a combination that is left out, and why.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skip {
    /// Pattern of contender names.
    pub contender: String,
    /// Pattern of workload names.
    pub workload: String,
    /// Printed by `check`.
    pub reason: String,
}

/// Which way a claim points.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Expect {
    /// The value or ratio stays at or below the bar.
    Lower,
    /// The value or ratio stays at or above the bar.
    Higher,
}

/// `[[claim]]`. The claimed figure is the first of `compare`, divided by the
/// best of the others, or by the sum of `bound`; or what it has more than the
/// best of the others, against `max_more`; or alone against `max_value` or
/// `min_value`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimSpec {
    /// What is claimed, as a sentence.
    pub text: String,
    /// References; the first against the rest.
    pub compare: Vec<String>,
    /// Metric of references that name none.
    #[serde(default = "default_metric")]
    pub metric: String,
    /// Which way.
    pub expect: Expect,
    /// Highest ratio that holds.
    pub max_ratio: Option<f64>,
    /// Lowest ratio that holds.
    pub min_ratio: Option<f64>,
    /// Smallest difference from 1 that counts; at least the noise floor.
    pub min_effect: Option<f64>,
    /// Highest value that holds, in the metric's unit.
    pub max_value: Option<f64>,
    /// Lowest value that holds.
    pub min_value: Option<f64>,
    /// How much more than the best of the others the first may have, in the
    /// metric's unit.
    pub max_more: Option<f64>,
    /// A sum of products the first is compared with.
    #[serde(default)]
    pub bound: Vec<Term>,
    /// Patterns of the workloads that references without one are taken over.
    #[serde(default)]
    pub workloads: Vec<String>,
}

fn default_metric() -> String {
    "wall".to_owned()
}

/// One product of a bound.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// Constant.
    pub factor: f64,
    /// References whose values are multiplied with it.
    pub of: Vec<String>,
}

impl Experiment {
    /// Reads and checks the file at `path`.
    pub fn read(path: &Path) -> Result<Experiment> {
        let text = fs::read_to_string(path).map_err(LabError::io(path))?;
        Experiment::parse(&text, path)
    }

    /// Reads and checks `text`; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Experiment> {
        let experiment: Experiment = toml::from_str(text).map_err(|source| LabError::Schema {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        experiment.validate()?;
        Ok(experiment)
    }

    /// The load of the workload called `workload`, its size filled in.
    pub fn load_of(&self, workload: &str) -> Load {
        let named = |spec: &&WorkloadSpec| {
            let sizes = spec.sizes.iter().map(u64::to_string);
            let mut names = sizes.map(|size| spec.name.replace("{size}", &size));
            spec.name == workload || names.any(|name| name == workload)
        };
        let spec = self.workloads.iter().find(named);
        spec.map_or(Load::default(), |spec| spec.load)
    }

    fn complain<T>(&self, what: impl Into<String>) -> Result<T> {
        Err(LabError::experiment(&self.header.name, what))
    }

    fn validate(&self) -> Result<()> {
        let header = &self.header;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if header.name.is_empty() || !header.name.chars().all(plain) {
            return self.complain("a name is letters, digits and `-`");
        }
        for (what, count, most) in [
            ("contenders", self.contenders.len(), ENTRIES_MAX),
            ("workloads", self.workloads.len(), ENTRIES_MAX),
            ("blocks", header.blocks, BLOCKS_MAX),
            ("samples", header.samples, SAMPLES_MAX),
        ] {
            if count == 0 || count > most {
                return self.complain(format!("{count} {what}; 1 to {most} are possible"));
            }
        }
        if !(0.0..=1.0).contains(&header.foreign_max) {
            return self.complain("foreign_max is a share, 0 to 1");
        }
        for contender in &self.contenders {
            if contender.builtin.is_some() == contender.command.is_some() {
                return self.complain(format!(
                    "contender `{}` needs either `builtin` or `command`",
                    contender.name
                ));
            }
            if let Some(name) = &contender.builtin
                && !BUILT_IN.iter().any(|(known, _)| known == name)
            {
                return self.complain(format!("there is no built-in contender `{name}`"));
            }
            if contender.command.as_ref().is_some_and(Vec::is_empty) {
                return self.complain(format!("contender `{}`: empty command", contender.name));
            }
        }
        if let Some(twin) = &header.twin
            && !self
                .contenders
                .iter()
                .any(|contender| contender.name == *twin)
        {
            return self.complain(format!("twin `{twin}` is no contender"));
        }
        self.claims
            .iter()
            .try_for_each(|claim| self.validate_claim(claim))
    }

    fn validate_claim(&self, claim: &ClaimSpec) -> Result<()> {
        let place = format!("claim \"{}\"", claim.text);
        let bars = [
            claim.max_ratio,
            claim.min_ratio,
            claim.min_effect,
            claim.max_value,
            claim.min_value,
            claim.max_more,
        ];
        let given: Vec<f64> = bars.into_iter().flatten().collect();
        if given.len() != 1 || given.iter().any(|bar| !bar.is_finite() || *bar < 0.0) {
            return self.complain(format!(
                "{place} needs exactly one of max_ratio, min_ratio, min_effect, max_value, min_value, max_more, and not below 0"
            ));
        }
        let upper = claim.max_ratio.or(claim.max_value).or(claim.max_more);
        let upper = upper.is_some();
        let lower = claim.min_ratio.or(claim.min_value).is_some();
        if (upper && claim.expect != Expect::Lower) || (lower && claim.expect != Expect::Higher) {
            return self.complain(format!(
                "{place}: `expect` and the bar point in different ways"
            ));
        }
        let absolute = claim.max_value.or(claim.min_value).is_some();
        let against = claim.compare.len() > 1 || !claim.bound.is_empty();
        if claim.compare.is_empty() || absolute == against {
            return self.complain(format!(
                "{place}: a ratio needs something to compare with, a value stands alone"
            ));
        }
        let terms = claim.bound.iter().flat_map(|term| &term.of);
        for reference in claim.compare.iter().chain(terms) {
            let contender = Reference::parse(reference, &claim.metric).contender;
            if !self.contenders.iter().any(|known| known.name == contender) {
                return self.complain(format!("{place}: `{contender}` is no contender"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[experiment]
name = "t"
title = "t"
question = "?"
mode = "inproc"
[[contender]]
name = "a"
builtin = "spin"
[[workload]]
name = "w"
params = { units = 5 }
[[claim]]
text = "a is quick"
compare = ["a"]
expect = "lower"
max_value = 10.0
"#;

    fn complaint(text: &str) -> String {
        Experiment::parse(text, Path::new("t.toml"))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn defaults_are_ten_blocks_of_twenty_samples() {
        let experiment = Experiment::parse(GOOD, Path::new("t.toml")).unwrap();
        assert_eq!(
            (experiment.header.blocks, experiment.header.samples),
            (10, 20)
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, say) in [
            ("question", "qestion", "unknown field `qestion`"),
            (
                "max_value = 10.0",
                "max_valu = 1.0",
                "unknown field `max_valu`",
            ),
            (
                "compare = [\"a\"]",
                "compare = [\"b\"]",
                "`b` is no contender",
            ),
            (
                "max_value = 10.0",
                "max_ratio = 1.0",
                "something to compare with",
            ),
            ("max_value = 10.0", "min_value = 1.0", "different ways"),
            ("builtin = \"spin\"", "", "either `builtin` or `command`"),
            ("\"spin\"", "\"spun\"", "no built-in contender `spun`"),
            ("name = \"t\"", "name = \"t/../u\"", "letters, digits"),
            ("mode =", "blocks = 0\nmode =", "0 blocks"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            let message = complaint(&text);
            assert!(message.contains(say), "{say:?} not in {message:?}");
        }
    }
}

//! Experiment files: contenders, workloads, measurement settings and claims.
//!
//! The format is TOML with a fixed schema. An unknown field is an error, so a misspelt limit cannot
//! be ignored silently. [`Experiment::read`] checks that every name in a claim exists.
//! `docs/guide/lab.md` explains the fields.

pub mod matrix;
pub mod reference;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::contender::BUILT_IN;
use crate::error::{LabError, Result};
use reference::{Reference, matches};

/// Maximum number of contenders, workloads or claims in a file.
pub const ENTRIES_MAX: usize = 256;
/// Maximum number of blocks of a run.
pub const BLOCKS_MAX: usize = 1_000;
/// Maximum number of samples of a cell in a block.
pub const SAMPLES_MAX: usize = 10_000;
/// Longest time of the quick form, in seconds.
pub const QUICK_S_MAX: u64 = 60;

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
    /// The comment at the start of the file, without its marks. It describes the set-up, and the report
    /// shows it.
    #[serde(skip)]
    pub setup: String,
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
    /// `"none"`: not pinned, for contenders with threads.
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
    /// Another name, usually of the study that it repeats.
    pub alias: Option<String>,
    /// What the study that it repeats did and said. The report shows it beside the claims with
    /// `study = true`.
    pub study: Option<String>,
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
    /// Warm-up of each cell in each block, in milliseconds (`inproc`). With 0, each sample is one
    /// iteration without a warm-up.
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
    /// Share of foreign CPU time above which a block is disturbed; 1: never.
    #[serde(default = "default_foreign_max")]
    pub foreign_max: f64,
    /// The groups that its contenders need, as words of `lab/peers/install.sh`; empty if all
    /// contenders are built in.
    #[serde(default)]
    pub peers: Vec<Peers>,
    /// Whether the canary is read around each block; for tests of the lab.
    #[serde(default = "default_true")]
    pub canary: bool,
    /// Time limit for an answer of a contender, in seconds.
    #[serde(default = "default_timeout_s")]
    pub timeout_s: u64,
    /// Time of the quick form with its check, in seconds. Cells that do not fit are left out.
    #[serde(default = "default_quick_s")]
    pub quick_s: u64,
    /// Metrics in the tables: `wall`, `cpu`, `max_rss`, and those that contenders report.
    #[serde(default = "default_show")]
    pub show: Vec<String>,
}

/// A group of programs that `lab/peers/install.sh` downloads and builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peers {
    /// Parsers and SQLite, in C and C++.
    Libraries,
    /// Redis, NATS, etcd, Kafka.
    Brokers,
    /// Event stores in Rust: `UmaDB` and S2.
    Stores,
    /// HTTP servers and the client that loads them.
    Http,
    /// Programs that find items in pages of JSON.
    Json,
    /// Our codec from C.
    Codec,
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
            Peers::Stores => "stores",
            Peers::Http => "http",
            Peers::Json => "json",
            Peers::Codec => "codec",
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
fn default_quick_s() -> u64 {
    10
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
    /// The syntax of the input files that it reads.
    pub syntax: Option<String>,
    /// Contenders of one answer group must give equal answers.
    pub answers: Option<String>,
    /// Patterns of the workloads in which it takes part; empty means all.
    #[serde(default)]
    pub workloads: Vec<String>,
    /// Why it takes part in these workloads only; the report shows it.
    pub scope: Option<String>,
    /// Parameters that it gets with every workload.
    #[serde(default)]
    pub params: BTreeMap<String, toml::Value>,
    /// What its program needs to be built. If the program is missing, the contender is left out and
    /// reports say so. Without this field, a missing program is an error.
    pub needs: Option<String>,
    /// Whether a run can be recorded in which this contender is left out because of `needs`.
    #[serde(default)]
    pub optional: bool,
    /// Whether `--quick` runs this contender.
    #[serde(default = "default_true")]
    pub quick: bool,
}

impl ContenderSpec {
    /// Whether its patterns include the workload of this name.
    pub fn takes_part(&self, workload: &str) -> bool {
        let mut patterns = self.workloads.iter();
        self.workloads.is_empty() || patterns.any(|pattern| matches(pattern, workload))
    }

    /// The first program of its command that is missing in the directory `peers`.
    pub fn missing_program(&self, peers: &Path) -> Option<PathBuf> {
        let words = self.command.iter().flatten();
        let programs = words.filter_map(|word| word.strip_prefix("{peers}/"));
        let mut paths = programs.map(|program| peers.join(program));
        paths.find(|path| !path.is_file())
    }
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
    /// Inputs that are generated at run time instead: `binary-packet`, `chat-session` or
    /// `jpeg-packet`.
    pub generate: Option<String>,
    /// Repeats the workload for each size.
    #[serde(default)]
    pub sizes: Vec<u64>,
    /// Units of work in one iteration, by which times are divided: a number, or `"size"`.
    #[serde(default)]
    pub items: Items,
    /// Parameters for every contender.
    #[serde(default)]
    pub params: BTreeMap<String, toml::Value>,
    /// Samples of its cells in each block, at most those of the experiment; for workloads with long
    /// iterations.
    pub samples: Option<usize>,
    /// Whether a request waits for the previous answer.
    #[serde(default)]
    pub load: Load,
    /// Whether `--quick` runs this workload.
    #[serde(default = "default_true")]
    pub quick: bool,
    /// Whether it reads the site that `--site` names. With that option, only such workloads run;
    /// without it, all others.
    #[serde(default)]
    pub site: bool,
}

/// When a workload's requests are sent.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// Each caller sends its next request after the answer to the one before.
    #[default]
    Closed,
    /// Requests are sent at fixed times, whether or not answers have arrived. A latency counts from
    /// the time when the request was due.
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
    /// A fixed number.
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

/// The direction of a claim.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Expect {
    /// The value or ratio must be at most the limit.
    Lower,
    /// The value or ratio must be at least the limit.
    Higher,
}

/// `[[claim]]`. The claimed figure is computed from the first reference of `compare`: divided by
/// the best of the others or by the sum of `bound`, minus the best of the others (`max_more`), or
/// alone (`max_value`, `min_value`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimSpec {
    /// The claim as a sentence.
    pub text: String,
    /// References; the first is compared with the others.
    pub compare: Vec<String>,
    /// Metric of references without a metric.
    #[serde(default = "default_metric")]
    pub metric: String,
    /// The direction.
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
    /// Maximum difference between the first and the best of the others, in the unit of the metric.
    pub max_more: Option<f64>,
    /// A sum of products with which the first reference is compared.
    #[serde(default)]
    pub bound: Vec<Term>,
    /// Patterns of the workloads for references without a workload.
    #[serde(default)]
    pub workloads: Vec<String>,
    /// Whether the compared contenders are equal. Such a claim must not hold, and the report counts
    /// how often it does.
    #[serde(default)]
    pub equal: bool,
    /// Whether the study of the experiment makes this claim.
    #[serde(default)]
    pub study: bool,
    /// Why it does not hold; the report shows it if the claim does not hold, or cannot be decided.
    pub loss: Option<String>,
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
    /// References by whose values the constant is multiplied.
    pub of: Vec<String>,
}

impl Experiment {
    /// Reads and checks the file at `path`.
    pub fn read(path: &Path) -> Result<Experiment> {
        let text = fs::read_to_string(path).map_err(LabError::io(path))?;
        Experiment::parse(&text, path)
    }

    /// Reads and checks `text`; `path` is for error messages.
    pub fn parse(text: &str, path: &Path) -> Result<Experiment> {
        let mut experiment: Experiment =
            toml::from_str(text).map_err(|source| LabError::Schema {
                path: path.to_owned(),
                source: Box::new(source),
            })?;
        experiment.setup = first_comment(text);
        experiment.validate()?;
        Ok(experiment)
    }

    /// The entry that leaves out `contender` at `workload`.
    pub fn skip_of(&self, contender: &str, workload: &str) -> Option<&Skip> {
        let mut skips = self.skips.iter();
        skips.find(|skip| matches(&skip.contender, contender) && matches(&skip.workload, workload))
    }

    /// The load of the workload `workload`, whose size is filled in.
    pub fn load_of(&self, workload: &str) -> Load {
        let spec = self.spec_of(workload);
        spec.map_or(Load::default(), |(spec, _)| spec.load)
    }

    /// The number that is parameter `name` of the workload `workload`, whose size is filled in.
    pub fn number_of(&self, workload: &str, name: &str) -> Option<f64> {
        let (spec, size) = self.spec_of(workload)?;
        let value = spec.params.get(name)?;
        let is_size = value.as_str() == Some("{size}");
        let text = if is_size { size? } else { value.to_string() };
        text.parse().ok()
    }

    /// The entry of the workload `workload`, and its size.
    fn spec_of(&self, workload: &str) -> Option<(&WorkloadSpec, Option<String>)> {
        self.workloads.iter().find_map(|spec| {
            if spec.name == workload {
                return Some((spec, None));
            }
            let mut sizes = spec.sizes.iter().map(u64::to_string);
            let size = sizes.find(|size| spec.name.replace("{size}", size) == workload)?;
            Some((spec, Some(size)))
        })
    }

    fn invalid<T>(&self, what: impl Into<String>) -> Result<T> {
        Err(LabError::experiment(&self.header.name, what))
    }

    fn validate(&self) -> Result<()> {
        let header = &self.header;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if header.name.is_empty() || !header.name.chars().all(plain) {
            return self.invalid("a name is letters, digits and `-`");
        }
        for (what, count, most) in [
            ("contenders", self.contenders.len(), ENTRIES_MAX),
            ("workloads", self.workloads.len(), ENTRIES_MAX),
            ("blocks", header.blocks, BLOCKS_MAX),
            ("samples", header.samples, SAMPLES_MAX),
        ] {
            if count == 0 || count > most {
                return self.invalid(format!("{count} {what}; 1 to {most} are possible"));
            }
        }
        if !(0.0..=1.0).contains(&header.foreign_max) {
            return self.invalid("foreign_max is a share, 0 to 1");
        }
        if !(1..=QUICK_S_MAX).contains(&header.quick_s) {
            return self.invalid(format!("quick_s is 1 to {QUICK_S_MAX} seconds"));
        }
        for contender in &self.contenders {
            if contender.builtin.is_some() == contender.command.is_some() {
                return self.invalid(format!(
                    "contender `{}` needs either `builtin` or `command`",
                    contender.name
                ));
            }
            if let Some(name) = &contender.builtin
                && !BUILT_IN.iter().any(|(known, _)| known == name)
            {
                return self.invalid(format!("there is no built-in contender `{name}`"));
            }
            if contender.command.as_ref().is_some_and(Vec::is_empty) {
                return self.invalid(format!("contender `{}`: empty command", contender.name));
            }
        }
        if let Some(twin) = &header.twin
            && !self
                .contenders
                .iter()
                .any(|contender| contender.name == *twin)
        {
            return self.invalid(format!("twin `{twin}` is not a contender"));
        }
        if header.study.is_none() && self.claims.iter().any(|claim| claim.study) {
            return self.invalid("a claim of a study needs the field `study` in [experiment]");
        }
        self.claims
            .iter()
            .try_for_each(|claim| self.validate_claim(claim))
    }

    fn validate_claim(&self, claim: &ClaimSpec) -> Result<()> {
        let name = format!("claim \"{}\"", claim.text);
        let limits = [
            claim.max_ratio,
            claim.min_ratio,
            claim.min_effect,
            claim.max_value,
            claim.min_value,
            claim.max_more,
        ];
        let given: Vec<f64> = limits.into_iter().flatten().collect();
        if given.len() != 1 || given.iter().any(|limit| !limit.is_finite() || *limit < 0.0) {
            return self.invalid(format!(
                "{name} needs exactly one of max_ratio, min_ratio, min_effect, max_value, min_value, max_more, and not below 0"
            ));
        }
        let upper = claim.max_ratio.or(claim.max_value).or(claim.max_more);
        let upper = upper.is_some();
        let lower = claim.min_ratio.or(claim.min_value).is_some();
        if (upper && claim.expect != Expect::Lower) || (lower && claim.expect != Expect::Higher) {
            return self.invalid(format!("{name}: `expect` does not match the limit"));
        }
        let absolute = claim.max_value.or(claim.min_value).is_some();
        let against = claim.compare.len() > 1 || !claim.bound.is_empty();
        if claim.compare.is_empty() || absolute == against {
            return self.invalid(format!(
                "{name}: a ratio needs a second reference or `bound`, and a value has neither"
            ));
        }
        let terms = claim.bound.iter().flat_map(|term| &term.of);
        for reference in claim.compare.iter().chain(terms) {
            let contender = Reference::parse(reference, &claim.metric).contender;
            if !self.contenders.iter().any(|known| known.name == contender) {
                return self.invalid(format!("{name}: `{contender}` is not a contender"));
            }
        }
        Ok(())
    }
}

/// The comment at the start of `text`, without its marks.
fn first_comment(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix('#'));
    let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
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

    fn message_of(text: &str) -> String {
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
    fn an_error_names_the_mistake() {
        for (from, to, expected) in [
            ("question", "qestion", "unknown field `qestion`"),
            (
                "max_value = 10.0",
                "max_valu = 1.0",
                "unknown field `max_valu`",
            ),
            (
                "compare = [\"a\"]",
                "compare = [\"b\"]",
                "`b` is not a contender",
            ),
            (
                "max_value = 10.0",
                "max_ratio = 1.0",
                "needs a second reference",
            ),
            ("max_value = 10.0", "min_value = 1.0", "does not match"),
            ("builtin = \"spin\"", "", "either `builtin` or `command`"),
            ("\"spin\"", "\"spun\"", "no built-in contender `spun`"),
            ("name = \"t\"", "name = \"t/../u\"", "letters, digits"),
            ("mode =", "blocks = 0\nmode =", "0 blocks"),
            (
                "max_value = 10.0",
                "max_value = 10.0\nstudy = true",
                "needs the field `study`",
            ),
        ] {
            let text = GOOD.replacen(from, to, 1);
            let message = message_of(&text);
            assert!(
                message.contains(expected),
                "{expected:?} not in {message:?}"
            );
        }
    }
}

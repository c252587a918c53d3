//! Result sets: one directory for each run, readable after every block.
//!
//! ```text
//! lab/results/<time>-<name>-<id>/
//!   experiment.toml   the experiment file of the run
//!   plan.json         seed, blocks, cells, answers, iterations of a batch
//!   fingerprint.json  the machine and the builds
//!   blocks/B000.jsonl one line about the block, then one line a sample
//!   summary.json  report.md   generated from the files above
//! ```
//!
//! Invariants: a file under its final name is complete (written under another name, synced,
//! renamed), so a crash loses at most the block in progress. A disturbed block that was repeated
//! keeps its samples as `B000.disturbed.jsonl`.

mod recorded;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::canary::Reading;
use crate::error::{LabError, Result};
use crate::experiment::matrix::Absent;
use crate::machine::Shares;
use crate::protocol::Answer;

/// Version in every stored file; older versions stay readable.
pub const SCHEMA: u32 = 1;

/// The plan of a run; fixed once the first block starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Seed of every draw.
    pub seed: u64,
    /// Blocks to run.
    pub blocks: usize,
    /// Samples of each cell in a block.
    pub samples: usize,
    /// Whether this is a quick run, which only checks that everything works.
    pub quick: bool,
    /// Share of foreign CPU time above which a block is disturbed.
    pub foreign_max: f64,
    /// Requested contenders; empty means all.
    pub only: Vec<String>,
    /// Short hash of the fingerprint.
    pub fingerprint: String,
    /// The cells, by number.
    pub cells: Vec<PlannedCell>,
    /// Contenders that were left out because their program was missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<Absent>,
    /// Contenders that failed before the first timing, and have no cells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Failure>,
    /// The cells of a quick run, if not all fitted into its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
    /// Whether it read the site that `--site` named.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub site: bool,
    /// CPUs that the run could use; absent in older sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<usize>,
}

/// The part of the cells for which a quick run had time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// Number of cells that were checked: the first ones.
    pub checked: usize,
    /// Number of cells of the quick form.
    pub of: usize,
}

impl Cut {
    /// A sentence for the user.
    pub fn line(&self) -> String {
        format!(
            "LEFT OUT: the last {} of {} cells, because a quick run had no time for them",
            self.of - self.checked,
            self.of
        )
    }
}

/// A contender that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Its name.
    pub contender: String,
    /// The workload at which it failed.
    pub workload: String,
    /// The error, as a sentence.
    pub what: String,
}

impl Failure {
    /// A sentence for the user.
    pub fn line(&self) -> String {
        format!("FAILED at {}: {}", self.workload, self.what)
    }
}

/// One cell of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedCell {
    /// Name of the contender.
    pub contender: String,
    /// Name of the workload.
    pub workload: String,
    /// Units of work in one iteration.
    pub items: u64,
    /// Iterations of a batch.
    pub iterations: u64,
    /// Samples in a block, at most the plan's.
    pub samples: usize,
    /// The answer to the check.
    pub answer: Answer,
}

/// First line of a block's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockHead {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Number of the block.
    pub block: usize,
    /// 1, or 2 for a repetition.
    pub attempt: u32,
    /// Whether the share of other work was above the limit of the experiment, or the clock was set.
    pub disturbed: bool,
    /// The state of the machine during the block.
    pub shares: Shares,
    /// Reading of the canary before the block.
    pub before: Reading,
    /// Reading of the canary after the block.
    pub after: Reading,
    /// Contenders without samples in this block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Failure>,
}

/// One measured batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Number of the cell.
    pub cell: usize,
    /// Iterations.
    pub n: u64,
    /// Wall nanoseconds of all iterations.
    pub wall_ns: u64,
    /// CPU nanoseconds of all iterations.
    pub cpu_ns: u64,
    /// Other metrics, as totals.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, f64>,
}

/// A block with its samples in the order of measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Description of the block.
    pub head: BlockHead,
    /// The samples.
    pub samples: Vec<Sample>,
}

/// A directory with results.
#[derive(Clone, Debug)]
pub struct ResultSet {
    dir: PathBuf,
}

impl ResultSet {
    /// Creates a new directory `dir`.
    pub fn create(dir: &Path) -> Result<ResultSet> {
        let blocks = dir.join("blocks");
        fs::create_dir_all(&blocks).map_err(LabError::io(&blocks))?;
        Ok(ResultSet {
            dir: dir.to_owned(),
        })
    }

    /// Opens an existing directory.
    pub fn open(dir: &Path) -> Result<ResultSet> {
        if !dir.join("plan.json").is_file() {
            let what = format!(
                "{} has no plan.json, so it is not a result set",
                dir.display()
            );
            return Err(LabError::Usage { what });
        }
        Ok(ResultSet {
            dir: dir.to_owned(),
        })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Writes `name` as a whole: under another name, synced, renamed.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path(name);
        let aside = path.with_extension("part");
        let written = File::create(&aside).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        if let Err(source) = written {
            // On a full disk, part of a file would only occupy space.
            let _ = fs::remove_file(&aside);
            return Err(LabError::io(&aside)(source));
        }
        fs::rename(&aside, &path).map_err(LabError::io(&path))?;
        let parent = path.parent().unwrap_or(&self.dir);
        File::open(parent)
            .and_then(|dir| dir.sync_all())
            .map_err(LabError::io(parent))
    }

    /// Writes `value` as `name`, indented.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let path = self.path(name);
        let mut text = serde_json::to_string_pretty(value).map_err(|source| LabError::Stored {
            path,
            line: 1,
            source,
        })?;
        text.push('\n');
        self.write(name, text.as_bytes())
    }

    /// Reads the JSON file `name`.
    pub fn read_json<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Result<T> {
        let path = self.path(name);
        let text = fs::read_to_string(&path).map_err(LabError::io(&path))?;
        serde_json::from_str(&text).map_err(|source| {
            let line = source.line();
            LabError::Stored { path, line, source }
        })
    }

    fn block_name(block: usize) -> String {
        format!("blocks/B{block:03}.jsonl")
    }

    /// Whether block `block` exists.
    pub fn has_block(&self, block: usize) -> bool {
        self.path(&Self::block_name(block)).is_file()
    }

    /// Stores a block; with `aside`, as a disturbed first attempt.
    pub fn write_block(&self, block: &Block, aside: bool) -> Result<()> {
        let mut name = Self::block_name(block.head.block);
        if aside {
            name = name.replace(".jsonl", ".disturbed.jsonl");
        }
        let stored = |source| LabError::Stored {
            path: self.path(&name),
            line: 1,
            source,
        };
        let mut text = serde_json::to_string(&block.head).map_err(stored)?;
        text.push('\n');
        for sample in &block.samples {
            text.push_str(&serde_json::to_string(sample).map_err(stored)?);
            text.push('\n');
        }
        self.write(&name, text.as_bytes())
    }

    /// Whether this is a record, which is committed.
    fn is_record(&self) -> bool {
        self.path(recorded::SAMPLES).is_file() && !self.path("blocks").is_dir()
    }

    /// Whether this is a record of an older lab, without a description of its blocks.
    pub fn is_older_record(&self) -> bool {
        self.is_record() && !self.path(recorded::HEADS).is_file()
    }

    /// Writes `blocks` to the record in the directory `to`.
    pub fn record_blocks(to: &Path, blocks: &[Block]) -> Result<()> {
        recorded::write(to, blocks)
    }

    /// Reads block `block`.
    pub fn read_block(&self, block: usize) -> Result<Block> {
        let path = self.path(&Self::block_name(block));
        let file = File::open(&path).map_err(LabError::io(&path))?;
        let mut head = None;
        let mut samples = Vec::new();
        for (index, line) in BufReader::new(file).lines().enumerate() {
            let line = line.map_err(LabError::io(&path))?;
            let stored = |source| LabError::Stored {
                path: path.clone(),
                line: index + 1,
                source,
            };
            if index == 0 {
                head = Some(serde_json::from_str(&line).map_err(stored)?);
            } else {
                samples.push(serde_json::from_str(&line).map_err(stored)?);
            }
        }
        let head = head.ok_or_else(|| LabError::Usage {
            what: format!("{} is empty", path.display()),
        })?;
        Ok(Block { head, samples })
    }

    /// Reads every existing block of `plan`, in order. A record has its blocks in other files.
    pub fn read_blocks(&self, plan: &Plan) -> Result<Vec<Block>> {
        if self.is_record() {
            return recorded::read(&self.dir);
        }
        (0..plan.blocks)
            .filter(|block| self.has_block(*block))
            .map(|b| self.read_block(b))
            .collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_back_and_a_torn_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let set = ResultSet::create(dir.path()).unwrap();
        let block = Block {
            head: BlockHead {
                schema: SCHEMA,
                block: 2,
                attempt: 1,
                disturbed: false,
                shares: Shares::default(),
                before: Reading::default(),
                after: Reading {
                    integer_ms: 1.5,
                    copy_ms: 2.25,
                },
                failed: Vec::new(),
            },
            samples: vec![Sample {
                cell: 3,
                n: 100,
                wall_ns: 12_345,
                cpu_ns: 12_300,
                extra: BTreeMap::from([("syncs".to_owned(), 4.0)]),
            }],
        };
        set.write_block(&block, false).unwrap();
        assert!(set.has_block(2) && !set.has_block(1));
        assert_eq!(set.read_block(2).unwrap(), block);
        let path = dir.path().join("blocks/B002.jsonl");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 20]).unwrap();
        let message = set.read_block(2).unwrap_err().to_string();
        assert!(message.contains("B002.jsonl:2"), "{message}");
    }
}

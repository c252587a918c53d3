//! The blocks of a record, which is committed: `samples.tsv.gz` has every sample, and `blocks.jsonl`
//! the description of each block.
//!
//! Older records have no `blocks.jsonl`. No block of them was disturbed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::{Block, BlockHead, SCHEMA, Sample};
use crate::canary::Reading;
use crate::error::{LabError, Result};
use crate::machine::Shares;

/// The samples: a line for each, with fields separated by TAB.
pub(super) const SAMPLES: &str = "samples.tsv.gz";
/// The descriptions of the blocks: a line of JSON for each.
pub(super) const HEADS: &str = "blocks.jsonl";

/// Writes `blocks` to the directory `dir`.
pub(super) fn write(dir: &Path, blocks: &[Block]) -> Result<()> {
    let path = dir.join(HEADS);
    let mut heads = String::new();
    for block in blocks {
        let head = serde_json::to_string(&block.head).map_err(|source| LabError::Stored {
            path: path.clone(),
            line: 1,
            source,
        })?;
        heads += &head;
        heads.push('\n');
    }
    fs::write(&path, heads).map_err(LabError::io(&path))?;
    let path = dir.join(SAMPLES);
    let file = File::create(&path).map_err(LabError::io(&path))?;
    let mut packed = GzEncoder::new(file, Compression::best());
    let mut put = |line: String| {
        packed
            .write_all(line.as_bytes())
            .map_err(LabError::io(&path))
    };
    put("block\tcell\tn\twall_ns\tcpu_ns\textra\n".to_owned())?;
    for block in blocks {
        for s in &block.samples {
            let extra: Vec<String> = s.extra.iter().map(|(k, v)| format!("{k}={v}")).collect();
            let extra = extra.join(",");
            let number = block.head.block;
            put(format!(
                "{number}\t{}\t{}\t{}\t{}\t{extra}\n",
                s.cell, s.n, s.wall_ns, s.cpu_ns
            ))?;
        }
    }
    packed.finish().map_err(LabError::io(&path))?;
    Ok(())
}

/// Reads the blocks in the directory `dir`, in order.
pub(super) fn read(dir: &Path) -> Result<Vec<Block>> {
    let mut blocks = heads(dir)?;
    let path = dir.join(SAMPLES);
    let file = File::open(&path).map_err(LabError::io(&path))?;
    let lines = BufReader::new(GzDecoder::new(file)).lines();
    for (number, line) in lines.enumerate().skip(1) {
        let line = line.map_err(LabError::io(&path))?;
        let (block, sample) = sample(&line).ok_or_else(|| LabError::Usage {
            what: format!("{}:{}: malformed sample", path.display(), number + 1),
        })?;
        let undescribed = || Block {
            head: BlockHead {
                schema: SCHEMA,
                block,
                attempt: 1,
                disturbed: false,
                shares: Shares::default(),
                before: Reading::default(),
                after: Reading::default(),
                failed: Vec::new(),
            },
            samples: Vec::new(),
        };
        let block = blocks.entry(block).or_insert_with(undescribed);
        block.samples.push(sample);
    }
    Ok(blocks.into_values().collect())
}

/// The blocks without their samples, by number; none in older records.
fn heads(dir: &Path) -> Result<BTreeMap<usize, Block>> {
    let path = dir.join(HEADS);
    if !path.is_file() {
        return Ok(BTreeMap::new());
    }
    let text = fs::read_to_string(&path).map_err(LabError::io(&path))?;
    let block = |(index, line): (usize, &str)| -> Result<(usize, Block)> {
        let head: BlockHead = serde_json::from_str(line).map_err(|source| LabError::Stored {
            path: path.clone(),
            line: index + 1,
            source,
        })?;
        let samples = Vec::new();
        Ok((head.block, Block { head, samples }))
    };
    text.lines().enumerate().map(block).collect()
}

/// The number of the block and the sample in a line.
fn sample(line: &str) -> Option<(usize, Sample)> {
    let mut fields = line.split('\t');
    let block = fields.next()?.parse().ok()?;
    let cell = fields.next()?.parse().ok()?;
    let mut number = || fields.next()?.parse().ok();
    let (n, wall_ns, cpu_ns) = (number()?, number()?, number()?);
    let pairs = fields.next()?.split(',').filter(|pair| !pair.is_empty());
    let extra = pairs.map(|pair| {
        let (name, value) = pair.split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    let sample = Sample {
        cell,
        n,
        wall_ns,
        cpu_ns,
        extra: extra.collect::<Option<_>>()?,
    };
    Some((block, sample))
}

//! One file of the simulated disk: its durable content, its written content, and its unsynced
//! sectors.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that are written completely or not at all.
const SECTOR: usize = 512;

/// A generator of pseudo-random numbers from a seed (splitmix).
#[derive(Debug)]
pub(super) struct SplitMix(pub(super) u64);

impl SplitMix {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap_or(0)
    }

    /// True in `parts` of 8 cases.
    pub(super) fn chance(&mut self, parts: u64) -> bool {
        self.next() % 8 < parts
    }
}

/// A file. The two contents share memory until one is changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    durable: Arc<Vec<u8>>,
    current: Arc<Vec<u8>>,
    /// Unsynced sectors, each with the contents that it had between the durable and the current
    /// content.
    dirty: BTreeMap<usize, Vec<Vec<u8>>>,
}

impl Node {
    pub(super) fn with_content(content: Vec<u8>) -> Self {
        let durable = Arc::new(content);
        Self {
            current: Arc::clone(&durable),
            durable,
            dirty: BTreeMap::new(),
        }
    }

    pub(super) fn current(&self) -> &[u8] {
        &self.current
    }

    pub(super) fn len(&self) -> usize {
        self.current.len()
    }

    /// Writes into the volatile content.
    pub(super) fn write(&mut self, bytes: &[u8], offset: usize) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        if end > self.current.len() {
            self.set_len(end);
        }
        for sector in offset / SECTOR..end.div_ceil(SECTOR) {
            if let Some(older) = self.dirty.get_mut(&sector) {
                older.push(slice_of(&self.current, sector).to_vec());
            } else {
                self.dirty.insert(sector, Vec::new());
            }
        }
        Arc::make_mut(&mut self.current)[offset..end].copy_from_slice(bytes);
    }

    /// Sets the volatile length.
    pub(super) fn set_len(&mut self, len: usize) {
        if len != self.current.len() {
            Arc::make_mut(&mut self.current).resize(len, 0);
            self.dirty.split_off(&len.div_ceil(SECTOR));
        }
    }

    /// Makes all unsynced data durable.
    pub(super) fn sync(&mut self) {
        let len = self.current.len();
        if self.dirty.is_empty() && self.durable.len() == len {
            return;
        }
        let durable = Arc::make_mut(&mut self.durable);
        durable.resize(len, 0);
        for sector in std::mem::take(&mut self.dirty).into_keys() {
            let from = sector * SECTOR;
            let to = (from + SECTOR).min(len);
            if from < to {
                durable[from..to].copy_from_slice(&self.current[from..to]);
            }
        }
    }

    /// A failed sync: unsynced sectors are lost and count as clean.
    pub(super) fn lose_dirty(&mut self) {
        self.dirty.clear();
    }

    /// Returns a content that a power cut could leave. On average, `likely` of 8 unsynced sectors
    /// get their latest content.
    pub(super) fn after_cut(&self, draw: &mut SplitMix, likely: u64) -> Vec<u8> {
        let mut left = Vec::clone(&self.durable);
        if self.current.len() != left.len() && draw.chance(likely) {
            left.resize(self.current.len(), 0);
        }
        for (sector, older) in &self.dirty {
            let from = sector * SECTOR;
            let content = if draw.chance(likely) {
                slice_of(&self.current, *sector)
            } else {
                // The durable content, or one between the durable and the current content.
                match older.get(draw.below(older.len() + 1)) {
                    Some(older) => older,
                    None => continue,
                }
            };
            let to = (from + content.len()).min(left.len());
            if from < to {
                left[from..to].copy_from_slice(&content[..to - from]);
            }
        }
        left
    }
}

fn slice_of(content: &[u8], sector: usize) -> &[u8] {
    let from = (sector * SECTOR).min(content.len());
    &content[from..(from + SECTOR).min(content.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_synced_sectors_are_certain() {
        let mut node = Node::default();
        node.write(&[1; 2048], 0);
        node.sync();
        node.write(&[2; 1024], 512);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let left = node.after_cut(&mut SplitMix(seed), 4);
            assert_eq!(left.len(), 2048);
            assert!(
                left[..512]
                    .iter()
                    .chain(&left[1536..])
                    .all(|byte| *byte == 1)
            );
            // Each sector was written completely or not at all.
            assert!(
                left.chunks(512)
                    .all(|sector| sector.iter().all(|byte| *byte == sector[0]))
            );
            seen.insert((left[512], left[1024]));
        }
        assert_eq!(seen.len(), 4, "every subset of two sectors is possible");
    }

    #[test]
    fn a_failed_sync_loses_unsynced_data_and_the_next_sync_succeeds() {
        let mut node = Node::default();
        node.write(&[1; 512], 0);
        node.sync();
        node.write(&[2; 512], 0);
        node.lose_dirty();
        node.sync();
        assert_eq!(node.current(), [2; 512], "reads return the cached bytes");
        assert_eq!(node.after_cut(&mut SplitMix(1), 8), vec![1; 512]);
        node.write(&[3; 512], 0);
        node.sync();
        assert_eq!(node.after_cut(&mut SplitMix(1), 0), vec![3; 512]);
    }
}

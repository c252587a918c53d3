//! Digests of the state at fixed log indexes, which the nodes of a cluster compare to find a node
//! whose state differs.
//!
//! Invariant: a sample is taken only at a multiple of [`SAMPLE_EVERY_ENTRIES`]. Nodes that apply
//! the same log therefore have digests of the same indexes, also if one node lags.

use std::collections::VecDeque;

use parking_lot::Mutex;
use weir_core::Digest;

use crate::log::LogIndex;

/// Log entries between two samples. A digest is costly: it reads the state of every topic.
const SAMPLE_EVERY_ENTRIES: u64 = 256;
/// Number of samples that are retained, so that a lagging node can still be compared.
const SAMPLES_MAX: usize = 64;

/// The newest samples, oldest first.
#[derive(Debug, Default)]
pub(crate) struct DigestSamples(Mutex<VecDeque<(LogIndex, Digest)>>);

impl DigestSamples {
    /// Whether a sample is taken after the entry `index`.
    pub(crate) fn is_sample_index(index: LogIndex) -> bool {
        index.0.is_multiple_of(SAMPLE_EVERY_ENTRIES)
    }

    /// Adds the sample of `index`, and removes the samples at and after `index`. After a node has
    /// installed a snapshot, it may reach an index again or skip some.
    pub(crate) fn add(&self, index: LogIndex, digest: Digest) {
        let mut samples = self.0.lock();
        while samples.back().is_some_and(|(last, _)| *last >= index) {
            samples.pop_back();
        }
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back((index, digest));
    }

    /// Removes all samples, because the state was replaced.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// The newest sample: its log index and digest.
    pub(crate) fn newest(&self) -> Option<(LogIndex, Digest)> {
        self.0.lock().back().copied()
    }

    /// The digest of the sample at `index`, if it is retained.
    pub(crate) fn at(&self, index: LogIndex) -> Option<Digest> {
        let samples = self.0.lock();
        let found = samples.iter().find(|(at, _)| *at == index);
        found.map(|(_, digest)| *digest)
    }
}

#[cfg(test)]
mod tests {
    use weir_core::Digest;

    use super::{DigestSamples, SAMPLE_EVERY_ENTRIES, SAMPLES_MAX};
    use crate::log::LogIndex;

    #[test]
    fn the_newest_samples_are_kept() {
        let samples = DigestSamples::default();
        let index_of = |n: u64| LogIndex(n * SAMPLE_EVERY_ENTRIES);
        let samples_taken = SAMPLES_MAX as u64 + 3;
        for n in 1..=samples_taken {
            assert!(DigestSamples::is_sample_index(index_of(n)));
            samples.add(index_of(n), Digest(n));
        }
        assert_eq!(
            samples.newest(),
            Some((index_of(samples_taken), Digest(samples_taken)))
        );
        assert_eq!(samples.at(index_of(3)), None);
        assert_eq!(samples.at(index_of(4)), Some(Digest(4)));
        // The log is applied again, after an older snapshot was installed.
        samples.add(index_of(10), Digest(11));
        assert_eq!(samples.newest(), Some((index_of(10), Digest(11))));
        assert_eq!(samples.at(index_of(11)), None);
        assert!(!DigestSamples::is_sample_index(LogIndex(
            SAMPLE_EVERY_ENTRIES + 1
        )));
    }
}

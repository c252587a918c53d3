//! Digests of the state at fixed log indexes, which the nodes of a cluster compare to find a node
//! whose state differs.
//!
//! Invariant: a sample is taken only at a multiple of [`EVERY`]. Nodes that apply the same log
//! therefore have digests of the same indexes, whatever their lag.

use std::collections::VecDeque;

use parking_lot::Mutex;
use weir_core::Digest;

use crate::log::LogIndex;

/// Log entries between two samples. A digest is costly: it reads the state of every topic.
const EVERY: u64 = 256;
/// Number of samples that are retained, so that a lagging node can still be compared.
const PLACES_MAX: usize = 64;

/// The newest samples, oldest first.
#[derive(Debug, Default)]
pub(crate) struct DigestSamples(Mutex<VecDeque<(LogIndex, Digest)>>);

impl DigestSamples {
    /// Whether a sample is taken after the entry `index`.
    pub(crate) fn is_place(index: LogIndex) -> bool {
        index.0.is_multiple_of(EVERY)
    }

    /// Adds the sample of `index`, and removes the samples at and after `index`. After a node has
    /// installed a snapshot, it may reach an index again or skip some.
    pub(crate) fn note(&self, index: LogIndex, digest: Digest) {
        let mut samples = self.0.lock();
        while samples.back().is_some_and(|(last, _)| *last >= index) {
            samples.pop_back();
        }
        if samples.len() == PLACES_MAX {
            samples.pop_front();
        }
        samples.push_back((index, digest));
    }

    /// Removes all samples, because the state was replaced.
    pub(crate) fn forget(&self) {
        self.0.lock().clear();
    }

    /// The newest sample: its log index and digest.
    pub(crate) fn newest(&self) -> Option<(LogIndex, Digest)> {
        self.0.lock().back().copied()
    }

    /// The digest of the sample at `index`, if it is retained.
    pub(crate) fn at(&self, index: LogIndex) -> Option<Digest> {
        let samples = self.0.lock();
        let found = samples.iter().find(|(place, _)| *place == index);
        found.map(|(_, digest)| *digest)
    }
}

#[cfg(test)]
mod tests {
    use weir_core::Digest;

    use super::{DigestSamples, EVERY, PLACES_MAX};
    use crate::log::LogIndex;

    #[test]
    fn the_newest_places_are_remembered() {
        let samples = DigestSamples::default();
        let place = |n: u64| LogIndex(n * EVERY);
        let places = PLACES_MAX as u64 + 3;
        for n in 1..=places {
            assert!(DigestSamples::is_place(place(n)));
            samples.note(place(n), Digest(n));
        }
        assert_eq!(samples.newest(), Some((place(places), Digest(places))));
        assert_eq!(samples.at(place(3)), None);
        assert_eq!(samples.at(place(4)), Some(Digest(4)));
        // The log is applied again, after an older snapshot was installed.
        samples.note(place(10), Digest(11));
        assert_eq!(samples.newest(), Some((place(10), Digest(11))));
        assert_eq!(samples.at(place(11)), None);
        assert!(!DigestSamples::is_place(LogIndex(EVERY + 1)));
    }
}

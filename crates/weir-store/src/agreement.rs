//! Digests at fixed places of the log, by which nodes of a cluster find out that one of them has
//! applied something else.
//!
//! Invariant: a place is a multiple of [`EVERY`], so nodes that apply one log have the digests of the
//! same places, however far each one is.

use std::collections::VecDeque;

use parking_lot::Mutex;
use weir_core::Digest;

use crate::log::LogIndex;

/// Entries from one place to the next: a digest visits every topic.
const EVERY: u64 = 256;
/// Places that are remembered, so that a node which lags can still be compared.
const PLACES_MAX: usize = 64;

/// The digests of the newest places, oldest first.
#[derive(Debug, Default)]
pub(crate) struct DigestSamples(Mutex<VecDeque<(LogIndex, Digest)>>);

impl DigestSamples {
    /// Whether the digest after this entry is compared.
    pub(crate) fn is_place(index: LogIndex) -> bool {
        index.0.is_multiple_of(EVERY)
    }

    /// Notes the digest of a place. A node that took the snapshot of another one may come to a place
    /// again, or leave some out.
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

    /// Forgets all places: the state is another one now.
    pub(crate) fn forget(&self) {
        self.0.lock().clear();
    }

    /// The newest place, and its digest.
    pub(crate) fn newest(&self) -> Option<(LogIndex, Digest)> {
        self.0.lock().back().copied()
    }

    /// The digest of a place that is remembered.
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
        // The same log once more, from a snapshot.
        samples.note(place(10), Digest(11));
        assert_eq!(samples.newest(), Some((place(10), Digest(11))));
        assert_eq!(samples.at(place(11)), None);
        assert!(!DigestSamples::is_place(LogIndex(EVERY + 1)));
    }
}

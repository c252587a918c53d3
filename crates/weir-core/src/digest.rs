//! Hashes that must be equal on every node: XXH3-64 with fixed seeds, not cryptographic.
//!
//! The hash of an intention's content detects a nonce that is used for two different intentions.
//! The hash of a topic's history detects replicas that differ.

use std::fmt;

use twox_hash::XxHash3_64;

/// A rolling 64-bit hash of state. Equal logs give equal digests (I4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u64);

impl Digest {
    /// The digest after one more word.
    #[inline]
    #[must_use]
    pub fn fold(self, word: u64) -> Self {
        Self(mix(self.0, word))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The 64-bit hash of `bytes` with `seed`.
#[inline]
pub fn hash(seed: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// Multiplies to 128 bits and folds the halves. The constants are the first digits of the
/// fractional parts of the square roots of 2 and 3, made odd.
#[inline]
#[allow(
    clippy::cast_possible_truncation,
    reason = "both halves of the product are used"
)]
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x6a09_e667_f3bc_c909) * u128::from(b ^ 0xbb67_ae85_84ca_a73b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_content_change_a_digest() {
        let ab = Digest::default().fold(1).fold(2);
        let ba = Digest::default().fold(2).fold(1);
        assert_ne!(ab, ba);
        assert_eq!(ab, Digest::default().fold(1).fold(2));
    }
}

//! Hashes that every node must agree on: of an intention's content (to notice
//! a nonce that is used for two different intentions) and of a topic's whole
//! history (to notice replicas that disagree). XXH3-64 with fixed seeds; not
//! cryptographic.

use std::fmt;

use twox_hash::XxHash3_64;

/// A rolling 64-bit hash of state. Equal logs give equal digests (I4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u64);

impl Digest {
    /// The digest after one more number.
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

/// 64 bits of `bytes` under `seed`.
#[inline]
pub fn hash(seed: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// Multiplies into 128 bits and folds the halves; both constants are the first
/// digits of the fractional part of square roots (of 2 and 3), made odd.
#[inline]
#[allow(
    clippy::cast_possible_truncation,
    reason = "both halves of the product are wanted"
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

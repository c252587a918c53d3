//! `SplitMix64`: the only source of randomness of the lab.
//!
//! Everything random in a run (order, resamples, generated inputs) comes from a seed through this
//! generator, so that a run can be repeated. It is not suitable for secrets. Source: the published
//! constants of Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).

/// A 64-bit generator with 64 bits of state and period 2^64.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Starts the sequence of `seed`.
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64 { state: seed }
    }

    /// A generator for a named part of the work of `seed`, so that two parts never share a
    /// sequence.
    pub fn derive(seed: u64, part: &str) -> SplitMix64 {
        SplitMix64::new(seed ^ fnv1a64(part.as_bytes()))
    }

    /// Next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound` by multiply-shift; `bound` must not be 0. The
    /// bias is below `bound` / 2^64.
    #[allow(clippy::cast_possible_truncation)] // the product shifted by 64 is below `bound`
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "an empty range has no member");
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// A number in `[0, 1)` with 53 random bits.
    #[allow(clippy::cast_precision_loss)] // 53 bits fit a double exactly
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Puts `items` into random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.below(i + 1);
            items.swap(i, j);
        }
    }
}

/// FNV-1a over `bytes`, 64 bits. All contenders use this checksum, because it takes five lines in
/// every language.
pub fn fnv1a64(bytes: &[u8]) -> u64 {
    fnv1a64_more(0xCBF2_9CE4_8422_2325, bytes)
}

/// Continues an FNV-1a sum.
pub fn fnv1a64_more(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the reference sequence for seed 1234567, as printed by the
    /// generator's published test program and by an independent Python version.
    #[test]
    fn splitmix_gives_the_published_sequence() {
        let mut rng = SplitMix64::new(1_234_567);
        let first: Vec<u64> = (0..5).map(|_| rng.next_u64()).collect();
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
    }

    #[test]
    fn shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        SplitMix64::new(7).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn fnv_matches_its_published_vectors() {
        assert_eq!(fnv1a64(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a64(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a64(b"foobar"), 0x8594_4171_f739_67e8);
    }
}

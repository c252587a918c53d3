//! Mutations of seeds by a random generator: equal generator seeds give equal inputs.

/// Maximum bytes of an input.
const INPUT_BYTES_MAX: usize = 4096;
/// Bytes that parsers treat specially.
const TELLING: &[u8] = b"\0\x01\x7f\x80\xff\n\r\t \"'\\,:;.$*@?[](){}<>=+-_0129aeEnrtux|/";

/// Changes inputs at random.
#[derive(Debug)]
pub struct Mutator(u64);

impl Mutator {
    /// A mutator with this generator seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// One of the seeds with up to eight changes.
    pub fn input(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let pick = self.below(seeds.len());
        let mut input = seeds.get(pick).cloned().unwrap_or_default();
        for _ in 0..=self.below(8) {
            self.change(&mut input, seeds);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        let end = (at + 1 + self.below(16)).min(input.len());
        match self.below(8) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = self.byte(),
            2 if at < input.len() => input[at] = TELLING[self.below(TELLING.len())],
            3 => input.insert(at, TELLING[self.below(TELLING.len())]),
            4 => drop(input.drain(at..end.max(at))),
            5 => input.truncate(at),
            6 => {
                let again = input[at..end.max(at)].to_vec();
                input.splice(at..at, again);
            }
            _ => {
                let pick = self.below(seeds.len());
                let other = seeds.get(pick).map_or(&[][..], Vec::as_slice);
                let from = self.below(other.len() + 1);
                let to = (from + self.below(64)).min(other.len());
                input.splice(at..at, other[from..to].iter().copied());
            }
        }
    }
}

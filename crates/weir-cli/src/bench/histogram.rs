//! Latencies in a fixed amount of memory.
//!
//! Each power of two has 128 steps, so a quantile is at most 0.8 % too high. The maximum is exact.

/// Steps for each power of two, as an exponent of two.
const STEP_BITS: u32 = 7;
const STEPS: usize = 1 << STEP_BITS;
/// Values below `STEPS` have one slot each. Each higher power of two has `STEPS` slots.
const SLOTS: usize = (64 - STEP_BITS as usize + 1) * STEPS;

/// Counts of durations in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    slots: Box<[u64]>,
    count: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            slots: vec![0; SLOTS].into(),
            count: 0,
            max: 0,
        }
    }
}

fn slot(value: u64) -> usize {
    let bits = 64 - value.leading_zeros();
    let shift = bits.saturating_sub(STEP_BITS + 1);
    // At most SLOTS - 1, since `value >> shift` is below twice STEPS.
    usize::try_from(value >> shift).unwrap_or(0) + shift as usize * STEPS
}

/// The largest value of a slot.
fn top(slot: usize) -> u64 {
    let shift = (slot / STEPS).saturating_sub(1);
    let step = (slot - shift * STEPS) as u64;
    ((step + 1) << shift).wrapping_sub(1)
}

impl Histogram {
    /// Adds a duration.
    pub(super) fn record(&mut self, ns: u64) {
        if let Some(count) = self.slots.get_mut(slot(ns)) {
            *count += 1;
        }
        self.count += 1;
        self.max = self.max.max(ns);
    }

    /// Adds the counts of `other`.
    pub(super) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.slots.iter_mut().zip(&other.slots) {
            *mine += theirs;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// Number of durations.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The duration that `per_mille` of 1000 durations do not exceed; `None` if there are none.
    pub(super) fn quantile(&self, per_mille: u64) -> Option<u64> {
        let wanted = u128::from(self.count) * u128::from(per_mille);
        let wanted = u64::try_from(wanted.div_ceil(1000)).ok()?.max(1);
        let mut seen = 0;
        for (slot, count) in self.slots.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Some(top(slot).min(self.max));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{Histogram, SLOTS, slot, top};

    #[test]
    fn each_value_is_in_a_slot_that_ends_within_a_percent_above_it() {
        let powers = (0..64).map(|bit| 1_u64 << bit);
        let around = powers.flat_map(|n| [n - 1, n, n + 1, n + n / 3]);
        for value in around.chain(0..1000).chain([u64::MAX]) {
            let (slot, end) = (slot(value), top(slot(value)));
            assert!(slot < SLOTS && end >= value, "{value}");
            assert!(end - value <= value / 100, "{value} ends at {end}");
            assert_eq!(super::slot(end), slot, "{value}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut halves = [Histogram::default(), Histogram::default()];
        assert_eq!(halves[0].quantile(500), None);
        for value in 1..=1000 {
            halves[value % 2].record(value as u64 * 1000);
        }
        let mut all = halves[0].clone();
        all.add(&halves[1]);
        assert_eq!(all.count(), 1000);
        for (per_mille, value) in [(500, 500_000), (990, 990_000), (999, 999_000)] {
            let found = all.quantile(per_mille).unwrap_or_default();
            assert!(found >= value && found - value <= value / 100, "{found}");
        }
        assert_eq!(all.quantile(1000), Some(1_000_000));
    }
}

//! Percentile bootstrap of a median.
//!
//! Resample `values` with replacement, take the median, repeat. The interval spans the middle 95 %
//! of these medians (nearest rank). The draws come from a seed, so equal values always give an
//! equal interval.

use super::{median_of_mut, percentile_of_sorted, sorted};
use crate::rng::SplitMix64;

/// Resamples of one interval.
pub const RESAMPLES: usize = 10_000;
/// Share of the resampled medians that an interval spans.
pub const CONFIDENCE: f64 = 0.95;

/// A median with its interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Interval {
    /// Median of the values themselves.
    pub centre: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Median and interval of `values`; `None` if there are none. Time is
/// `RESAMPLES` times the number of values.
pub fn median_interval(values: &[f64], seed: u64) -> Option<Interval> {
    let mut scratch = values.to_vec();
    let centre = median_of_mut(&mut scratch)?;
    let mut rng = SplitMix64::new(seed);
    let mut medians = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        scratch.clear();
        for _ in 0..values.len() {
            scratch.extend(values.get(rng.below(values.len())));
        }
        medians.push(median_of_mut(&mut scratch)?);
    }
    let ordered = sorted(&medians);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    Some(Interval {
        centre,
        low: percentile_of_sorted(&ordered, tail)?,
        high: percentile_of_sorted(&ordered, 1.0 - tail)?,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Expected ends from `tests/vectors/statistics.py`, which draws with its
    /// own `SplitMix64` and takes medians and ranks with `NumPy`.
    #[test]
    fn interval_matches_the_python_script() {
        let ratios = [0.71, 0.74, 0.69, 0.75, 0.72, 0.70, 0.78, 0.73, 0.715, 0.735];
        let interval = median_interval(&ratios, 42).unwrap();
        assert!((interval.centre - 0.725).abs() < 1e-12, "{interval:?}");
        assert!((interval.low - BOOT_LOW).abs() < 1e-12, "{interval:?}");
        assert!((interval.high - BOOT_HIGH).abs() < 1e-12, "{interval:?}");
    }
    const BOOT_LOW: f64 = 0.7075;
    const BOOT_HIGH: f64 = 0.742_499_999_999_999_9;

    #[test]
    fn equal_values_have_an_interval_of_width_zero() {
        let interval = median_interval(&[2.5; 7], 1).unwrap();
        assert_eq!((interval.low, interval.high), (2.5, 2.5));
    }

    #[test]
    fn equal_seeds_give_equal_intervals() {
        let values: Vec<f64> = (0..10).map(|i| f64::from(i * i)).collect();
        assert_eq!(median_interval(&values, 5), median_interval(&values, 5));
        assert_eq!(median_interval(&[], 5), None);
    }
}

//! The statistics of a report.
//!
//! These definitions allow another program to check the figures. Percentiles are by nearest rank:
//! the smallest value with at least that share of the values at or below it. The median of an even
//! number of values is the mean of the two middle values. MAD is the median distance from the
//! median, unscaled. Intervals are percentile bootstrap ([`bootstrap`]). The test for pairs is the
//! signed rank of Wilcoxon ([`wilcoxon`]); the test for unpaired lists is that of Mann and Whitney
//! ([`mann_whitney`]); the test for a trend is that of Mann and Kendall ([`trend`]).
//!
//! Invariant: all inputs are finite; callers reject NaN and infinity.

pub mod bootstrap;
pub mod mann_whitney;
pub mod trend;
pub mod wilcoxon;

/// Values in ascending order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut copy = values.to_vec();
    copy.sort_by(f64::total_cmp);
    copy
}

/// The median of `values`; `None` if there are none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut copy = values.to_vec();
    median_of_mut(&mut copy)
}

/// The median, found by partial sorting in place.
pub fn median_of_mut(values: &mut [f64]) -> Option<f64> {
    let n = values.len();
    if n == 0 {
        return None;
    }
    let (below, upper, _) = values.select_nth_unstable_by(n / 2, f64::total_cmp);
    let upper = *upper;
    if n % 2 == 1 {
        return Some(upper);
    }
    let lower = below.iter().copied().max_by(f64::total_cmp)?;
    Some(f64::midpoint(lower, upper))
}

/// Median distance from the median.
pub fn mad(values: &[f64]) -> Option<f64> {
    let centre = median(values)?;
    let distances: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    median(&distances)
}

/// The value at rank `share` (0 to 1) of ascending `sorted`, by nearest rank.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)] // counts of samples are far below 2^53 and the product is within 0..=n
pub fn percentile_of_sorted(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

/// The number of `values` that are more than three interquartile ranges below the lower quartile or
/// above the upper one.
pub fn outliers(values: &[f64]) -> usize {
    let ordered = sorted(values);
    let quartiles = percentile_of_sorted(&ordered, 0.25).zip(percentile_of_sorted(&ordered, 0.75));
    let Some((lower, upper)) = quartiles else {
        return 0;
    };
    let reach = 3.0 * (upper - lower);
    let is_outlier = |value: &&f64| **value < lower - reach || **value > upper + reach;
    ordered.iter().filter(is_outlier).count()
}

/// The values in a table for one list.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Spread {
    /// Number of values.
    pub n: usize,
    /// Median.
    pub median: f64,
    /// Median distance from the median.
    pub mad: f64,
    /// Smallest.
    pub min: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

impl Spread {
    /// Describes `values`; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let ordered = sorted(values);
        Some(Spread {
            n: ordered.len(),
            median: median(values)?,
            mad: mad(values)?,
            min: *ordered.first()?,
            p90: percentile_of_sorted(&ordered, 0.90)?,
            p99: percentile_of_sorted(&ordered, 0.99)?,
            max: *ordered.last()?,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)] // expected values are exact doubles
mod tests {
    use super::*;

    /// Expected values from `NumPy` 2: `np.median`, `np.median(abs(x - median))` and
    /// `np.percentile(x, q, method="inverted_cdf")`.
    #[test]
    fn spread_matches_numpy() {
        let values = [
            41.2, 39.9, 40.1, 55.0, 40.4, 39.7, 40.0, 40.2, 43.5, 40.3, 39.8, 61.25,
        ];
        let spread = Spread::of(&values).unwrap();
        assert_eq!(spread.median, 40.25);
        assert!((spread.mad - 0.4).abs() < 1e-12, "{}", spread.mad);
        assert_eq!((spread.min, spread.max), (39.7, 61.25));
        assert_eq!((spread.p90, spread.p99), (55.0, 61.25));
        assert_eq!(percentile_of_sorted(&sorted(&values), 0.25), Some(39.9));
    }

    #[test]
    fn an_outlier_is_three_ranges_outside_the_quartiles() {
        // Of all nine values, the quartiles are 40 and 42, so 34 and 48 are no outliers.
        let values = [40.0, 41.0, 42.0, 40.5, 39.0, 48.0, 41.5, 34.0];
        assert_eq!(outliers(&values), 0);
        assert_eq!(outliers(&[&values[..], &[60.0]].concat()), 1);
        assert_eq!(outliers(&[]), 0);
    }

    #[test]
    fn an_empty_list_has_no_median() {
        assert_eq!(median(&[]), None);
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(percentile_of_sorted(&[], 0.5), None);
    }
}

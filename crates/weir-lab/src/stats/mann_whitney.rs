//! The U test of Mann and Whitney for two lists that are not paired, and the Hodges-Lehmann shift
//! between the lists, with the interval of the test.
//!
//! The test is exact without ties and up to [`EXACT_MAX`] values in each list. Otherwise it is the
//! normal approximation, corrected for ties.

use super::wilcoxon::normal_tail;
use super::{median_of_mut, sorted};

/// Maximum number of values in a list for the exact distribution.
pub const EXACT_MAX: usize = 50;
/// Number of standard deviations above which 2.5 % of the normal distribution lie.
const NORMAL_TAIL: f64 = 1.959_963_984_540_054;

/// The shift of the second list against the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// Median of the differences of all pairs.
    pub centre: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability of ranks at least this far apart, if the lists do not differ.
    pub p: f64,
}

/// The shift from `first` to `second`; `None` if one of them is empty. With fewer than four values
/// in each list, no interval reaches 95 %; then the interval spans all differences.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)] // counts of values are far below 2^53 and the rank is not negative
pub fn shift(first: &[f64], second: &[f64]) -> Option<Shift> {
    let mut differences: Vec<f64> = second
        .iter()
        .flat_map(|b| first.iter().map(move |a| b - a))
        .collect();
    let centre = median_of_mut(&mut differences)?;
    let differences = sorted(&differences);
    let (m, n) = (first.len(), second.len());
    let above = differences.iter().filter(|d| **d > 0.0).count() as f64;
    let level = differences.iter().filter(|d| **d == 0.0).count() as f64;
    let pairs = (m * n) as f64;
    let u = above + level / 2.0;
    let smaller = u.min(pairs - u);
    let tied = ties(&[first, second].concat());
    let total = (m + n) as f64;
    let exact = tied == 0.0 && m <= EXACT_MAX && n <= EXACT_MAX;
    let spread = (pairs / 12.0 * (total + 1.0 - tied / (total * (total - 1.0)))).sqrt();
    let shares = shares_of_u(m.min(EXACT_MAX), n.min(EXACT_MAX));
    let p = if exact {
        let below = shares.iter().take(smaller as usize + 1);
        (2.0 * below.sum::<f64>()).min(1.0)
    } else if spread > 0.0 {
        let z = ((smaller - pairs / 2.0).abs() - 0.5).max(0.0) / spread;
        (2.0 * normal_tail(z)).min(1.0)
    } else {
        1.0
    };
    let cut = if m <= EXACT_MAX && n <= EXACT_MAX {
        let mut sum = 0.0;
        let within = shares.iter().take_while(|share| {
            sum += **share;
            sum <= 0.025
        });
        within.count()
    } else {
        (pairs / 2.0 - NORMAL_TAIL * spread).max(0.0) as usize
    };
    let rank = cut.saturating_sub(1);
    Some(Shift {
        centre,
        low: *differences.get(rank)?,
        high: *differences.get(differences.len() - 1 - rank)?,
        p,
    })
}

/// The sum of t^3 - t over the groups of equal values.
#[allow(clippy::cast_precision_loss, clippy::float_cmp)] // ties are exact equality by definition
fn ties(values: &[f64]) -> f64 {
    let groups = sorted(values);
    let sizes = groups
        .chunk_by(|a, b| a == b)
        .map(|group| group.len() as f64);
    sizes.map(|size| size * size * size - size).sum()
}

/// For each U from 0 to m n, the share of the orders of `m` and `n` values that have this U.
fn shares_of_u(m: usize, n: usize) -> Vec<f64> {
    // The numbers of orders are the coefficients of a Gaussian binomial: for each i, multiply by
    // 1 - x^(n + i), and divide by 1 - x^i.
    let mut ways = vec![0.0_f64; m * n + 1];
    if let Some(first) = ways.first_mut() {
        *first = 1.0;
    }
    for i in 1..=m {
        for u in (n + i..ways.len()).rev() {
            ways[u] -= ways[u - n - i];
        }
        for u in i..ways.len() {
            ways[u] += ways[u - i];
        }
    }
    let all: f64 = ways.iter().sum();
    ways.iter().map(|way| way / all).collect()
}

/// `p` of each test, corrected for the number of tests (Holm).
#[allow(clippy::cast_precision_loss)] // counts of tests
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut corrected = vec![1.0; p.len()];
    let mut least = 0.0_f64;
    for (rank, index) in order.into_iter().enumerate() {
        least = least.max(p[index] * (p.len() - rank) as f64).min(1.0);
        corrected[index] = least;
    }
    corrected
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn without_overlap(n: i32) -> Shift {
        let first: Vec<f64> = (0..n).map(f64::from).collect();
        let second: Vec<f64> = (0..n).map(|i| f64::from(i) + 100.5).collect();
        shift(&first, &second).unwrap()
    }

    /// The smallest p of two lists of n values is 2 / (2n over n).
    #[test]
    fn lists_without_overlap_have_the_smallest_possible_p() {
        for (n, p) in [
            (3, 0.1),
            (4, 2.0 / 70.0),
            (5, 2.0 / 252.0),
            (10, 2.0 / 184_756.0),
        ] {
            let found = without_overlap(n).p;
            assert!((found - p).abs() < 1e-12, "{n}: {found}");
        }
    }

    /// Mann and Whitney's table (two sides, 5 %): U of at most 2 for 5 and 5, 23 for 10 and
    /// 10, 127 for 20 and 20.
    #[test]
    fn critical_values_are_those_of_the_published_table() {
        for (m, n, critical) in [
            (4, 4, 0),
            (5, 5, 2),
            (8, 10, 17),
            (10, 10, 23),
            (20, 20, 127),
        ] {
            let mut sum = 0.0;
            let within = shares_of_u(m, n).into_iter().take_while(|share| {
                sum += share;
                sum <= 0.025
            });
            assert_eq!(within.count(), critical + 1, "{m} and {n}");
        }
    }

    /// Hollander and Wolfe, Nonparametric Statistical Methods, example 4.1 (permeability of
    /// membranes): W = 30 for the 5 second values, P(W >= 30) = 0.1272, estimate of the shift -0.305,
    /// 95 % interval from -0.76 to 0.15.
    #[test]
    fn the_shift_of_a_textbook_example_is_correct() {
        let at_term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let early = [1.15, 0.88, 0.90, 0.74, 1.21];
        let shift = shift(&at_term, &early).unwrap();
        assert!((shift.p - 2.0 * 0.127_206).abs() < 1e-5, "{shift:?}");
        assert!((shift.centre + 0.305).abs() < 1e-9, "{shift:?}");
        assert!((shift.low + 0.76).abs() < 1e-9, "{shift:?}");
        assert!((shift.high - 0.15).abs() < 1e-9, "{shift:?}");
    }

    #[test]
    fn equal_lists_do_not_differ() {
        let same = shift(&[5.0; 8], &[5.0; 8]).unwrap();
        assert_eq!((same.centre.abs(), same.p), (0.0, 1.0));
        assert_eq!(shift(&[], &[1.0]), None);
    }

    /// Holm 1979: the smallest of four is multiplied by four, the next by three.
    #[test]
    fn holm_multiplies_by_the_number_of_remaining_tests() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (value, expected) in corrected.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((value - expected).abs() < 1e-12, "{corrected:?}");
        }
    }
}

//! Wilcoxon's signed rank test for pairs, two-sided.
//!
//! Differences of zero are dropped; equal magnitudes share their mean rank.
//! Up to [`EXACT_MAX`] untied differences the p-value is exact (all 2^n signs
//! counted by their rank sum); otherwise it is the normal approximation with
//! the tie correction and without a continuity correction, as in `SciPy`.

/// Maximum number of differences for the exact distribution.
pub const EXACT_MAX: usize = 50;

/// Probability of a rank sum at least this far from its mean, if the pairs do not differ; `None`
/// if no difference is left.
#[allow(clippy::cast_precision_loss)] // ranks of at most some thousand values
pub fn signed_rank_p(differences: &[f64]) -> Option<f64> {
    let mut values: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    let dropped = differences.len() - values.len();
    values.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let n = values.len();
    if n == 0 {
        return None;
    }
    let (positive, ties) = positive_rank_sum(&values);
    let total = (n * (n + 1)) as f64 / 2.0;
    let smaller = positive.min(total - positive);
    if ties == 0.0 && dropped == 0 && n <= EXACT_MAX {
        return Some(exact_p(n, smaller));
    }
    let mean = total / 2.0;
    let n = n as f64;
    let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - ties / 48.0;
    let z = (smaller - mean) / variance.sqrt();
    Some((2.0 * normal_tail(z.abs())).min(1.0))
}

/// Rank sum of the positive values, and the sum of t^3 - t over the groups of
/// equal magnitude. `values` are ordered by magnitude.
#[allow(clippy::cast_precision_loss, clippy::float_cmp)] // ties are exact equality by definition
fn positive_rank_sum(values: &[f64]) -> (f64, f64) {
    let mut sum = 0.0;
    let mut ties = 0.0;
    let mut before = 0usize;
    for group in values.chunk_by(|a, b| a.abs() == b.abs()) {
        let size = group.len() as f64;
        let rank = before as f64 + f64::midpoint(size, 1.0);
        sum += rank * group.iter().filter(|value| **value > 0.0).count() as f64;
        ties += size * size * size - size;
        before += group.len();
    }
    (sum, ties)
}

/// Twice the share of the 2^n sign patterns whose positive rank sum is at
/// most `smaller`.
fn exact_p(n: usize, smaller: f64) -> f64 {
    let total = n * (n + 1) / 2;
    let mut ways = vec![0.0f64; total + 1];
    if let Some(first) = ways.first_mut() {
        *first = 1.0;
    }
    for rank in 1..=n {
        for sum in (rank..=total).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    let tail: f64 = (0u32..)
        .zip(&ways)
        .take_while(|(sum, _)| f64::from(*sum) <= smaller)
        .map(|(_, w)| w)
        .sum();
    let all: f64 = ways.iter().sum();
    (2.0 * tail / all).min(1.0)
}

/// Share of the standard normal distribution above `z` >= 0, by the
/// complementary error function of Numerical Recipes (fractional error below
/// 1.2e-7).
pub(super) fn normal_tail(z: f64) -> f64 {
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * x);
    let series = [
        0.170_872_77,
        -0.822_152_23,
        1.488_515_87,
        -1.135_203_98,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_68,
        -1.265_512_23,
    ];
    let polynomial = series.iter().fold(0.0, |sum, term| sum * t + term);
    0.5 * t * (-x * x + polynomial).exp()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn check(differences: &[f64], expected: f64, tolerance: f64) {
        let p = signed_rank_p(differences).unwrap();
        assert!((p - expected).abs() < tolerance, "{p} is not {expected}");
    }

    /// Expected values from `SciPy` 1.17 `stats.wilcoxon`, printed by
    /// `tests/vectors/statistics.py`.
    #[test]
    fn p_values_match_scipy() {
        check(&EXACT, EXACT_P, 1e-12);
        check(&TIED, TIED_P, 2e-7);
        check(&ZEROS, ZEROS_P, 2e-7);
        let long: Vec<f64> = (1..=60)
            .map(|i| f64::from(i) * if i % 3 == 0 { -1.0 } else { 1.0 })
            .collect();
        check(&long, LONG_P, 2e-7);
    }
    const EXACT: [f64; 10] = [
        -0.34, -0.31, 0.02, -0.29, -0.33, -0.36, 0.05, -0.315, -0.335, -0.3,
    ];
    const TIED: [f64; 8] = [1.0, -1.0, 2.0, 2.0, 3.0, -2.0, 4.0, 5.0];
    const ZEROS: [f64; 8] = [0.0, 1.5, 2.5, -0.5, 3.5, 0.0, 4.5, 5.5];
    const EXACT_P: f64 = 0.009_765_625;
    const TIED_P: f64 = 0.078_208_807_622_992_61;
    const ZEROS_P: f64 = 0.046_399_461_870_904_594;
    const LONG_P: f64 = 0.035_900_123_215_878_11;

    #[test]
    fn few_pairs_have_a_large_smallest_p() {
        for (n, least) in [(3, 0.25), (6, 0.031_25), (10, 0.001_953_125)] {
            let all_lower: Vec<f64> = (1..=n).map(|i| -f64::from(i)).collect();
            check(&all_lower, least, 1e-12);
        }
        assert_eq!(signed_rank_p(&[0.0, 0.0]), None);
    }
}

//! Trend of values over time: the test of Mann and Kendall, two-sided, and the slope of Theil and
//! Sen.
//!
//! Up to [`EXACT_MAX`] untied values, p is exact: all orders are counted by their number of
//! inversions. Otherwise it is the normal approximation with the correction for ties and the
//! continuity correction.

use super::median;
use super::wilcoxon::normal_tail;

/// Maximum number of values for the exact distribution.
pub const EXACT_MAX: usize = 20;
/// Minimum number of values.
const VALUES_MIN: usize = 3;

/// The trend of a list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Change from the first value to the last by the slope, relative to the median.
    pub change: f64,
    /// Probability of a trend at least this strong, if the order of the values is random.
    pub p: f64,
}

/// The trend of `values`; `None` if they are fewer than three, or if their median is 0.
#[allow(clippy::cast_precision_loss)] // counts of blocks
pub fn trend(values: &[f64]) -> Option<Trend> {
    let n = values.len();
    let centre = median(values).filter(|centre| *centre != 0.0)?;
    if n < VALUES_MIN {
        return None;
    }
    let mut slopes = Vec::with_capacity(n * (n - 1) / 2);
    let (mut rising, mut falling) = (0_usize, 0_usize);
    for (later, value) in values.iter().enumerate() {
        for (earlier, before) in values.iter().enumerate().take(later) {
            slopes.push((value - before) / (later - earlier) as f64);
            rising += usize::from(value > before);
            falling += usize::from(value < before);
        }
    }
    let change = median(&slopes)? * (n - 1) as f64 / centre.abs();
    let p = if rising + falling == slopes.len() && n <= EXACT_MAX {
        let tail: f64 = shares_of_inversions(n)
            .iter()
            .take(rising.min(falling) + 1)
            .sum();
        2.0 * tail
    } else {
        let score = rising.abs_diff(falling).saturating_sub(1) as f64;
        match variance(values) {
            0.0 => 1.0,
            variance => 2.0 * normal_tail(score / variance.sqrt()),
        }
    };
    Some(Trend {
        change,
        p: p.min(1.0),
    })
}

/// For each number of inversions, the share of the orders of `n` values that have it.
#[allow(clippy::cast_precision_loss)] // at most twenty values
fn shares_of_inversions(n: usize) -> Vec<f64> {
    let mut shares = vec![1.0_f64];
    for count in 2..=n {
        // The new value can be inverted with 0 to count - 1 of the values before it.
        let mut next = vec![0.0; shares.len() + count - 1];
        for (inversions, share) in shares.iter().enumerate() {
            for place in next.iter_mut().skip(inversions).take(count) {
                *place += share / count as f64;
            }
        }
        shares = next;
    }
    shares
}

/// Variance of the number of rising pairs less that of falling pairs, in random order.
#[allow(clippy::cast_precision_loss, clippy::float_cmp)] // ties are exact equality by definition
fn variance(values: &[f64]) -> f64 {
    let part = |size: usize| {
        let size = size as f64;
        size * (size - 1.0) * (2.0 * size + 5.0) / 18.0
    };
    let ordered = super::sorted(values);
    let ties: f64 = ordered
        .chunk_by(|a, b| a == b)
        .map(|group| part(group.len()))
        .sum();
    part(values.len()) - ties
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Calls `visit` with every order of `items`.
    fn orders(items: &mut [f64], from: usize, visit: &mut impl FnMut(&[f64])) {
        if from == items.len() {
            visit(items);
            return;
        }
        for place in from..items.len() {
            items.swap(from, place);
            orders(items, from + 1, visit);
            items.swap(from, place);
        }
    }

    /// Rising pairs less falling pairs.
    fn score(values: &[f64]) -> i32 {
        let mut sum = 0;
        for (later, value) in values.iter().enumerate() {
            let before = values.iter().take(later);
            sum += before
                .map(|before| if value > before { 1 } else { -1 })
                .sum::<i32>();
        }
        sum
    }

    #[test]
    fn p_equals_an_enumeration_of_all_orders() {
        let mut items = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let mut scores = Vec::new();
        orders(&mut items, 0, &mut |order| scores.push(score(order)));
        orders(&mut items, 0, &mut |order| {
            let far = scores.iter().filter(|s| s.abs() >= score(order).abs());
            let expected = f64::from(u32::try_from(far.count()).unwrap()) / 720.0;
            let p = trend(order).unwrap().p;
            assert!((p - expected.min(1.0)).abs() < 1e-9, "{order:?}: {p}");
        });
    }

    #[test]
    fn a_line_has_its_slope_and_the_smallest_p() {
        let rising: Vec<f64> = (0..10).map(|i| 100.0 + f64::from(i)).collect();
        let found = trend(&rising).unwrap();
        assert!((found.change - 9.0 / 104.5).abs() < 1e-9, "{found:?}");
        assert!((found.p - 2.0 / 3_628_800.0).abs() < 1e-12, "{found:?}");
        let falling: Vec<f64> = rising.iter().rev().copied().collect();
        assert!((trend(&falling).unwrap().change + found.change).abs() < 1e-9);
    }

    #[test]
    fn ties_and_long_lists_use_the_normal_distribution() {
        assert!((trend(&[5.0; 8]).unwrap().p - 1.0).abs() < 1e-9);
        let long: Vec<f64> = (1..=40).map(f64::from).collect();
        assert!(trend(&long).unwrap().p < 1e-6);
        assert_eq!(trend(&[1.0, 2.0]), None);
        assert_eq!(trend(&[0.0; 5]), None);
    }
}

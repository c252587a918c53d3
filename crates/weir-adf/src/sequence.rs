//! Aligns two sequences of nodes by a longest common subsequence.

use serde_json::Value;
use std::collections::HashMap;

/// Limit on the cells in the table of the comparison, which bounds its time and memory. Longer
/// sequences are compared only at their beginnings and ends.
const CELLS_MAX: usize = 4 << 20;

/// Pairs of equal elements, ascending in both.
pub(crate) fn common(one: &[Value], two: &[Value]) -> Vec<(usize, usize)> {
    let mut numbers: HashMap<&Value, u32> = HashMap::new();
    let mut number = |value| {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *numbers.entry(value).or_insert(next)
    };
    let one: Vec<u32> = one.iter().map(&mut number).collect();
    let two: Vec<u32> = two.iter().map(&mut number).collect();
    let head = one.iter().zip(&two).take_while(|(a, b)| a == b).count();
    let ends = one[head..].iter().rev().zip(two[head..].iter().rev());
    let tail = ends.take_while(|(a, b)| a == b).count();
    let (one_end, two_end) = (one.len() - tail, two.len() - tail);
    let mut pairs: Vec<(usize, usize)> = (0..head).map(|at| (at, at)).collect();
    let middle = longest(&one[head..one_end], &two[head..two_end]);
    pairs.extend(middle.into_iter().map(|(a, b)| (head + a, head + b)));
    pairs.extend((0..tail).map(|at| (one_end + at, two_end + at)));
    pairs
}

fn longest(one: &[u32], two: &[u32]) -> Vec<(usize, usize)> {
    let columns = two.len() + 1;
    let cells = (one.len() + 1).saturating_mul(columns);
    if cells > CELLS_MAX {
        return Vec::new();
    }
    // Length of the longest common subsequence of the remaining elements.
    let mut lengths = vec![0_u32; cells];
    for a in (0..one.len()).rev() {
        for b in (0..two.len()).rev() {
            lengths[a * columns + b] = if one[a] == two[b] {
                lengths[(a + 1) * columns + b + 1] + 1
            } else {
                lengths[(a + 1) * columns + b].max(lengths[a * columns + b + 1])
            };
        }
    }
    let (mut a, mut b) = (0, 0);
    let mut pairs = Vec::new();
    while a < one.len() && b < two.len() {
        if one[a] == two[b] {
            pairs.push((a, b));
            a += 1;
            b += 1;
        } else if lengths[(a + 1) * columns + b] >= lengths[a * columns + b + 1] {
            a += 1;
        } else {
            b += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::common;
    use serde_json::{Value, json};

    fn letters(text: &str) -> Vec<Value> {
        text.chars().map(|c| json!(c.to_string())).collect()
    }

    #[test]
    fn equal_elements_are_paired_in_order() {
        let pairs = |one: &str, two: &str| common(&letters(one), &letters(two));
        assert_eq!(pairs("abc", "abc"), [(0, 0), (1, 1), (2, 2)]);
        assert_eq!(pairs("abc", "axc"), [(0, 0), (2, 2)]);
        assert_eq!(pairs("abcd", "bd"), [(1, 0), (3, 1)]);
        assert_eq!(pairs("ab", "ba").len(), 1);
        assert_eq!(pairs("", "a"), []);
    }
}

//! Decides a claim from paired blocks.
//!
//! In each block, the claimed figure is one number: a ratio (the first reference divided by the
//! best of the others, or by a bound), a difference, or a value. Its median over the blocks gets a
//! bootstrap interval. The claim *holds* if the whole interval and 80 % of the blocks are on the
//! right side of the limit, and *does not hold* if they are on the other side. Otherwise the outcome
//! is *cannot tell*, with the number of blocks that would probably decide. Fewer than
//! [`BLOCKS_MIN`] blocks never decide, because no paired test of so few can reach five percent.

use crate::experiment::reference::{Reference, matches};
use crate::experiment::{BLOCKS_MAX, ClaimSpec, Expect};
use crate::figures::Figures;
use crate::rng::fnv1a64;
use crate::stats::bootstrap::{Interval, median_interval};
use crate::stats::wilcoxon::signed_rank_p;

/// Fewest blocks that decide.
pub const BLOCKS_MIN: usize = 6;
/// Share of the blocks, in percent, that must be on one side of the limit.
const SIDE_PERCENT: usize = 80;

/// The outcome of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval and most blocks are on the right side of the limit.
    Holds,
    /// The whole interval and most blocks are on the wrong side.
    DoesNotHold,
    /// The interval contains the limit, the blocks disagree, or there are too few.
    CannotTell,
    /// Nothing was measured for it in this run.
    NotMeasured,
}

impl Verdict {
    /// The word for the outcome in a table.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::DoesNotHold => "DOES NOT HOLD",
            Verdict::CannotTell => "cannot tell",
            Verdict::NotMeasured => "not measured",
        }
    }
}

/// A decided claim at one workload.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Decision {
    /// Sentence of the claim.
    pub text: String,
    /// The compared references, as in the experiment file.
    pub compared: String,
    /// The workload; empty if every reference names a workload.
    pub workload: String,
    /// Whether the figures are ratios; otherwise they are values in the unit of the metric.
    pub ratio: bool,
    /// Metric of the first reference.
    pub metric: String,
    /// The limit.
    pub bar: f64,
    /// The side of the limit on which the claim holds.
    pub at_most: bool,
    /// One figure a block.
    pub figures: Vec<f64>,
    /// Median and interval.
    pub interval: Option<Interval>,
    /// Wilcoxon signed rank of the figures against the limit.
    pub p: Option<f64>,
    /// The outcome.
    pub verdict: Verdict,
    /// The number of blocks that would probably decide, if this number could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks_needed: Option<usize>,
    /// Whether the compared contenders are equal, so that the claim must not hold.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub equal: bool,
}

/// Judges `figures` against `bar`.
pub fn judge(
    figures: &[f64],
    bar: f64,
    at_most: bool,
    seed: u64,
) -> (Option<Interval>, Option<f64>, Verdict) {
    let Some(interval) = median_interval(figures, seed) else {
        return (None, None, Verdict::NotMeasured);
    };
    let differences: Vec<f64> = if bar > 0.0 && figures.iter().all(|figure| *figure > 0.0) {
        figures.iter().map(|figure| (figure / bar).ln()).collect()
    } else {
        figures.iter().map(|figure| figure - bar).collect()
    };
    let p = signed_rank_p(&differences);
    let is_right = |figure: f64| {
        if at_most {
            figure <= bar
        } else {
            figure >= bar
        }
    };
    let on_right = figures.iter().filter(|figure| is_right(**figure)).count();
    let most = |count: usize| count * 100 >= figures.len() * SIDE_PERCENT;
    let (right, wrong) = if at_most {
        (interval.high <= bar, interval.low > bar)
    } else {
        (interval.low >= bar, interval.high < bar)
    };
    let right = right && most(on_right);
    let wrong = wrong && most(figures.len() - on_right);
    let verdict = match (figures.len() >= BLOCKS_MIN, right, wrong) {
        (true, true, _) => Verdict::Holds,
        (true, _, true) => Verdict::DoesNotHold,
        _ => Verdict::CannotTell,
    };
    (Some(interval), p, verdict)
}

/// The number of blocks that would probably decide, if `verdict` is that `blocks` could not: an
/// interval shrinks with the square root of this number. `None` if that is more than a run can have.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)] // at most BLOCKS_MAX
fn needed(blocks: usize, interval: Option<Interval>, bar: f64, verdict: Verdict) -> Option<usize> {
    let interval = interval.filter(|_| verdict == Verdict::CannotTell)?;
    let half = if interval.centre < bar {
        interval.high - interval.centre
    } else {
        interval.centre - interval.low
    };
    let shrink = half / (interval.centre - bar).abs();
    let needed = (blocks as f64 * shrink * shrink).ceil();
    let least = (blocks + 1).max(BLOCKS_MIN);
    (needed <= BLOCKS_MAX as f64).then(|| least.max(needed as usize))
}

/// Decides `claim` at each of its workloads. Where some of the others take no part, the first
/// reference is compared with the rest of them, so that a slow contender with a skipped workload
/// does not hide the result against the fast ones.
pub fn decide(claim: &ClaimSpec, figures: &Figures, seed: u64) -> Vec<Decision> {
    let parse = |text: &String| Reference::parse(text, &claim.metric);
    let first = claim.compare.first().map(parse);
    let others: Vec<(&str, Reference)> = claim
        .compare
        .iter()
        .skip(1)
        .map(|text| (text.as_str(), parse(text)))
        .collect();
    let bound: Vec<(f64, Vec<Reference>)> = claim
        .bound
        .iter()
        .map(|term| (term.factor, term.of.iter().map(parse).collect()))
        .collect();
    let ratio = (!others.is_empty() || !bound.is_empty()) && claim.max_more.is_none();
    let metric = first.as_ref().map(|first| first.metric.clone());
    let metric = metric.unwrap_or_default();
    let (bar, at_most) = bar_of(claim, figures.noise_floor());
    let mut decisions: Vec<Decision> = Vec::new();
    for workload in &workloads_of(claim, figures, first.as_ref(), &others, &bound) {
        let peers = peers_at(&others, figures, workload);
        let per_block = figures.per_block(|block| {
            let value = |reference: &Reference| figures.value(block, reference, workload);
            let first = value(first.as_ref()?)?;
            let mut base = if others.is_empty() {
                1.0
            } else {
                let values = peers.iter().map(|(_, peer)| value(peer));
                best(values.collect::<Option<Vec<f64>>>()?, claim.expect)?
            };
            if !bound.is_empty() {
                base = 0.0;
                for (factor, of) in &bound {
                    base += of
                        .iter()
                        .map(value)
                        .try_fold(*factor, |product, v| Some(product * v?))?;
                }
            }
            Some(match claim.max_more {
                Some(_) => first - base,
                None => first / base,
            })
        });
        let blocks = per_block.len();
        let part = format!("{}/{workload}", claim.text);
        let (interval, p, verdict) =
            judge(&per_block, bar, at_most, seed ^ fnv1a64(part.as_bytes()));
        decisions.push(Decision {
            text: claim.text.clone(),
            compared: compared(claim, &peers),
            workload: workload.clone(),
            ratio,
            metric: metric.clone(),
            bar,
            at_most,
            figures: per_block,
            interval,
            p,
            verdict,
            blocks_needed: needed(blocks, interval, bar, verdict),
            equal: claim.equal,
        });
    }
    decisions
}

/// The workloads at which `claim` is decided; an empty name if every reference names a workload, or
/// if nothing was measured.
fn workloads_of(
    claim: &ClaimSpec,
    figures: &Figures,
    first: Option<&Reference>,
    others: &[(&str, Reference)],
    bound: &[(f64, Vec<Reference>)],
) -> Vec<String> {
    let fixed = || first.into_iter().chain(bound.iter().flat_map(|(_, of)| of));
    let is_named = |reference: &Reference| reference.workload.is_some();
    if fixed().all(is_named) && others.iter().all(|(_, other)| is_named(other)) {
        return vec![String::new()];
    }
    let wanted = |name: &&String| {
        claim.workloads.is_empty() || claim.workloads.iter().any(|pattern| matches(pattern, name))
    };
    let here = |name: &&String| {
        let peers = peers_at(others, figures, name);
        peers.is_empty() == others.is_empty()
            && fixed().all(|reference| figures.has(reference, name))
            && peers.iter().all(|(_, peer)| figures.has(peer, name))
    };
    let mut workloads: Vec<String> = figures
        .workloads()
        .filter(wanted)
        .filter(here)
        .cloned()
        .collect();
    if workloads.is_empty() {
        // No cell has this name, so nothing was measured.
        workloads.push(String::new());
    }
    workloads
}

/// The others that take part at `workload`.
fn peers_at<'a>(
    others: &'a [(&'a str, Reference)],
    figures: &Figures,
    workload: &str,
) -> Vec<&'a (&'a str, Reference)> {
    let is_here = |(_, other): &&(&str, Reference)| !figures.is_left_out(other, workload);
    others.iter().filter(is_here).collect()
}

/// The best of the other references.
fn best(values: Vec<f64>, expect: Expect) -> Option<f64> {
    let mut values = values.into_iter();
    let first = values.next()?;
    Some(values.fold(
        first,
        if expect == Expect::Lower {
            f64::min
        } else {
            f64::max
        },
    ))
}

fn bar_of(claim: &ClaimSpec, noise_floor: f64) -> (f64, bool) {
    let lower = claim.expect == Expect::Lower;
    let given = claim
        .max_ratio
        .or(claim.min_ratio)
        .or(claim.max_value)
        .or(claim.min_value)
        .or(claim.max_more);
    let effect = claim.min_effect.unwrap_or(0.0).max(noise_floor);
    (
        given.unwrap_or(if lower { 1.0 - effect } else { 1.0 + effect }),
        lower,
    )
}

/// The compared references, for a table: the first with `peers`, or with all others if there are no
/// peers.
fn compared(claim: &ClaimSpec, peers: &[&(&str, Reference)]) -> String {
    let first = claim.compare.first().cloned().unwrap_or_default();
    let all = claim.compare.iter().skip(1).map(String::as_str);
    let rest: Vec<&str> = if peers.is_empty() {
        all.collect()
    } else {
        peers.iter().map(|(text, _)| *text).collect()
    };
    if !claim.bound.is_empty() {
        let terms: Vec<String> = claim
            .bound
            .iter()
            .map(|term| format!("{} x {}", term.factor, term.of.join(" x ")))
            .collect();
        return format!("{first} / ({})", terms.join(" + "));
    }
    match rest.as_slice() {
        [] => first,
        [one] if claim.max_more.is_some() => format!("{first} - {one}"),
        [one] => format!("{first} / {one}"),
        many => format!("{first} / best of {}", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(figures: &[f64], bar: f64, at_most: bool) -> Verdict {
        judge(figures, bar, at_most, 1).2
    }

    #[test]
    fn the_whole_interval_decides() {
        let low = [0.70, 0.71, 0.69, 0.72, 0.70, 0.71, 0.70, 0.69, 0.70, 0.71];
        assert_eq!(verdict(&low, 0.75, true), Verdict::Holds);
        assert_eq!(verdict(&low, 0.65, true), Verdict::DoesNotHold);
        assert_eq!(verdict(&low, 0.70, true), Verdict::CannotTell);
        assert_eq!(verdict(&low, 0.65, false), Verdict::Holds);
        assert_eq!(verdict(&low, 0.75, false), Verdict::DoesNotHold);
        assert_eq!(verdict(&[0.0; 8], 0.0, true), Verdict::Holds);
    }

    #[test]
    fn an_interval_does_not_decide_if_more_than_a_fifth_of_the_blocks_disagree() {
        for (low, verdict_of) in [(28, Verdict::CannotTell), (36, Verdict::Holds)] {
            let figures: Vec<f64> = (0..40).map(|i| if i < low { 0.7 } else { 0.8 }).collect();
            let (interval, _, decided) = judge(&figures, 0.75, true, 1);
            assert!(interval.is_some_and(|interval| interval.high <= 0.75));
            assert_eq!(decided, verdict_of, "{low} blocks of 40");
        }
    }

    #[test]
    fn an_interval_four_times_too_wide_needs_sixteen_times_the_blocks() {
        let interval = |centre: f64| {
            Some(Interval {
                centre,
                low: centre - 0.5,
                high: centre + 0.5,
            })
        };
        let needed = |centre| needed(10, interval(centre), 1.0, Verdict::CannotTell);
        assert_eq!((needed(0.875), needed(1.125)), (Some(160), Some(160)));
        assert_eq!(needed(0.75), Some(40));
        assert_eq!((needed(1.0), needed(0.9999)), (None, None));
    }

    #[test]
    fn few_blocks_never_decide() {
        assert_eq!(verdict(&[0.5; 5], 0.75, true), Verdict::CannotTell);
        assert_eq!(verdict(&[], 0.75, true), Verdict::NotMeasured);
    }
}

//! The Wilcoxon signed-rank test.

use grpo_data::statistics::TestResult;

use super::alternative::Alternative;
use super::distribution::normal_tail;
use super::ranks::Ranks;
use crate::error::{MeasureError, check_count, check_finite, check_lengths};

/// Performs the Wilcoxon signed-rank test for pairs (Wilcoxon 1945). Pairs of equal values are
/// removed.
///
/// The statistic is the sum of the ranks of positive differences `x - y`, or for a two-sided test
/// the smaller one of the sums of positive and negative differences. Like SciPy's `method="auto"`,
/// the p-value is exact for up to 50 pairs without ties and zeros, and for up to 13 pairs otherwise.
/// Larger samples use the normal approximation with tie correction and without continuity
/// correction. If all differences are 0, the p-value is 1.
///
/// # Errors
/// Returns an error if there are no pairs, if the lengths differ, or if a number is not finite.
pub fn wilcoxon_signed_rank(
    x: &[f64],
    y: &[f64],
    alternative: Alternative,
) -> Result<TestResult, MeasureError> {
    const WHAT: &str = "Wilcoxon signed-rank test";
    check_lengths(WHAT, x.len(), y.len())?;
    check_count(WHAT, x.len(), 1)?;
    check_finite("x", x)?;
    check_finite("y", y)?;
    let differences = x.iter().zip(y).map(|(x, y)| x - y);
    let differences: Vec<f64> = differences.filter(|difference| *difference != 0.0).collect();
    let sizes: Vec<f64> = differences.iter().map(|difference| difference.abs()).collect();
    let ranks = Ranks::new(&sizes);
    let with_sign = |sign: f64| {
        let ranks = ranks.ranks.iter().zip(&differences);
        ranks.filter(|(_, difference)| **difference * sign > 0.0).map(|(rank, _)| rank).sum::<f64>()
    };
    let (positive, negative) = (with_sign(1.0), with_sign(-1.0));
    let is_plain = ranks.tie_term == 0.0 && differences.len() == x.len();
    let largest_exact = if is_plain { 50 } else { 13 };
    let tails = if x.len() <= largest_exact || differences.is_empty() {
        let counts = sign_counts(&ranks.ranks);
        // The distribution is symmetric: P(W ≤ positive) = P(W ≥ negative).
        [positive, negative].map(|sum| exact_tail(&counts, sum))
    } else {
        let n = differences.len() as f64;
        let variance = (n * (n + 1.0) * (2.0 * n + 1.0) - ranks.tie_term / 2.0) / 24.0;
        [positive, negative].map(|sum| normal_tail((sum - n * (n + 1.0) / 4.0) / variance.sqrt()))
    };
    let statistic = match alternative {
        Alternative::TwoSided => positive.min(negative),
        _ => positive,
    };
    let p_value = alternative.p_value(tails[0], tails[1]);
    Ok(TestResult { statistic, degrees_of_freedom: None, p_value })
}

/// Returns how many of all combinations of signs have each sum of positive ranks. The index is twice
/// the sum, because ranks of ties are multiples of 1/2.
fn sign_counts(ranks: &[f64]) -> Vec<u64> {
    let mut counts = vec![1_u64];
    for rank in ranks {
        let twice = (2.0 * rank) as usize;
        let mut with = vec![0; counts.len() + twice];
        for (sum, count) in counts.iter().enumerate() {
            with[sum] += count;
            with[sum + twice] += count;
        }
        counts = with;
    }
    counts
}

/// Returns the probability of a sum of at least `sum`.
fn exact_tail(counts: &[u64], sum: f64) -> f64 {
    let all: u64 = counts.iter().sum();
    counts[(2.0 * sum) as usize..].iter().sum::<u64>() as f64 / all as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The differences 1, 2, −3 have positive ranks 1 and 2. Of the 8 combinations of signs, the sum
    /// is at least 3 in 5 of them (3 twice, 4, 5, 6) and at most 3 in 5 of them.
    #[test]
    fn exact_by_hand() {
        let (x, y) = ([1.0, 2.0, 0.0], [0.0, 0.0, 3.0]);
        let found = wilcoxon_signed_rank(&x, &y, Alternative::Greater).unwrap();
        assert_eq!((found.statistic, found.p_value), (3.0, 5.0 / 8.0));
        let found = wilcoxon_signed_rank(&x, &y, Alternative::TwoSided).unwrap();
        assert_eq!((found.statistic, found.p_value), (3.0, 1.0));
    }

    #[test]
    fn equal_samples_have_a_p_value_of_one() {
        for count in [1, 5, 60] {
            let x = vec![0.5; count];
            let found = wilcoxon_signed_rank(&x, &x, Alternative::TwoSided).unwrap();
            assert_eq!((found.statistic, found.p_value), (0.0, 1.0));
        }
        assert!(wilcoxon_signed_rank(&[], &[], Alternative::TwoSided).is_err());
        assert!(wilcoxon_signed_rank(&[1.0], &[], Alternative::TwoSided).is_err());
        assert!(wilcoxon_signed_rank(&[1.0], &[f64::NAN], Alternative::TwoSided).is_err());
    }

    proptest! {
        /// Enumerates the signs of all differences that are not 0.
        #[test]
        fn exact_p_values_are_those_of_all_signs(
            x in prop::collection::vec(-4_i32..5, 1..9),
        ) {
            let x: Vec<f64> = x.into_iter().map(f64::from).collect();
            let zeros = vec![0.0; x.len()];
            let found = wilcoxon_signed_rank(&x, &zeros, Alternative::Greater).unwrap();
            let kept: Vec<f64> = x.iter().copied().filter(|x| *x != 0.0).collect();
            let rank = |of: f64| {
                let below = kept.iter().filter(|x| x.abs() < of.abs()).count() as f64;
                below + (kept.iter().filter(|x| x.abs() == of.abs()).count() as f64 + 1.0) / 2.0
            };
            let sum = |is_positive: &dyn Fn(usize) -> bool| {
                (0..kept.len()).filter(|i| is_positive(*i)).map(|i| rank(kept[i])).sum::<f64>()
            };
            let observed = sum(&|i| kept[i] > 0.0);
            let all = 1_u32 << kept.len();
            let least = (0..all).filter(|signs| sum(&|i| signs >> i & 1 == 1) >= observed).count();
            prop_assert_eq!(found.statistic, observed);
            prop_assert!((found.p_value - least as f64 / f64::from(all)).abs() < 1e-12);
        }
    }
}

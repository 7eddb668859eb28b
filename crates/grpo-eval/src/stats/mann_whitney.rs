//! The Mann-Whitney U test.

use grpo_data::statistics::TestResult;

use super::alternative::Alternative;
use super::distribution::normal_tail;
use super::ranks::Ranks;
use crate::error::{MeasureError, check_count, check_finite};

/// Performs the Mann-Whitney U test for two independent samples (Mann and Whitney 1947). For values
/// that belong together in pairs, use [`super::wilcoxon_signed_rank`].
///
/// The statistic is U of `x`. Like SciPy's `method="auto"`, the p-value is exact if one sample has
/// at most 8 values and there are no ties. Otherwise it is from the normal approximation with tie
/// and continuity corrections.
///
/// # Errors
/// Returns an error if a sample is empty or a number is not finite.
pub fn mann_whitney_u(
    x: &[f64],
    y: &[f64],
    alternative: Alternative,
) -> Result<TestResult, MeasureError> {
    for (name, sample) in [("x", x), ("y", y)] {
        check_count(name, sample.len(), 1)?;
        check_finite(name, sample)?;
    }
    let ranks = Ranks::new(&[x, y].concat());
    let (n, m) = (x.len() as f64, y.len() as f64);
    let of_x = ranks.ranks[..x.len()].iter().sum::<f64>() - n * (n + 1.0) / 2.0;
    let of_y = n * m - of_x;
    let (smaller, larger) = (x.len().min(y.len()), x.len().max(y.len()));
    let counts = match smaller <= 8 && ranks.tie_term == 0.0 {
        true => arrangements(smaller, larger),
        false => None,
    };
    let tails = match counts {
        Some(counts) => [of_x, of_y].map(|u| exact_tail(&counts, u)),
        None => {
            let all = n + m;
            let variance = n * m / 12.0 * (all + 1.0 - ranks.tie_term / (all * (all - 1.0)));
            // If all values are equal, z is −∞ and the p-value is 1.
            [of_x, of_y].map(|u| normal_tail((u - n * m / 2.0 - 0.5) / variance.sqrt()))
        }
    };
    let p_value = alternative.p_value(tails[0], tails[1]);
    Ok(TestResult { statistic: of_x, degrees_of_freedom: None, p_value })
}

/// Returns the number of arrangements of two samples for each value of U, which are the coefficients
/// of the Gaussian binomial coefficient, or `None` if they don't fit 128 bits.
fn arrangements(smaller: usize, larger: usize) -> Option<Vec<u128>> {
    let logarithm = |i: usize| (1.0 + larger as f64 / i as f64).log2();
    if (1..=smaller).map(logarithm).sum::<f64>() > 126.0 {
        return None;
    }
    let mut counts = vec![0_u128; smaller * larger + 1];
    counts[0] = 1;
    for i in 1..=smaller {
        // Multiplies by (1 − q^(larger + i)) / (1 − q^i). Intermediate values may be negative.
        for u in (larger + i..counts.len()).rev() {
            counts[u] = counts[u].wrapping_sub(counts[u - larger - i]);
        }
        for u in i..counts.len() {
            counts[u] = counts[u].wrapping_add(counts[u - i]);
        }
    }
    Some(counts)
}

/// Returns the probability of a statistic of at least `u`.
fn exact_tail(counts: &[u128], u: f64) -> f64 {
    let all: u128 = counts.iter().sum();
    // Without ties, `u` is an integer. The distribution is symmetric.
    let at_least: u128 = counts[u.round() as usize..].iter().sum();
    at_least as f64 / all as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Of the 6 arrangements of 2 and 2 values, 1 has U = 4 and 1 has U = 3.
    #[test]
    fn exact_by_hand() {
        let found = mann_whitney_u(&[2.0, 4.0], &[1.0, 3.0], Alternative::Greater).unwrap();
        assert_eq!(found.statistic, 3.0);
        assert!((found.p_value - 2.0 / 6.0).abs() < 1e-15);
        let found = mann_whitney_u(&[1.0, 1.0], &[1.0], Alternative::TwoSided).unwrap();
        assert_eq!((found.statistic, found.p_value), (1.0, 1.0));
        assert!(mann_whitney_u(&[], &[1.0], Alternative::TwoSided).is_err());
        assert!(mann_whitney_u(&[1.0], &[f64::INFINITY], Alternative::TwoSided).is_err());
    }

    /// Counts U of all subsets of the ranks.
    #[test]
    fn arrangements_are_those_of_all_subsets() {
        for (smaller, larger) in [(1, 1), (1, 5), (2, 3), (3, 3), (4, 6), (5, 7)] {
            let mut expected = vec![0_u128; smaller * larger + 1];
            for subset in 0..1_u32 << (smaller + larger) {
                if subset.count_ones() as usize == smaller {
                    let ranks = (0..smaller + larger).filter(|rank| subset >> rank & 1 == 1);
                    expected[ranks.sum::<usize>() - smaller * (smaller - 1) / 2] += 1;
                }
            }
            assert_eq!(arrangements(smaller, larger), Some(expected));
        }
        assert_eq!(arrangements(8, 1_000_000), None);
    }

    proptest! {
        #[test]
        fn swapping_the_samples_swaps_the_alternatives(
            x in prop::collection::vec(-9_i32..9, 1..12),
            y in prop::collection::vec(-9_i32..9, 1..12),
        ) {
            let [x, y] = [x, y].map(|list| list.into_iter().map(f64::from).collect::<Vec<_>>());
            let p = |x: &[f64], y: &[f64], alternative| {
                let found = mann_whitney_u(x, y, alternative).unwrap();
                prop_assert!((0.0..=1.0).contains(&found.p_value));
                Ok(found.p_value)
            };
            prop_assert_eq!(p(&x, &y, Alternative::Greater)?, p(&y, &x, Alternative::Less)?);
            prop_assert_eq!(p(&x, &y, Alternative::TwoSided)?, p(&y, &x, Alternative::TwoSided)?);
        }
    }
}

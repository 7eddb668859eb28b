//! The sign test.

use grpo_data::statistics::TestResult;

use super::alternative::Alternative;
use crate::error::{MeasureError, check_count};

/// Performs the exact sign test: the binomial test that wins and losses are equally likely. Ties do
/// not count. The statistic is the fraction of wins.
///
/// # Errors
/// Returns an error if there are neither wins nor losses.
pub fn sign_test(
    wins: usize,
    losses: usize,
    alternative: Alternative,
) -> Result<TestResult, MeasureError> {
    let n = wins + losses;
    check_count("wins and losses of the sign test", n, 1)?;
    // The distribution is symmetric: P(X ≥ wins) = P(X ≤ losses).
    let p_value = alternative.p_value(at_most(losses, n), at_most(wins, n));
    let statistic = wins as f64 / n as f64;
    Ok(TestResult { statistic, degrees_of_freedom: None, p_value })
}

/// Returns P(X ≤ k) for a binomial X with n trials and probability 1/2.
fn at_most(k: usize, n: usize) -> f64 {
    if k >= n {
        return 1.0;
    }
    if 2 * k >= n {
        return 1.0 - at_most(n - k - 1, n);
    }
    let mut term = probability(k, n);
    let mut sum = term;
    for i in (1..=k).rev() {
        term *= i as f64 / (n - i + 1) as f64;
        sum += term;
    }
    sum
}

/// Returns C(n, k) / 2ⁿ for k ≤ n / 2. Halves are multiplied as soon as the product exceeds 1, so that
/// it doesn't overflow.
fn probability(k: usize, n: usize) -> f64 {
    let (mut product, mut halves) = (1.0, n);
    for i in 1..=k {
        product *= (n - k + i) as f64 / i as f64;
        while product > 1.0 && halves > 0 {
            product *= 0.5;
            halves -= 1;
        }
    }
    product * 0.5_f64.powi(i32::try_from(halves).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-13 * expected, "{found:e}, not {expected:e}");
    }

    /// Row 10 of Pascal's triangle starts with 1, 10, 45, and its sum is 1024.
    #[test]
    fn small_numbers_by_hand() {
        let p = |wins, losses, alternative| sign_test(wins, losses, alternative).unwrap().p_value;
        check(p(8, 2, Alternative::TwoSided), 2.0 * 56.0 / 1024.0);
        check(p(2, 8, Alternative::TwoSided), 2.0 * 56.0 / 1024.0);
        check(p(8, 2, Alternative::Greater), 56.0 / 1024.0);
        check(p(8, 2, Alternative::Less), 1013.0 / 1024.0);
        check(p(5, 5, Alternative::TwoSided), 1.0);
        check(p(1, 0, Alternative::TwoSided), 1.0);
        check(p(0, 4, Alternative::TwoSided), 0.125);
        assert_eq!(sign_test(3, 1, Alternative::TwoSided).unwrap().statistic, 0.75);
        assert!(sign_test(0, 0, Alternative::TwoSided).is_err());
    }

    /// Pascal's triangle, halved in each row.
    #[test]
    fn all_tails_of_several_sizes() {
        for n in [1_usize, 2, 3, 20, 301, 1000] {
            let mut row = vec![1.0_f64];
            for size in 1..=n {
                row = (0..=size)
                    .map(|k| {
                        let left = if k == 0 { 0.0 } else { row[k - 1] };
                        0.5 * (left + row.get(k).copied().unwrap_or(0.0))
                    })
                    .collect();
            }
            for k in 0..=n {
                let tail: f64 = row[..=k].iter().sum();
                assert!((at_most(k, n) - tail).abs() < 1e-13, "{k} of {n}");
                assert!(k > n / 2 || (at_most(k, n) - tail).abs() <= 1e-11 * tail, "{k} of {n}");
            }
        }
    }

    #[test]
    fn large_numbers_neither_overflow_nor_vanish() {
        // SciPy's binom.cdf.
        let found = at_most(499_500, 1_000_000);
        assert!((found - 0.158_897_345_681_664_86).abs() < 1e-11, "{found}");
        assert!(at_most(0, 1000) > 0.0);
        assert_eq!(at_most(0, 100_000), 0.0);
    }
}

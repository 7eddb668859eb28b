//! Student's t-test for pairs.

use grpo_data::statistics::{TestResult, mean, sample_variance};

use super::alternative::Alternative;
use super::distribution::t_tail;
use crate::error::{MeasureError, check_count, check_finite, check_lengths};

/// Performs Student's t-test for pairs, i.e. whether the mean of `x - y` is zero.
///
/// If all differences are 0, the statistic is 0 and the p-value is 1 (SciPy returns NaN).
///
/// # Errors
/// Returns an error if there are fewer than two pairs, if the lengths differ, if a number is not
/// finite, or if all differences are the same number other than 0.
pub fn paired_t_test(
    x: &[f64],
    y: &[f64],
    alternative: Alternative,
) -> Result<TestResult, MeasureError> {
    const WHAT: &str = "paired t-test";
    check_lengths(WHAT, x.len(), y.len())?;
    check_count(WHAT, x.len(), 2)?;
    check_finite("x", x)?;
    check_finite("y", y)?;
    let differences: Vec<f64> = x.iter().zip(y).map(|(x, y)| x - y).collect();
    let freedom = differences.len() - 1;
    let result = |statistic: f64, p_value: f64| TestResult {
        statistic,
        degrees_of_freedom: Some(freedom),
        p_value,
    };
    if differences.iter().all(|difference| *difference == differences[0]) {
        if differences[0] == 0.0 {
            return Ok(result(0.0, 1.0));
        }
        let fix = "use the Wilcoxon signed-rank test";
        return Err(MeasureError::Constant { what: WHAT, fix });
    }
    let error = (sample_variance(&differences) / differences.len() as f64).sqrt();
    let statistic = mean(&differences) / error;
    let [upper, lower] = [statistic, -statistic].map(|t| t_tail(t, freedom as f64));
    Ok(result(statistic, alternative.p_value(upper, lower)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The differences 1, 2, 3 have mean 2 and standard error 1/√3, so t is 2√3. With two degrees
    /// of freedom, P(T > t) is (1 − t/√(2 + t²)) / 2.
    #[test]
    fn t_by_hand() {
        let (x, y) = ([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]);
        let t = 12.0_f64.sqrt();
        let tail = 0.5 * (1.0 - t / 14.0_f64.sqrt());
        for (alternative, expected) in [
            (Alternative::TwoSided, 2.0 * tail),
            (Alternative::Greater, tail),
            (Alternative::Less, 1.0 - tail),
        ] {
            let found = paired_t_test(&x, &y, alternative).unwrap();
            assert!((found.statistic - t).abs() < 1e-12, "{found:?}");
            assert!((found.p_value - expected).abs() < 1e-12, "{alternative:?} {found:?}");
            assert_eq!(found.degrees_of_freedom, Some(2));
        }
    }

    #[test]
    fn constant_differences_have_no_t() {
        let test = |x: &[f64], y: &[f64]| paired_t_test(x, y, Alternative::TwoSided);
        let equal = test(&[1.0, 2.0], &[1.0, 2.0]).unwrap();
        assert_eq!((equal.statistic, equal.p_value), (0.0, 1.0));
        let error = test(&[2.0, 3.0], &[1.0, 2.0]).unwrap_err().to_string();
        assert_eq!(
            error,
            "paired t-test is not defined for constant values; use the Wilcoxon signed-rank test"
        );
        assert!(test(&[1.0], &[2.0]).is_err());
        assert!(test(&[1.0, 2.0], &[2.0]).is_err());
        assert!(test(&[1.0, f64::NAN], &[2.0, 1.0]).is_err());
    }
}

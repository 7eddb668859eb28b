//! Correlations with p-values.

use grpo_data::statistics::{TestResult, pearson, spearman};

use super::distribution::t_tail;
use crate::error::{MeasureError, check_count, check_finite, check_lengths};

/// Returns Pearson's correlation coefficient and its two-sided p-value for normally distributed
/// variables. The p-value of two pairs is 1.
///
/// # Errors
/// Returns an error if there are fewer than two pairs, if the lengths differ, if a number is not
/// finite, or if a variable is constant.
pub fn pearson_test(x: &[f64], y: &[f64]) -> Result<TestResult, MeasureError> {
    correlation_test("Pearson's correlation", pearson, x, y)
}

/// Returns Spearman's rank correlation coefficient and its two-sided p-value from the t distribution.
/// The p-value is an approximation, and rough for fewer than ten pairs. Ties have the mean of their
/// ranks. The p-value of two pairs is 1.
///
/// # Errors
/// Returns an error if there are fewer than two pairs, if the lengths differ, if a number is not
/// finite, or if a variable is constant.
pub fn spearman_test(x: &[f64], y: &[f64]) -> Result<TestResult, MeasureError> {
    correlation_test("Spearman's correlation", spearman, x, y)
}

fn correlation_test(
    what: &'static str,
    correlation: fn(&[f64], &[f64]) -> Option<f64>,
    x: &[f64],
    y: &[f64],
) -> Result<TestResult, MeasureError> {
    check_lengths(what, x.len(), y.len())?;
    check_count(what, x.len(), 2)?;
    check_finite("x", x)?;
    check_finite("y", y)?;
    let fix = "pass variables that vary";
    let r = correlation(x, y).ok_or(MeasureError::Constant { what, fix })?;
    let freedom = x.len() - 2;
    let p_value = match freedom {
        0 => 1.0,
        // Infinite for a perfect correlation, whose p-value is 0.
        _ => {
            2.0 * t_tail(
                r.abs() * (freedom as f64 / ((1.0 - r) * (1.0 + r))).sqrt(),
                freedom as f64,
            )
        }
    };
    Ok(TestResult { statistic: r, degrees_of_freedom: Some(freedom), p_value })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// r = 0.8 with 3 degrees of freedom: t = 0.8 √3 / 0.6 = 4/√3. P(|T| > t) is
    /// 1 − 2/π (θ + sin θ cos θ) with tan θ = t/√3 = 4/3.
    #[test]
    fn pearson_by_hand() {
        let (x, y) = ([1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 1.0, 4.0, 3.0, 5.0]);
        let angle = (4.0_f64 / 3.0).atan();
        let expected = 1.0 - (angle + 0.8 * 0.6) * 2.0 / std::f64::consts::PI;
        for test in [pearson_test, spearman_test] {
            let found = test(&x, &y).unwrap();
            assert!((found.statistic - 0.8).abs() < 1e-12, "{found:?}");
            assert!((found.p_value - expected).abs() < 1e-12, "{found:?} {expected}");
            assert_eq!(test(&x[..2], &y[..2]).unwrap().p_value, 1.0);
            assert!(test(&x, &[1.0; 5]).is_err());
            assert!(test(&x, &y[..4]).is_err());
            assert!(test(&[f64::NAN, 1.0], &[1.0, 2.0]).is_err());
        }
        assert_eq!(spearman_test(&x, &x).unwrap().p_value, 0.0);
    }
}

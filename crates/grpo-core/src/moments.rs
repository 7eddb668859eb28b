//! Mean, quantile and standard deviation. They are exact if all values are equal.

use crate::Deviation;

/// Returns the mean, or NaN if `values` is empty.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the smallest value `x` such that at least the fraction `level` of all values is at most `x`, or
/// NaN if `values` is empty. `level` is above 0 and at most 1.
pub(crate) fn quantile(values: &[f64], level: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    // Counting is exact, whereas `level · n` may be rounded to either side of an integer.
    let count = sorted.len() as f64;
    let reached = |rank: &usize| (rank + 1) as f64 / count >= level;
    (0..sorted.len()).find(reached).map_or(f64::NAN, |rank| sorted[rank])
}

/// Returns the standard deviation. It is exactly 0 for equal values, and NaN for fewer than two
/// values.
pub(crate) fn deviation(values: &[f64], kind: Deviation) -> f64 {
    if values.len() < 2 {
        return f64::NAN;
    }
    if is_constant(values) {
        return 0.0;
    }
    let centre = mean(values);
    let differences = || values.iter().map(|value| value - centre);
    // Divide by the largest difference first, so that squaring doesn't underflow.
    let largest = differences().fold(0.0, |largest: f64, d| largest.max(d.abs()));
    let squares: f64 = differences().map(|d| (d / largest).powi(2)).sum();
    let count = match kind {
        Deviation::Sample => values.len() - 1,
        Deviation::Population => values.len(),
    };
    largest * (squares / count as f64).sqrt()
}

/// Returns whether all values are equal. This is also true for zero or one values.
pub(crate) fn all_equal(values: &[f64]) -> bool {
    values.windows(2).all(|pair| pair[0] == pair[1])
}

/// Returns whether there are at least two values and all of them are equal.
pub(crate) fn is_constant(values: &[f64]) -> bool {
    values.len() > 1 && all_equal(values)
}

//! Means of measures, and how sure they are.

/// Returns the mean; NaN of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the standard error of the mean; NaN of fewer than two values.
pub fn standard_error(values: &[f64]) -> f64 {
    let (n, centre) = (values.len() as f64, mean(values));
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    (squares / (n - 1.0) / n).sqrt()
}

//! Errors of measures and statistical tests.

/// Error for input for which a measure or test is not defined.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// A number is NaN or infinite.
    #[error("value {} of {what} is {value}; expected a finite number", .index + 1)]
    NotFinite {
        /// Name of the list.
        what: &'static str,
        /// Index of the first such number.
        index: usize,
        /// The number.
        value: f64,
    },
    /// The values are finite, but what is computed from them is not.
    #[error(
        "the values are too large: what is computed from them is {value}; divide them by a constant"
    )]
    TooLarge {
        /// The result.
        value: f64,
    },
    /// There are not enough values.
    #[error("{what}: {found} values, at least {needed} required")]
    TooFew {
        /// Name of the list.
        what: &'static str,
        /// Number of values.
        found: usize,
        /// Minimum number of values.
        needed: usize,
    },
    /// Two lists that belong together have different lengths.
    #[error("{what}: lists of {one} and {other} values, expected equal lengths")]
    LengthsDiffer {
        /// What is compared.
        what: &'static str,
        /// Length of the first list.
        one: usize,
        /// Length of the second list.
        other: usize,
    },
    /// A value is outside its range.
    #[error("{what} is {found}; expected {expected}")]
    OutOfRange {
        /// Name of the value.
        what: String,
        /// The value.
        found: String,
        /// Expected range.
        expected: &'static str,
    },
    /// Pass@k or Majority@k for a k that is larger than the number of samples.
    #[error(
        "{measure}@{k} requires {k} samples, but prompt {prompt} has {samples}; generate more samples per prompt or use a smaller k"
    )]
    TooFewSamples {
        /// Name of the measure, without `@k`.
        measure: &'static str,
        /// Index of the prompt.
        prompt: usize,
        /// Number of samples of the prompt.
        samples: usize,
        /// The k.
        k: usize,
    },
    /// All values are equal, so that the result would be a division by zero.
    #[error("{what} is not defined for constant values; {fix}")]
    Constant {
        /// Name of the measure.
        what: &'static str,
        /// What to do instead.
        fix: &'static str,
    },
    /// A metric is missing.
    #[error("{place} has no metric `{metric}`; {fix}")]
    MissingMetric {
        /// Where the metric is missing.
        place: String,
        /// Name of the metric.
        metric: String,
        /// How to fix it.
        fix: &'static str,
    },
}

/// Rejects NaN and infinite numbers.
pub(crate) fn check_finite(what: &'static str, values: &[f64]) -> Result<(), MeasureError> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(MeasureError::NotFinite { what, index, value: values[index] }),
        None => Ok(()),
    }
}

/// Rejects infinite results of finite values.
pub(crate) fn check_results(results: &[f64]) -> Result<(), MeasureError> {
    match results.iter().find(|value| !value.is_finite()) {
        Some(&value) => Err(MeasureError::TooLarge { value }),
        None => Ok(()),
    }
}

/// Rejects lists that are too short.
pub(crate) fn check_count(
    what: &'static str,
    found: usize,
    needed: usize,
) -> Result<(), MeasureError> {
    if found < needed { Err(MeasureError::TooFew { what, found, needed }) } else { Ok(()) }
}

/// Rejects lists of different lengths.
pub(crate) fn check_lengths(
    what: &'static str,
    one: usize,
    other: usize,
) -> Result<(), MeasureError> {
    if one == other { Ok(()) } else { Err(MeasureError::LengthsDiffer { what, one, other }) }
}

/// Rejects numbers that are not between 0 and 1.
pub(crate) fn check_shares(what: &'static str, values: &[f64]) -> Result<(), MeasureError> {
    check_finite(what, values)?;
    match values.iter().position(|value| !(0.0..=1.0).contains(value)) {
        Some(index) => Err(MeasureError::OutOfRange {
            what: format!("{what}[{index}]"),
            found: values[index].to_string(),
            expected: "0 to 1",
        }),
        None => Ok(()),
    }
}

//! Errors of measures for which a value does not exist.

/// The reason why a measure has no value for the given input. The message is a single line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// A set has too few entries.
    #[error("{set}: found {found} entries, but at least {needed} are required; add molecules")]
    TooFew {
        /// The set.
        set: &'static str,
        /// Number of entries.
        found: usize,
        /// Minimum number of entries.
        needed: usize,
    },

    /// All values of a set are equal, so no density can be estimated.
    #[error("{set}: all values are equal, so no density can be estimated; add other molecules")]
    NoVariance {
        /// The set.
        set: &'static str,
    },

    /// All generated values lie outside of the range of the baseline, so the histogram is empty.
    #[error(
        "{set}: all values are outside of the baseline's range, so the histogram is empty; add other molecules"
    )]
    OutOfRange {
        /// The set.
        set: &'static str,
    },

    /// A value is NaN or infinite.
    #[error("{set}: entry {index} is not a finite number; remove or correct it")]
    NotFinite {
        /// The set.
        set: &'static str,
        /// Index of the first such entry, starting at 0.
        index: usize,
    },

    /// The matrix has another number of values or columns than expected.
    #[error("{set}: found {found} {unit}, expected {expected}; check the shape of the matrix")]
    Shape {
        /// The set.
        set: &'static str,
        /// What was counted.
        unit: &'static str,
        /// The number found.
        found: usize,
        /// The number expected.
        expected: usize,
    },
}

/// Returns an error if a set has fewer entries than needed.
pub(super) fn at_least(set: &'static str, needed: usize, found: usize) -> Result<(), MeasureError> {
    if found < needed { Err(MeasureError::TooFew { set, found, needed }) } else { Ok(()) }
}

/// Returns an error if a value is NaN or infinite.
pub(super) fn finite(set: &'static str, values: &[f64]) -> Result<(), MeasureError> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(MeasureError::NotFinite { set, index }),
        None => Ok(()),
    }
}

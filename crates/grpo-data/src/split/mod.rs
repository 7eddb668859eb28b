//! Stratified splits that keep groups of records together.

mod assign;
mod quartiles;

pub use assign::{group_by_keys, split_groups};
pub use quartiles::Quartiles;

/// Errors when splitting records.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// A fraction is invalid.
    #[error("`{key}` is {}; expected {expected}", crate::short_number(*found))]
    Fraction {
        /// The configuration key.
        key: &'static str,
        /// The value of the key.
        found: f64,
        /// A description of the valid values.
        expected: &'static str,
    },
    /// There are fewer groups than parts.
    #[error("{found} groups cannot be split into {parts} parts; give at least {parts} groups")]
    FewGroups {
        /// Number of groups.
        found: usize,
        /// Number of parts with a fraction above 0.
        parts: usize,
    },
}

/// The fraction of the records in each part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitFractions {
    /// Fraction of training records.
    pub train: f64,
    /// Fraction of validation records, which are used for model selection.
    pub validation: f64,
    /// Fraction of test records.
    pub test: f64,
}

impl Default for SplitFractions {
    fn default() -> Self {
        Self { train: 0.8, validation: 0.1, test: 0.1 }
    }
}

impl SplitFractions {
    /// Checks the fractions.
    ///
    /// # Errors
    /// Returns an error if a fraction is not between 0 and 1, if the sum differs from 1 by more
    /// than 1e-6, or if no records remain for training.
    pub fn check(&self) -> Result<(), SplitError> {
        let wrong = |key, found, expected| Err(SplitError::Fraction { key, found, expected });
        for (key, value) in
            [("train", self.train), ("validation", self.validation), ("test", self.test)]
        {
            if !(0.0..=1.0).contains(&value) {
                return wrong(key, value, "a fraction from 0 to 1");
            }
        }
        if self.train == 0.0 {
            return wrong("train", 0.0, "above 0, because training requires records");
        }
        let sum = self.train + self.validation + self.test;
        if (sum - 1.0).abs() > 1e-6 {
            return wrong("train + validation + test", sum, "1");
        }
        Ok(())
    }
}

/// The sorted record indices of each part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordSplit {
    /// Training records.
    pub train: Vec<usize>,
    /// Validation records, which are used for model selection.
    pub validation: Vec<usize>,
    /// Test records.
    pub test: Vec<usize>,
}

impl RecordSplit {
    /// Splits records, keeping each group in one part. The split is stratified by the quartiles of
    /// the scores, and equal quartile boundaries are merged. The result is deterministic.
    ///
    /// # Errors
    /// Returns an error if the fractions are invalid or if there are fewer groups than parts.
    pub fn new(
        groups: &[usize],
        scores: &[f64],
        fractions: &SplitFractions,
        seed: u64,
    ) -> Result<Self, SplitError> {
        fractions.check()?;
        let fractions = [fractions.train, fractions.validation, fractions.test];
        let quartiles = Quartiles::merged(scores);
        let parts = split_groups(groups, &quartiles.strata_of(scores), &fractions, seed)?;
        let [train, validation, test] = parts.try_into().expect("a part for each fraction");
        Ok(Self { train, validation, test })
    }
}

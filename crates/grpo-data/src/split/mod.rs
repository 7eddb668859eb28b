//! Splits of records: groups stay whole, and each part has its share of every stratum.

mod assign;
mod quartiles;

pub use assign::{group_by_keys, split_groups};
pub use quartiles::Quartiles;

/// Errors of splits.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// The fractions are invalid.
    #[error("`{key}` is {found}; expected {expected}")]
    Fraction {
        /// The key.
        key: &'static str,
        /// Its value.
        found: f64,
        /// What was expected.
        expected: &'static str,
    },
    /// There are fewer groups than parts.
    #[error("{found} groups cannot be split into {parts} parts; give at least {parts} groups")]
    FewGroups {
        /// Number of groups.
        found: usize,
        /// Number of parts that must not be empty.
        parts: usize,
    },
}

/// Fractions of the records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitFractions {
    /// Training.
    pub train: f64,
    /// Validation, to select the best model.
    pub validation: f64,
    /// Test.
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
    /// Returns an error if a fraction is outside of 0 to 1, if the sum differs from 1 by more than
    /// 1e-6, or if nothing is left for training.
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

/// Increasing record indices of each part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordSplit {
    /// Training.
    pub train: Vec<usize>,
    /// Validation, to select the best model.
    pub validation: Vec<usize>,
    /// Test.
    pub test: Vec<usize>,
}

impl RecordSplit {
    /// Splits records so that each group is in one part, with even shares of every quartile of the
    /// scores (equal edges merged). The result depends only on the arguments.
    ///
    /// # Errors
    /// Returns an error if the fractions are invalid or there are fewer groups than parts.
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

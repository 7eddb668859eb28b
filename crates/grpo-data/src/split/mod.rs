//! Splitting records into parts: groups stay whole, and each part has its share of every stratum.

mod assign;
mod quartiles;

pub use assign::{group_by_keys, split_groups};
pub use quartiles::Quartiles;

/// Why records cannot be split.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// Fractions that do not make up the whole.
    #[error("`{key}` is {found}; expected {expected}")]
    Fraction {
        /// Which.
        key: &'static str,
        /// Its value.
        found: f64,
        /// What it can be.
        expected: &'static str,
    },
    /// Fewer groups than parts to put them in.
    #[error("{found} groups cannot be split into {parts} parts; give at least {parts} groups")]
    FewGroups {
        /// Groups.
        found: usize,
        /// Parts that are not to be empty.
        parts: usize,
    },
}

/// Which fraction of the records is for what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitFractions {
    /// To train on.
    pub train: f64,
    /// To choose the best model by.
    pub validation: f64,
    /// To measure it by.
    pub test: f64,
}

impl Default for SplitFractions {
    fn default() -> Self {
        Self { train: 0.8, validation: 0.1, test: 0.1 }
    }
}

impl SplitFractions {
    /// Checks that they make up the whole.
    ///
    /// # Errors
    /// A fraction outside 0 to 1, a sum that is off 1 by more than 1e-6, or nothing to train on.
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
            return wrong("train", 0.0, "more than 0: there must be records to train on");
        }
        let sum = self.train + self.validation + self.test;
        if (sum - 1.0).abs() > 1e-6 {
            return wrong("train + validation + test", sum, "1");
        }
        Ok(())
    }
}

/// Positions of records, increasing, each of them in one part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordSplit {
    /// To train on.
    pub train: Vec<usize>,
    /// To choose the best model by.
    pub validation: Vec<usize>,
    /// To measure it by.
    pub test: Vec<usize>,
}

impl RecordSplit {
    /// Splits records so that each group is in one part, and each part has its share of every quartile of the scores (equal
    /// edges merged). It depends on the arguments alone.
    ///
    /// # Errors
    /// Fractions that do not make up the whole, or fewer groups than parts.
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

//! Training, validation and test pairs, with no tweet in two of them.

use super::assign::assign;
use super::{PairRecord, Quartiles};
use crate::DataError;

/// What part of the pairs is for what.
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
    /// Looks whether they make up the whole.
    ///
    /// # Errors
    /// A fraction outside 0 to 1, a sum that is off 1 by more than 1e-6, or nothing to train on.
    pub fn check(&self) -> Result<(), DataError> {
        let wrong = |key: &str, found: f64, expected| {
            Err(DataError::Setting { key: key.to_owned(), found: found.to_string(), expected })
        };
        for (key, value) in
            [("train", self.train), ("validation", self.validation), ("test", self.test)]
        {
            if !(0.0..=1.0).contains(&value) {
                return wrong(key, value, "a fraction from 0 to 1");
            }
        }
        if self.train == 0.0 {
            return wrong("train", 0.0, "more than 0: there must be pairs to train on");
        }
        let sum = self.train + self.validation + self.test;
        if (sum - 1.0).abs() > 1e-6 {
            return wrong("train + validation + test", sum, "1");
        }
        Ok(())
    }
}

/// Places of pairs, increasing, each of them in one part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PairSplit {
    /// To train on.
    pub train: Vec<usize>,
    /// To choose the best model by.
    pub validation: Vec<usize>,
    /// To measure it by.
    pub test: Vec<usize>,
}

/// Splits pairs so that all replies to a tweet are in one part, and each part has its share of every quartile of likes
/// (equal edges merged). It depends on the pairs, the fractions and `seed` alone.
///
/// # Errors
/// Fractions that do not make up the whole, or fewer tweets than parts.
pub fn split_by_tweet(
    pairs: &[PairRecord],
    fractions: &SplitFractions,
    seed: u64,
) -> Result<PairSplit, DataError> {
    fractions.check()?;
    let fractions = [fractions.train, fractions.validation, fractions.test];
    if pairs.is_empty() {
        let parts = fractions.iter().filter(|fraction| **fraction > 0.0).count();
        return Err(DataError::FewTweets { found: 0, parts });
    }
    let likes = |pair: &PairRecord| pair.reply_likes() as f64;
    let quartiles = Quartiles::merged(pairs.iter().map(likes).collect());
    let strata: Vec<usize> = pairs.iter().map(|pair| quartiles.stratum(likes(pair))).collect();
    let parts = assign(pairs, &strata, &fractions, seed)?;
    let of = |part: usize| (0..pairs.len()).filter(|place| parts[*place] == part).collect();
    Ok(PairSplit { train: of(0), validation: of(1), test: of(2) })
}

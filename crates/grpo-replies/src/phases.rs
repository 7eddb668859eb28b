//! Pairs for the supervised phase and for the GRPO phase, and what shows that they are alike.

use grpo_data::statistics::{Spread, TestResult, chi_square, kolmogorov_smirnov};
use grpo_data::{DataError, Quartiles, split_groups};
use serde::{Deserialize, Serialize};

use crate::PairRecord;
use crate::split::{split_error, tweet_groups};

/// Which pairs are for which phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseSplit {
    /// Positions of the pairs of the supervised phase, increasing.
    pub phase1: Vec<usize>,
    /// Positions of the pairs of the GRPO phase, increasing.
    pub phase2: Vec<usize>,
}

/// Splits pairs into two phases: all replies to a tweet in one of them, and in each phase its share of every quartile of
/// the engagement score, `ratio` of the pairs in the first. It depends on the pairs, `ratio` and `seed` alone.
///
/// # Errors
/// A ratio outside 0 to 1, or fewer than two tweets.
pub fn split_phases(pairs: &[PairRecord], ratio: f64, seed: u64) -> Result<PhaseSplit, DataError> {
    if !(ratio > 0.0 && ratio < 1.0) {
        let expected = "a number between 0 and 1: the fraction of the supervised phase";
        return Err(DataError::setting("split-ratio", ratio, expected));
    }
    let scores: Vec<f64> = pairs.iter().map(PairRecord::engagement).collect();
    let strata = Quartiles::new(&scores).strata_of(&scores);
    let parts = split_groups(&tweet_groups(pairs), &strata, &[ratio, 1.0 - ratio], seed);
    let parts = parts.map_err(split_error)?;
    let [phase1, phase2] = parts.try_into().expect("a part for each phase");
    Ok(PhaseSplit { phase1, phase2 })
}

/// What two phases have, and how alike they are. It can be computed again from their two files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseStatistics {
    /// The supervised phase.
    pub phase1: PhaseSummary,
    /// The GRPO phase.
    pub phase2: PhaseSummary,
    /// Shares of the quartiles of engagement.
    pub quartiles: QuartileShares,
    /// Whether both phases have the same proportions of the quartiles; missing where there is one quartile only.
    pub chi_square: Option<TestResult>,
    /// Whether the engagement scores of both phases are of one distribution.
    pub kolmogorov_smirnov: Option<TestResult>,
}

/// What a phase has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseSummary {
    /// Pairs.
    pub count: usize,
    /// Tweets.
    pub tweets: usize,
    /// Engagement scores.
    pub engagement: Spread,
    /// Characters of the replies.
    pub length: Spread,
    /// Pairs in each quartile of all engagement scores.
    pub quartiles: Vec<u64>,
}

/// Shares of the quartiles, whose boundaries are those of both phases together: boundaries of each phase would give a
/// quarter everywhere, whatever is in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuartileShares {
    /// The 25th, 50th and 75th percentile of the engagement score, interpolated linearly.
    pub boundaries: Vec<f64>,
    /// Pairs in each quartile: not a quarter each where many scores are equal.
    pub counts: Vec<u64>,
    /// Shares of all pairs.
    pub all: Vec<f64>,
    /// Shares of the supervised phase.
    pub phase1: Vec<f64>,
    /// Shares of the GRPO phase.
    pub phase2: Vec<f64>,
    /// The largest distance of a phase's share from that of all pairs.
    pub max_difference: f64,
    /// Whether that is at most [`MOST_DIFFERENCE`].
    pub alike: bool,
}

/// How far a quartile's share of a phase may be from its share of all pairs.
pub const MOST_DIFFERENCE: f64 = 0.02;

impl PhaseStatistics {
    /// Compares two phases.
    pub fn new(phase1: &[&PairRecord], phase2: &[&PairRecord]) -> Self {
        let scores = |pairs: &[&PairRecord]| -> Vec<f64> {
            pairs.iter().map(|pair| pair.engagement()).collect()
        };
        let (one, other) = (scores(phase1), scores(phase2));
        let quartiles = Quartiles::new(&[one.as_slice(), &other].concat());
        let [phase1, phase2] = [phase1, phase2].map(|pairs| PhaseSummary::new(pairs, &quartiles));
        Self {
            chi_square: chi_square(&phase1.quartiles, &phase2.quartiles),
            kolmogorov_smirnov: kolmogorov_smirnov(&one, &other),
            quartiles: QuartileShares::new(quartiles, &phase1.quartiles, &phase2.quartiles),
            phase1,
            phase2,
        }
    }
}

impl PhaseSummary {
    fn new(pairs: &[&PairRecord], quartiles: &Quartiles) -> Self {
        let scores: Vec<f64> = pairs.iter().map(|pair| pair.engagement()).collect();
        let mut counts = vec![0; quartiles.strata()];
        for stratum in quartiles.strata_of(&scores) {
            counts[stratum] += 1;
        }
        let characters = |pair: &&PairRecord| pair.reply.chars().count() as f64;
        let characters: Vec<f64> = pairs.iter().map(characters).collect();
        let ids: std::collections::BTreeSet<_> = pairs.iter().map(|pair| &pair.tweet_id).collect();
        Self {
            count: pairs.len(),
            tweets: ids.len(),
            engagement: Spread::new(&scores),
            length: Spread::new(&characters),
            quartiles: counts,
        }
    }
}

impl QuartileShares {
    fn new(quartiles: Quartiles, phase1: &[u64], phase2: &[u64]) -> Self {
        let counts: Vec<u64> = phase1.iter().zip(phase2).map(|(one, other)| one + other).collect();
        let [all, phase1, phase2] = [counts.as_slice(), phase1, phase2].map(shares);
        let apart = |phase: &[f64]| {
            let apart = phase.iter().zip(&all).map(|(share, all)| (share - all).abs());
            apart.fold(0.0, f64::max)
        };
        let max_difference = apart(&phase1).max(apart(&phase2));
        let alike = max_difference <= MOST_DIFFERENCE;
        let boundaries = quartiles.boundaries;
        Self { boundaries, counts, all, phase1, phase2, max_difference, alike }
    }
}

fn shares(counts: &[u64]) -> Vec<f64> {
    let all = counts.iter().sum::<u64>().max(1) as f64;
    counts.iter().map(|count| *count as f64 / all).collect()
}

//! Splits pairs into a supervised phase and a GRPO phase, and compares the two phases.

use grpo_data::statistics::{Spread, TestResult, chi_square, kolmogorov_smirnov};
use grpo_data::{DataError, Quartiles, split_groups};
use serde::{Deserialize, Serialize};

use crate::PairRecord;
use crate::split::{split_error, tweet_groups};

/// A split of pairs into two phases and test pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseSplit {
    /// Sorted indices of the pairs in the supervised phase.
    pub phase1: Vec<usize>,
    /// Sorted indices of the pairs in the GRPO phase.
    pub phase2: Vec<usize>,
    /// Sorted indices of the test pairs.
    pub test: Vec<usize>,
}

/// Holds out a fraction `test` of the pairs, and splits the others into two phases, with a fraction
/// `ratio` in the first phase.
///
/// All replies to a tweet are in the same part. The split is stratified by the quartiles of the
/// engagement score. It is deterministic.
///
/// # Errors
/// Returns an error if `ratio` is not between 0 and 1, if `test` is not at least 0 and less than 1,
/// or if there are fewer tweets than parts.
pub fn split_phases(
    pairs: &[PairRecord],
    ratio: f64,
    test: f64,
    seed: u64,
) -> Result<PhaseSplit, DataError> {
    if !(ratio > 0.0 && ratio < 1.0) {
        let expected = "a number between 0 and 1 (the fraction of pairs in the supervised phase)";
        return Err(DataError::setting("split-ratio", ratio, expected));
    }
    if !(0.0..1.0).contains(&test) {
        let expected = "at least 0 and less than 1 (the fraction of test pairs)";
        return Err(DataError::setting("test-fraction", test, expected));
    }
    let scores: Vec<f64> = pairs.iter().map(PairRecord::engagement).collect();
    let strata = Quartiles::new(&scores).strata_of(&scores);
    let phases = [ratio, 1.0 - ratio].map(|share| share * (1.0 - test));
    let test = Some(test).filter(|share| *share > 0.0);
    let shares: Vec<f64> = phases.into_iter().chain(test).collect();
    let parts = split_groups(&tweet_groups(pairs), &strata, &shares, seed);
    let mut parts = parts.map_err(split_error)?.into_iter();
    let mut part = || parts.next().unwrap_or_default();
    Ok(PhaseSplit { phase1: part(), phase2: part(), test: part() })
}

/// Statistics about the two phases. They can be recomputed from the output files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseStatistics {
    /// Statistics of the supervised phase.
    pub phase1: PhaseSummary,
    /// Statistics of the GRPO phase.
    pub phase2: PhaseSummary,
    /// Statistics of the test pairs, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<PhaseSummary>,
    /// Distribution over the quartiles of the engagement score.
    pub quartiles: QuartileShares,
    /// Tests whether the quartiles have the same proportions in both phases. `None` if all scores
    /// are in a single quartile.
    pub chi_square: Option<TestResult>,
    /// Tests whether the engagement scores in both phases have the same distribution.
    pub kolmogorov_smirnov: Option<TestResult>,
}

/// Statistics of one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseSummary {
    /// Number of pairs.
    pub count: usize,
    /// Number of distinct tweets.
    pub tweets: usize,
    /// Engagement scores.
    pub engagement: Spread,
    /// Reply lengths in characters.
    pub length: Spread,
    /// Number of pairs in each quartile, with boundaries computed from both phases together.
    pub quartiles: Vec<u64>,
}

/// Fraction of pairs in each quartile of the engagement score. The quartile boundaries are computed
/// from both phases together. If they were computed for each phase separately, every fraction would
/// be one quarter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuartileShares {
    /// The 25th, 50th and 75th percentile of the engagement score, with linear interpolation.
    pub boundaries: Vec<f64>,
    /// Number of pairs in each quartile. The quartiles differ in size if many scores are equal.
    pub counts: Vec<u64>,
    /// Fractions in both phases together.
    pub all: Vec<f64>,
    /// Fractions in the supervised phase.
    pub phase1: Vec<f64>,
    /// Fractions in the GRPO phase.
    pub phase2: Vec<f64>,
    /// Maximum difference between the fraction in a phase and the overall fraction.
    pub max_difference: f64,
    /// Whether the maximum difference does not exceed [`MOST_DIFFERENCE`].
    pub alike: bool,
}

/// Tolerance for the difference between the fraction in a phase and the overall fraction.
pub const MOST_DIFFERENCE: f64 = 0.02;

impl PhaseStatistics {
    /// Computes statistics about the two phases and the test pairs.
    pub fn new(phase1: &[&PairRecord], phase2: &[&PairRecord], test: &[&PairRecord]) -> Self {
        let scores = |pairs: &[&PairRecord]| -> Vec<f64> {
            pairs.iter().map(|pair| pair.engagement()).collect()
        };
        let (one, other) = (scores(phase1), scores(phase2));
        let quartiles = Quartiles::new(&[one.as_slice(), &other].concat());
        let [phase1, phase2, test] =
            [phase1, phase2, test].map(|pairs| PhaseSummary::new(pairs, &quartiles));
        Self {
            test: (test.count > 0).then_some(test),
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

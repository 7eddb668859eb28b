//! Group-relative advantages.

use crate::ConfigError;
use crate::advantage_config::{AdvantageConfig, Aggregation, Baseline, Deviation, RewardScale};
use crate::moments::{all_equal, deviation, is_constant, mean, quantile};

/// Advantages of one step, along with reward statistics.
#[derive(Clone, Debug, PartialEq)]
pub struct Advantages {
    /// One advantage per completion in each group. It is 0 if the reward function abstained.
    pub groups: Vec<Vec<f64>>,
    /// Mean and standard deviation of the weighted reward over all scored completions (metrics
    /// `reward` and `reward_std`). They don't depend on the aggregation.
    pub reward: MeanAndStd,
    /// Mean and standard deviation of the values that are normalised last: the weighted rewards, or
    /// `Σ_k w_k z_k` with [`Aggregation::NormalizeThenSum`].
    pub objective: MeanAndStd,
    /// What the advantages are computed from, for each completion: the weighted sum of its rewards, or
    /// with [`Aggregation::NormalizeThenSum`] the sum of its normalised rewards.
    pub objectives: Vec<Vec<Option<f64>>>,
    /// Whether all scored completions in a group have the same objective. Unless the baseline is
    /// [`Baseline::Batch`] or [`Baseline::None`], such a group provides no learning signal. Groups are
    /// always tested individually, whereas TRL tests the whole batch if rewards are scaled by the
    /// batch. False if fewer than two completions are
    /// scored, because their standard deviation is undefined.
    pub zero_std: Vec<bool>,
    /// Fraction of completions that belong to a [`Self::zero_std`] group, or to a group without any
    /// reward (metric `frac_reward_zero_std`).
    pub zero_std_share: f64,
}

/// Mean and sample standard deviation (n − 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanAndStd {
    /// NaN if there are no values.
    pub mean: f64,
    /// NaN if there are fewer than two values.
    pub std: f64,
}

impl MeanAndStd {
    /// Computes both statistics of `values`.
    pub fn of(values: &[f64]) -> Self {
        Self { mean: mean(values), std: deviation(values, Deviation::Sample) }
    }
}

/// Computes `A_i = (r_i − baseline) / (std + ε)` within each group (Shao et al. 2024, §4.1), on the
/// host in f64.
///
/// `rewards[g][i]` is the reward for completion `i` in group `g`. Completions without a reward
/// (`None`) are excluded from the baseline and the standard deviation, and their advantage is 0. A
/// group with a single scored completion also gets 0, unless a batch baseline is used with batch
/// scaling or no scaling, or no baseline.
///
/// If all rewards in a group are equal to each other, their advantages relative to the group are exactly
/// 0. This is tested with max = min, because rounding can make the standard deviation of equal numbers
/// nonzero.
///
/// # Errors
/// Returns an error if a setting is out of range or if a reward is not finite. The latter error
/// contains the group and sample indices.
pub fn group_advantages(
    rewards: &[Vec<Option<f64>>],
    config: &AdvantageConfig,
) -> Result<Advantages, AdvantageError> {
    let of_one = |group: &Vec<Option<f64>>| group.iter().map(|&reward| vec![reward]).collect();
    let rewards: Vec<Vec<Vec<Option<f64>>>> = rewards.iter().map(of_one).collect();
    weighted_group_advantages(&rewards, &[1.0], config)
}

/// Computes advantages from multiple reward functions.
///
/// `rewards[g][i][k]` is the reward from function `k` for completion `i` in group `g`, and
/// `weights[k]` is the function's weight. If only some functions scored a completion, the others
/// are ignored for that completion. A completion that no function scored is excluded from all
/// means, and its advantage is 0.
///
/// # Errors
/// Returns an error under the same conditions as [`group_advantages`], if a weight is not finite,
/// or if the number of rewards for a completion differs from the number of weights.
pub fn weighted_group_advantages(
    rewards: &[Vec<Vec<Option<f64>>>],
    weights: &[f64],
    config: &AdvantageConfig,
) -> Result<Advantages, AdvantageError> {
    let config = config.checked()?;
    check_rewards(rewards, weights)?;
    let totals = per_completion(rewards, |scores| weighted_sum(scores, weights));
    Ok(match config.aggregation {
        Aggregation::SumThenNormalize => {
            let groups = advantages(&totals, &config);
            summary(groups, &totals, totals.clone())
        }
        Aggregation::NormalizeThenSum => {
            let objective = normalized_sum(rewards, weights, &config);
            let whole_batch =
                AdvantageConfig { baseline: Baseline::Batch, scale: RewardScale::Batch, ..config };
            let mut groups = advantages(&objective, &whole_batch);
            // Each group sums to 0, so the batch mean is 0 up to rounding. If all groups are
            // constant, the division would amplify this rounding error.
            for (advantages, rewards) in groups.iter_mut().zip(rewards) {
                let of_function =
                    |k: usize| -> Vec<f64> { rewards.iter().filter_map(|row| row[k]).collect() };
                if (0..weights.len()).all(|k| all_equal(&of_function(k))) {
                    advantages.fill(0.0);
                }
            }
            summary(groups, &totals, objective)
        }
    })
}

/// Computes the advantages of completions outside `group`, e.g. replayed ones, relative to its
/// objectives (see [`Advantages::objectives`]).
///
/// `rewards[i][k]` and `weights[k]` are as in [`weighted_group_advantages`]. The baseline and the deviation
/// are those of `group`. With [`Baseline::LeaveOneOut`], the baseline is its mean. If they are
/// undefined, or if the deviation to divide by is 0, all advantages are 0.
///
/// # Errors
/// Returns an error under the same conditions as [`weighted_group_advantages`], or if the configuration
/// has [`Aggregation::NormalizeThenSum`], which is only defined within a group.
pub fn advantages_against(
    group: &[Option<f64>],
    rewards: &[Vec<Option<f64>>],
    weights: &[f64],
    config: &AdvantageConfig,
) -> Result<Vec<f64>, AdvantageError> {
    let config = config.checked()?;
    if config.aggregation == Aggregation::NormalizeThenSum {
        let message = "rewards that are normalised within each group cannot be compared with those of another one";
        return Err(ConfigError::new("aggregation", message).into());
    }
    check_rewards(&[rewards.to_vec()], weights)?;
    let group = group_scored(group);
    let baseline = match config.baseline {
        Baseline::Group | Baseline::Batch | Baseline::LeaveOneOut => mean(&group),
        Baseline::Quantile => quantile(&group, config.quantile),
        Baseline::None => 0.0,
    };
    let divisor = match config.scale {
        RewardScale::None => 1.0,
        RewardScale::Group | RewardScale::Batch => {
            deviation(&group, config.deviation) + config.epsilon
        }
    };
    let undefined = baseline.is_nan() || (config.scale != RewardScale::None && all_equal(&group));
    let bound = config.clip.unwrap_or(f64::INFINITY);
    let advantage = |scores: &Vec<Option<f64>>| match weighted_sum(scores, weights) {
        Some(reward) if !undefined => ((reward - baseline) / divisor).clamp(-bound, bound),
        _ => 0.0,
    };
    Ok(rewards.iter().map(advantage).collect())
}

/// Returns `Σ_k w_k z_k`, where `z_k` is the reward from function `k` after centring and scaling
/// within the group.
fn normalized_sum(
    rewards: &[Vec<Vec<Option<f64>>>],
    weights: &[f64],
    config: &AdvantageConfig,
) -> Vec<Vec<Option<f64>>> {
    let within_group = AdvantageConfig { scale: RewardScale::Group, clip: None, ..*config };
    let normalized: Vec<Vec<Vec<f64>>> = (0..weights.len())
        .map(|k| advantages(&per_completion(rewards, |scores| scores[k]), &within_group))
        .collect();
    let at = |g: usize, i: usize| {
        let terms = rewards[g][i].iter().enumerate().zip(weights);
        let terms = terms.filter(|((_, reward), _)| reward.is_some());
        let terms: Vec<f64> = terms.map(|((k, _), w)| w * normalized[k][g][i]).collect();
        (!terms.is_empty()).then(|| terms.iter().sum())
    };
    rewards
        .iter()
        .enumerate()
        .map(|(g, group)| (0..group.len()).map(|i| at(g, i)).collect())
        .collect()
}

/// Centres, scales and clips the rewards.
fn advantages(rewards: &[Vec<Option<f64>>], config: &AdvantageConfig) -> Vec<Vec<f64>> {
    // Computed once for the whole batch.
    let all = scored(rewards);
    let (batch_mean, batch_deviation) = (mean(&all), deviation(&all, config.deviation));
    let batch_is_equal = all_equal(&all);
    let one_group = |group: &Vec<Option<f64>>| -> Vec<f64> {
        let own = group_scored(group);
        // If there is nothing to compare with or no deviation to divide by, the advantage is 0.
        let (undefined, baseline) = match config.baseline {
            Baseline::Group | Baseline::LeaveOneOut => (all_equal(&own), mean(&own)),
            Baseline::Batch => (batch_is_equal, batch_mean),
            Baseline::Quantile => (all_equal(&own), quantile(&own, config.quantile)),
            Baseline::None => (false, 0.0),
        };
        // The leave-one-out difference is n/(n − 1) times the difference to the group mean, so the
        // signs are the same and the advantages still sum to 0.
        let others = match config.baseline {
            Baseline::LeaveOneOut => own.len() as f64 / (own.len() as f64 - 1.0),
            Baseline::Group | Baseline::Batch | Baseline::Quantile | Baseline::None => 1.0,
        };
        let divisor = match config.scale {
            RewardScale::Group => deviation(&own, config.deviation) + config.epsilon,
            RewardScale::Batch => batch_deviation + config.epsilon,
            RewardScale::None => 1.0,
        };
        let bound = config.clip.unwrap_or(f64::INFINITY);
        let advantage = |reward: &Option<f64>| match reward {
            Some(reward) if !undefined => {
                (others * (reward - baseline) / divisor).clamp(-bound, bound)
            }
            _ => 0.0,
        };
        group.iter().map(advantage).collect()
    };
    rewards.iter().map(one_group).collect()
}

fn summary(
    groups: Vec<Vec<f64>>,
    totals: &[Vec<Option<f64>>],
    objectives: Vec<Vec<Option<f64>>>,
) -> Advantages {
    let zero_std: Vec<bool> =
        objectives.iter().map(|group| is_constant(&group_scored(group))).collect();
    // Weight each group by its number of completions, as a mean over rows would.
    let rows: usize = totals.iter().map(Vec::len).sum();
    let has_none = |group: &[Option<f64>]| group.iter().all(Option::is_none);
    let flagged = totals.iter().zip(&zero_std).filter(|(group, flag)| **flag || has_none(group));
    let flagged: usize = flagged.map(|(group, _)| group.len()).sum();
    Advantages {
        groups,
        reward: MeanAndStd::of(&scored(totals)),
        objective: MeanAndStd::of(&scored(&objectives)),
        objectives,
        zero_std,
        zero_std_share: if rows == 0 { 0.0 } else { flagged as f64 / rows as f64 },
    }
}

fn weighted_sum(scores: &[Option<f64>], weights: &[f64]) -> Option<f64> {
    let terms =
        scores.iter().zip(weights).filter_map(|(score, weight)| Some(score.as_ref()? * weight));
    let terms: Vec<f64> = terms.collect();
    (!terms.is_empty()).then(|| terms.iter().sum())
}

fn per_completion(
    rewards: &[Vec<Vec<Option<f64>>>],
    of: impl Fn(&[Option<f64>]) -> Option<f64>,
) -> Vec<Vec<Option<f64>>> {
    rewards.iter().map(|group| group.iter().map(|scores| of(scores)).collect()).collect()
}

fn group_scored(group: &[Option<f64>]) -> Vec<f64> {
    group.iter().copied().flatten().collect()
}

fn scored(rewards: &[Vec<Option<f64>>]) -> Vec<f64> {
    rewards.iter().flatten().copied().flatten().collect()
}

/// Largest absolute value allowed for a reward or weight. It keeps sums of products finite in f64.
const LARGEST_REWARD: f64 = 1e100;

fn beyond(value: f64) -> bool {
    value.is_nan() || value.abs() > LARGEST_REWARD
}

fn check_rewards(rewards: &[Vec<Vec<Option<f64>>>], weights: &[f64]) -> Result<(), AdvantageError> {
    if let Some((function, &weight)) =
        weights.iter().enumerate().find(|(_, weight)| beyond(**weight))
    {
        return Err(AdvantageError::Weights(format!(
            "the weight of reward function {function} is {weight:e}; a weight must be finite and at most 1e100 in magnitude"
        )));
    }
    for (group, completions) in rewards.iter().enumerate() {
        for (sample, scores) in completions.iter().enumerate() {
            if scores.len() != weights.len() {
                let (found, expected) = (scores.len(), weights.len());
                return Err(AdvantageError::Weights(format!(
                    "completion {sample} of group {group} has {found} rewards, but there are {expected} weights; provide one reward per reward function ('abstained' if there is none)"
                )));
            }
            if let Some(&reward) = scores.iter().flatten().find(|reward| beyond(**reward)) {
                return Err(AdvantageError::NotFinite { group, sample, reward });
            }
        }
    }
    Ok(())
}

/// Error returned when advantages cannot be computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AdvantageError {
    /// A reward is NaN, infinite or too large to be squared.
    #[error(
        "the reward of completion {sample} of group {group} is {reward:e}, but only finite rewards up to 1e100 in magnitude can be compared; correct the reward in the [reward] section or its program"
    )]
    NotFinite {
        /// Group index within the step.
        group: usize,
        /// Completion index within the group.
        sample: usize,
        /// The reward.
        reward: f64,
    },
    /// A weight is not finite, or the number of weights differs from the number of rewards.
    #[error("{0}")]
    Weights(String),
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] crate::ConfigError),
}

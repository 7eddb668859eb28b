//! Group-relative advantages.

use crate::advantage_config::{AdvantageConfig, Aggregation, Baseline, Deviation, RewardScale};
use crate::moments::{all_equal, deviation, is_constant, mean};

/// The advantages of a step and the statistics of its rewards.
#[derive(Clone, Debug, PartialEq)]
pub struct Advantages {
    /// One advantage per completion of each group; 0 if the reward abstained.
    pub groups: Vec<Vec<f64>>,
    /// Statistics of the weighted sum of rewards over all scored completions (metrics `reward` and
    /// `reward_std`), independent of the aggregation.
    pub reward: MeanAndStd,
    /// Statistics of the values that were centred and scaled last: the rewards, or `Σ_k w_k z_k`
    /// with [`Aggregation::NormalizeThenSum`].
    pub objective: MeanAndStd,
    /// Whether all scored completions of a group have the same objective, so that the group has no
    /// learning signal. This holds for every scale; TRL tests the whole batch if it scales by the
    /// batch. False for fewer than two scored completions, which have no standard deviation.
    pub zero_std: Vec<bool>,
    /// Fraction of completions in groups with [`Self::zero_std`] (metric `frac_reward_zero_std`).
    pub zero_std_share: f64,
}

/// Mean and sample standard deviation (n − 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanAndStd {
    /// NaN for no values.
    pub mean: f64,
    /// NaN for fewer than two values.
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
/// `rewards[g][i]` is the reward of completion `i` of group `g`. A completion whose reward
/// abstained (`None`) is excluded from baseline and deviation and gets 0. So does the only scored
/// completion of a group, unless the baseline is that of the batch and the scale is not that of the
/// group. Equal rewards give exactly 0 against their own mean: the test is max = min, because the
/// rounded deviation of equal numbers need not be 0.
///
/// # Errors
/// Returns an error if a reward is not finite (the error names its group and sample) or a setting
/// is out of range.
pub fn group_advantages(
    rewards: &[Vec<Option<f64>>],
    config: &AdvantageConfig,
) -> Result<Advantages, AdvantageError> {
    let of_one = |group: &Vec<Option<f64>>| group.iter().map(|&reward| vec![reward]).collect();
    let rewards: Vec<Vec<Vec<Option<f64>>>> = rewards.iter().map(of_one).collect();
    weighted_group_advantages(&rewards, &[1.0], config)
}

/// Computes advantages from several reward functions.
///
/// `rewards[g][i][k]` is the reward of function `k` for completion `i` of group `g`; `weights[k]`
/// is its weight. A completion that no function scored is excluded from every mean and gets 0. A
/// completion that only some functions scored is judged by those.
///
/// # Errors
/// As [`group_advantages`]; also if a weight is not finite, or a completion does not have one
/// reward per weight.
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
            summary(groups, &totals, &totals)
        }
        Aggregation::NormalizeThenSum => {
            let objective = normalized_sum(rewards, weights, &config);
            let whole_batch =
                AdvantageConfig { baseline: Baseline::Batch, scale: RewardScale::Batch, ..config };
            let mut groups = advantages(&objective, &whole_batch);
            // Each group sums to 0, so the batch mean is 0 up to rounding. If no group varies, only
            // that rounding would remain.
            for (advantages, rewards) in groups.iter_mut().zip(rewards) {
                let of_function =
                    |k: usize| -> Vec<f64> { rewards.iter().filter_map(|row| row[k]).collect() };
                if (0..weights.len()).all(|k| all_equal(&of_function(k))) {
                    advantages.fill(0.0);
                }
            }
            summary(groups, &totals, &objective)
        }
    })
}

/// Returns `Σ_k w_k z_k`, where `z_k` is the reward of function `k`, centred and scaled within its
/// group.
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

/// Returns centred, scaled and clipped rewards.
fn advantages(rewards: &[Vec<Option<f64>>], config: &AdvantageConfig) -> Vec<Vec<f64>> {
    // Computed once for the whole batch.
    let all = scored(rewards);
    let (batch_mean, batch_deviation) = (mean(&all), deviation(&all, config.deviation));
    let batch_is_equal = all_equal(&all);
    let one_group = |group: &Vec<Option<f64>>| -> Vec<f64> {
        let own = group_scored(group);
        // Without another completion to compare with, or without a deviation to divide by, the
        // advantage is 0.
        let (undefined, baseline) = match config.baseline {
            Baseline::Group | Baseline::LeaveOneOut => (all_equal(&own), mean(&own)),
            Baseline::Batch => (batch_is_equal, batch_mean),
        };
        // r_i − mean of the others = n/(n − 1) · (r_i − mean of all), which has the same sign and
        // sums to 0.
        let others = match config.baseline {
            Baseline::LeaveOneOut => own.len() as f64 / (own.len() as f64 - 1.0),
            Baseline::Group | Baseline::Batch => 1.0,
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
    objective: &[Vec<Option<f64>>],
) -> Advantages {
    let zero_std: Vec<bool> =
        objective.iter().map(|group| is_constant(&group_scored(group))).collect();
    // A group counts once per completion, as in a mean over rows.
    let rows: usize = totals.iter().map(Vec::len).sum();
    let flagged = totals.iter().zip(&zero_std).filter(|(_, flag)| **flag);
    let flagged: usize = flagged.map(|(group, _)| group.len()).sum();
    Advantages {
        groups,
        reward: MeanAndStd::of(&scored(totals)),
        objective: MeanAndStd::of(&scored(objective)),
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

/// Largest absolute value of a reward or weight; sums of their products stay within f64.
const LARGEST_REWARD: f64 = 1e100;

fn beyond(value: f64) -> bool {
    value.is_nan() || value.abs() > LARGEST_REWARD
}

fn check_rewards(rewards: &[Vec<Vec<Option<f64>>>], weights: &[f64]) -> Result<(), AdvantageError> {
    if let Some((function, &weight)) =
        weights.iter().enumerate().find(|(_, weight)| beyond(**weight))
    {
        return Err(AdvantageError::Weights(format!(
            "the weight of reward function {function} is {weight}; a weight must be finite and at most 1e100 in size"
        )));
    }
    for (group, completions) in rewards.iter().enumerate() {
        for (sample, scores) in completions.iter().enumerate() {
            if scores.len() != weights.len() {
                let (found, expected) = (scores.len(), weights.len());
                return Err(AdvantageError::Weights(format!(
                    "completion {sample} of group {group} has {found} rewards, but there are {expected} weights; give one reward ('abstained' where there is none) for each reward function"
                )));
            }
            if let Some(&reward) = scores.iter().flatten().find(|reward| beyond(**reward)) {
                return Err(AdvantageError::NotFinite { group, sample, reward });
            }
        }
    }
    Ok(())
}

/// Rewards from which no advantages can be computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AdvantageError {
    /// The reward is NaN, infinite or too large to be squared.
    #[error(
        "the reward of completion {sample} of group {group} is {reward}; a reward must be finite and at most 1e100 in size (return 'abstained' where there is none)"
    )]
    NotFinite {
        /// Index of the group in the step.
        group: usize,
        /// Index of the completion in the group.
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

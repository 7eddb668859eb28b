//! Advantages: how much better a completion is than the others of its group.

use serde::{Deserialize, Serialize};

/// What the centred rewards of a group are divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RewardScale {
    /// The group's standard deviation (GRPO).
    #[default]
    Group,
    /// The standard deviation over all groups of the step.
    Batch,
    /// Nothing (Dr. GRPO): a group with small differences stays small.
    None,
}

/// How rewards become advantages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdvantageConfig {
    /// The divisor.
    pub scale: RewardScale,
    /// Added to a standard deviation before dividing.
    pub epsilon: f64,
}

impl Default for AdvantageConfig {
    fn default() -> Self {
        Self { scale: RewardScale::Group, epsilon: 1e-4 }
    }
}

/// Advantages of a step, and the statistics of its rewards.
#[derive(Clone, Debug, PartialEq)]
pub struct Advantages {
    /// One for each completion of each group; 0 where the reward abstained.
    pub groups: Vec<Vec<f64>>,
    /// Mean reward over all completions that were scored (metric `reward`).
    pub reward_mean: f64,
    /// Standard deviation of the same rewards, over all groups and whatever the scale (metric `reward_std`);
    /// NaN for fewer than two.
    pub reward_std: f64,
    /// Share of completions whose group (with [`RewardScale::Batch`]: batch) has equal rewards, so that
    /// nothing can be learned from them (metric `frac_reward_zero_std`).
    pub zero_std_share: f64,
}

/// `A_i = (r_i − mean(r)) / (std(r) + ε)` within each group.
///
/// `rewards[g][i]` is the reward of completion `i` of group `g`; `None` where the reward abstained: that
/// completion leaves the mean and the standard deviation, and gets 0. Standard deviations are sample ones
/// (n − 1). A group whose rewards are all equal gets exactly 0: the test is max = min, because the rounded
/// standard deviation of equal numbers need not be 0.
///
/// # Errors
/// A reward that is NaN or infinite, named by its place.
pub fn group_advantages(
    rewards: &[Vec<Option<f64>>],
    config: &AdvantageConfig,
) -> Result<Advantages, AdvantageError> {
    for (group, rewards) in rewards.iter().enumerate() {
        for (sample, reward) in rewards.iter().enumerate() {
            if let Some(reward) = reward.filter(|reward| !reward.is_finite()) {
                return Err(AdvantageError::NotFinite { group, sample, reward });
            }
        }
    }
    let scored: Vec<Vec<f64>> =
        rewards.iter().map(|group| group.iter().copied().flatten().collect()).collect();
    let all: Vec<f64> = scored.concat();
    let batch_deviation = deviation(&all);

    let groups = rewards
        .iter()
        .zip(&scored)
        .map(|(rewards, scored)| {
            let divisor = match config.scale {
                RewardScale::Group => deviation(scored) + config.epsilon,
                RewardScale::Batch => batch_deviation + config.epsilon,
                RewardScale::None => 1.0,
            };
            let nothing_to_learn = all_equal(scored);
            let centre = mean(scored);
            let advantage = |reward: &Option<f64>| match reward {
                Some(reward) if !nothing_to_learn => (reward - centre) / divisor,
                _ => 0.0,
            };
            rewards.iter().map(advantage).collect()
        })
        .collect();

    let flag = |constant: bool| if constant { 1.0 } else { 0.0 };
    let zero_std_share = match config.scale {
        RewardScale::Batch => flag(is_constant(&all)),
        RewardScale::Group | RewardScale::None => {
            // Each group counts once for each of its completions, as a mean over rows counts it.
            let rows: usize = rewards.iter().map(Vec::len).sum();
            let flagged = rewards.iter().zip(&scored);
            let flagged = flagged.map(|(r, s)| r.len() as f64 * flag(is_constant(s)));
            flagged.sum::<f64>() / rows as f64
        }
    };
    Ok(Advantages { groups, reward_mean: mean(&all), reward_std: batch_deviation, zero_std_share })
}

/// A reward that no advantage can be made of.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AdvantageError {
    /// NaN or infinite.
    #[error(
        "the reward of completion {sample} of group {group} is {reward}; a reward must be finite (return 'abstained' where there is none)"
    )]
    NotFinite {
        /// Group in the step, from 0.
        group: usize,
        /// Completion in the group, from 0.
        sample: usize,
        /// What it was.
        reward: f64,
    },
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Sample standard deviation; 0 for equal values, NaN for fewer than two.
fn deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return f64::NAN;
    }
    if is_constant(values) {
        return 0.0;
    }
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    (squares / (values.len() as f64 - 1.0)).sqrt()
}

fn all_equal(values: &[f64]) -> bool {
    values.windows(2).all(|pair| pair[0] == pair[1])
}

/// Two or more equal values: a standard deviation that is defined, and 0.
fn is_constant(values: &[f64]) -> bool {
    values.len() > 1 && all_equal(values)
}

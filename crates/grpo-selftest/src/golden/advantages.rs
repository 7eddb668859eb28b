//! Reads `advantages.json`.

use grpo_core::{AdvantageConfig, Aggregation, RewardScale};
use serde::Deserialize;
use serde_json::Value;

use crate::SelftestError;
use crate::golden::read::{Problem, cases, check_length, check_shape};

/// Rewards and the advantages computed by TRL.
#[derive(Clone, Debug)]
pub struct GoldenAdvantages {
    /// Description of the settings.
    pub label: String,
    /// `rewards[g][i][k]` is the reward from function `k` for completion `i` in group `g`.
    pub rewards: Vec<Vec<Vec<Option<f64>>>>,
    /// Weight for each reward function.
    pub weights: Vec<f64>,
    /// Settings used by TRL.
    pub config: AdvantageConfig,
    /// Advantage for each completion, `[g · i]`.
    pub advantages: Vec<f64>,
    /// Whether the relevant standard deviation is 0, for each completion.
    pub is_std_zero: Vec<bool>,
    /// Mean of the values centred last, or NaN if there are none.
    pub reward_mean: f64,
    /// Standard deviation of the values centred last, or NaN for fewer than two.
    pub reward_std: f64,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with named values")]
struct Raw {
    rewards: Vec<Vec<Option<f64>>>,
    weights: Vec<f64>,
    num_generations: usize,
    scale_rewards: RewardScale,
    multi_objective_aggregation: Aggregation,
    expected: RawExpected,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with named values")]
struct RawExpected {
    advantages: Vec<f64>,
    is_std_zero: Vec<bool>,
    reward_mean: Option<f64>,
    reward_std: Option<f64>,
}

/// Parses `advantages.json`. `file` is used in error messages.
///
/// # Errors
/// Returns an error if the JSON is invalid, or if a key is missing or has an unexpected type or
/// length.
pub fn read_advantages(text: &str, file: &str) -> Result<Vec<GoldenAdvantages>, SelftestError> {
    cases(text, file, check)
}

fn check(raw: Raw, file: &Value) -> Result<GoldenAdvantages, Problem> {
    let epsilon = match file.get("std_epsilon") {
        None => AdvantageConfig::default().epsilon,
        Some(value) => value.as_f64().filter(|epsilon| *epsilon >= 0.0).ok_or((
            "std_epsilon (of the file)",
            format!("{value}, expected a number of 0 or more"),
        ))?,
    };
    let (rows, functions, size) = (raw.rewards.len(), raw.weights.len(), raw.num_generations);
    if size == 0 || rows % size != 0 {
        return Err((
            "num_generations",
            format!("{size}, expected a divisor of the {rows} rows of rewards"),
        ));
    }
    check_shape("rewards", &raw.rewards, [rows, functions])?;
    check_length("expected.advantages", &raw.expected.advantages, rows)?;
    check_length("expected.is_std_zero", &raw.expected.is_std_zero, rows)?;
    let config = AdvantageConfig {
        aggregation: raw.multi_objective_aggregation,
        scale: raw.scale_rewards,
        epsilon,
        ..AdvantageConfig::default()
    };
    Ok(GoldenAdvantages {
        label: format!(
            "{} groups of {size}, {functions} functions, scale {:?}, {:?}",
            rows / size,
            config.scale,
            config.aggregation
        ),
        rewards: raw.rewards.chunks(size).map(<[_]>::to_vec).collect(),
        weights: raw.weights,
        config,
        advantages: raw.expected.advantages,
        is_std_zero: raw.expected.is_std_zero,
        reward_mean: raw.expected.reward_mean.unwrap_or(f64::NAN),
        reward_std: raw.expected.reward_std.unwrap_or(f64::NAN),
    })
}

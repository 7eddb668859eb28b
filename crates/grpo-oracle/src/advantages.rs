//! Advantages.

use grpo_core::{AdvantageConfig, Aggregation, Baseline, Deviation, RewardScale};

/// Scores from a single function, `[group][completion]`. `None` if it abstained.
type Scores = Vec<Vec<Option<f64>>>;

/// Returns the advantage for each completion. `rewards[g][i][k]` is the reward from function `k`
/// for completion `i` in group `g`, or `None` if it abstained.
///
/// The advantage is 0 if no function scored the completion, if all rewards it is compared with are
/// equal, or if the standard deviation is undefined.
pub fn advantages(
    rewards: &[Vec<Vec<Option<f64>>>],
    weights: &[f64],
    config: &AdvantageConfig,
) -> Vec<Vec<f64>> {
    match config.aggregation {
        Aggregation::SumThenNormalize => {
            let sums = weighted(rewards, |g, i, k| Some(rewards[g][i][k]? * weights[k]));
            normalized(&sums, config.baseline, config.scale, config)
        }
        // GDPO: compute z for each function within the group, then Σ w z over the batch.
        Aggregation::NormalizeThenSum => {
            let z: Vec<Vec<Vec<f64>>> = (0..weights.len())
                .map(|k| {
                    let of_one = |group: &Vec<Vec<Option<f64>>>| {
                        group.iter().map(|functions| functions[k]).collect()
                    };
                    let scores: Scores = rewards.iter().map(of_one).collect();
                    let unclipped = AdvantageConfig { clip: None, ..*config };
                    normalized(&scores, config.baseline, RewardScale::Group, &unclipped)
                })
                .collect();
            let sums =
                weighted(rewards, |g, i, k| rewards[g][i][k].map(|_| weights[k] * z[k][g][i]));
            normalized(&sums, Baseline::Batch, RewardScale::Batch, config)
        }
    }
}

/// Sums `term(g, i, k)` over all functions k for which it is not `None`.
fn weighted(
    rewards: &[Vec<Vec<Option<f64>>>],
    term: impl Fn(usize, usize, usize) -> Option<f64>,
) -> Scores {
    let mut sums = Vec::new();
    for (g, group) in rewards.iter().enumerate() {
        let mut row = Vec::new();
        for (i, functions) in group.iter().enumerate() {
            let mut sum = None;
            for k in 0..functions.len() {
                if let Some(term) = term(g, i, k) {
                    sum = Some(sum.unwrap_or(0.0) + term);
                }
            }
            row.push(sum);
        }
        sums.push(row);
    }
    sums
}

/// Computes `(r − baseline) / (std + ε)` and clips the result.
fn normalized(
    scores: &Scores,
    baseline: Baseline,
    scale: RewardScale,
    config: &AdvantageConfig,
) -> Vec<Vec<f64>> {
    let batch: Vec<f64> = scores.iter().flatten().flatten().copied().collect();
    let mut all = Vec::new();
    for group in scores {
        let own: Vec<f64> = group.iter().flatten().copied().collect();
        let divisor = match scale {
            RewardScale::Group => std(&own, config.deviation).map(|std| std + config.epsilon),
            RewardScale::Batch => std(&batch, config.deviation).map(|std| std + config.epsilon),
            RewardScale::None => Some(1.0),
        };
        let compared = if baseline == Baseline::Batch { &batch } else { &own };
        let one = |i: usize| -> Option<f64> {
            let reward = group[i]?;
            // Equal rewards give exactly 0, regardless of rounding in the mean and the standard
            // deviation.
            let is_constant = compared.iter().all(|other| *other == compared[0]);
            if is_constant && baseline != Baseline::None {
                return None;
            }
            let centre = match baseline {
                Baseline::Group => mean(&own),
                Baseline::Batch => mean(&batch),
                Baseline::Quantile => quantile(&own, config.quantile),
                Baseline::None => 0.0,
                Baseline::LeaveOneOut => {
                    let others: Vec<f64> = (0..group.len())
                        .filter(|&other| other != i)
                        .filter_map(|other| group[other])
                        .collect();
                    mean(&others)
                }
            };
            let advantage = (reward - centre) / divisor?;
            Some(match config.clip {
                Some(c) if advantage > c => c,
                Some(c) if advantage < -c => -c,
                _ => advantage,
            })
        };
        all.push((0..group.len()).map(|i| one(i).unwrap_or(0.0)).collect());
    }
    all
}

/// Returns the smallest value that at least the fraction `level` of all values does not exceed.
fn quantile(values: &[f64], level: f64) -> f64 {
    let share =
        |of: f64| values.iter().filter(|value| **value <= of).count() as f64 / values.len() as f64;
    values.iter().copied().filter(|value| share(*value) >= level).fold(f64::INFINITY, f64::min)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns `None` for fewer than two values, and exactly 0 if all values are equal.
fn std(values: &[f64], deviation: Deviation) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    if values.iter().all(|value| *value == values[0]) {
        return Some(0.0);
    }
    let centre = mean(values);
    let mut squares = 0.0;
    for value in values {
        squares += (value - centre) * (value - centre);
    }
    let count = match deviation {
        Deviation::Sample => values.len() - 1,
        Deviation::Population => values.len(),
    };
    Some((squares / count as f64).sqrt())
}

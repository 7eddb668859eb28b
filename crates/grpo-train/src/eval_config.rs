//! Evaluation interval and early stopping.

use grpo_data::{ConfigFault, DataFiles, Ranges};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The `[eval]` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct EvalConfig {
    /// Completions per evaluation; 0 disables evaluations and the table. With `[data]`: the first
    /// `samples / group_size` prompts.
    #[schemars(range(min = 0, max = 1e6), extend("x-basic" = true))]
    pub samples: u32,
    /// Prompts in the format of `data.file`, one file or a list without weights; without it, those of
    /// `data.file`, which the policy trains on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-basic" = true))]
    pub file: Option<DataFiles>,
    /// Steps between evaluations, plus one at the last step; 0 for none in between. Results are the
    /// `eval_*` [metrics](metrics.md#evaluations).
    #[schemars(extend("x-basic" = true))]
    pub every: u32,
    /// End the run after this many consecutive evaluations without a new best mean reward; 0 for
    /// never. Needs `every`.
    pub patience: u32,
    /// Minimum improvement for a new best; needs `every`.
    #[schemars(range(min = 0))]
    pub min_gain: f64,
    // The cost grows quadratically, because completions are compared in pairs.
    /// Completions per prompt; with 2 or more, diversity is measured (`eval_self_bleu`,
    /// `eval_distinct_2`).
    #[schemars(range(min = 1, max = 1000))]
    pub group_size: usize,
}

impl Default for EvalConfig {
    fn default() -> Self {
        Self { samples: 1000, file: None, every: 0, patience: 0, min_gain: 0.0, group_size: 1 }
    }
}

impl EvalConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigFault> {
        self.check_ranges("eval")?;
        if let Some(files) = &self.file {
            let key = "eval.file";
            files.check(key)?;
            if files.listed().iter().any(|file| file.weight() != 1.0) {
                let fault = "eval.file has weights, but evaluations use the first prompts in the order of the files";
                return Err(ConfigFault::new(key, fault, "remove them"));
            }
        }
        if self.every > 0 && self.samples == 0 {
            return Err(ConfigFault::new(
                "eval.every",
                format!("eval.every = {} has no effect with eval.samples = 0", self.every),
                "increase eval.samples, or set eval.every = 0",
            ));
        }
        let given = [("patience", self.patience > 0), ("min_gain", self.min_gain > 0.0)];
        if let Some((key, _)) = given.iter().find(|(_, is_given)| *is_given && self.every == 0) {
            return Err(ConfigFault::new(
                if *key == "patience" { "" } else { "eval.min_gain" },
                format!(
                    "eval.{key} has no effect with eval.every = 0, which runs no evaluations during training"
                ),
                "set eval.every to a number of steps",
            ));
        }
        Ok(())
    }

    /// Returns the number of prompts needed for `samples` completions.
    pub fn prompts(&self) -> u32 {
        self.samples.div_ceil(u32::try_from(self.group_size.max(1)).unwrap_or(u32::MAX))
    }

    /// Returns whether to evaluate after `done` out of `steps` steps.
    pub(crate) fn is_due(&self, done: u32, steps: u32) -> bool {
        self.every > 0 && (done.is_multiple_of(self.every) || done == steps)
    }
}

/// Early stopping state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluations {
    /// Completed steps and mean reward at the best evaluation.
    pub best: Option<(u32, f64)>,
    /// Number of evaluations since the best one.
    pub since_best: u32,
}

impl Evaluations {
    /// Records an evaluation and returns whether it is the best so far. An evaluation without a
    /// reward never counts as the best.
    pub(crate) fn observe(&mut self, done: u32, reward: Option<f64>, config: &EvalConfig) -> bool {
        let is_best = reward.is_some_and(|reward| {
            self.best.is_none_or(|(_, best)| reward > best && reward >= best + config.min_gain)
        });
        match reward {
            Some(reward) if is_best => *self = Self { best: Some((done, reward)), since_best: 0 },
            _ => self.since_best += 1,
        }
        is_best
    }

    /// Returns whether the run should stop early.
    pub(crate) fn are_enough(&self, config: &EvalConfig) -> bool {
        config.patience > 0 && self.since_best >= config.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_remembered_and_patience_ends() {
        let config = EvalConfig { every: 5, patience: 2, min_gain: 0.1, ..EvalConfig::default() };
        let mut seen = Evaluations::default();
        let rewards = [Some(0.5), Some(0.55), None, Some(0.7), Some(0.75), Some(0.3)];
        let expected = [
            (true, Some((5, 0.5)), false),
            (false, Some((5, 0.5)), false),
            (false, Some((5, 0.5)), true),
            (true, Some((20, 0.7)), false),
            (false, Some((20, 0.7)), false),
            (false, Some((20, 0.7)), true),
        ];
        for (i, (reward, (is_best, best, is_enough))) in
            rewards.into_iter().zip(expected).enumerate()
        {
            let done = 5 * (i as u32 + 1);
            assert_eq!(seen.observe(done, reward, &config), is_best, "after {done}");
            assert_eq!((seen.best, seen.are_enough(&config)), (best, is_enough), "after {done}");
        }
        let endless = EvalConfig { patience: 0, ..config };
        assert!(!seen.are_enough(&endless));
    }

    /// An equal reward does not count as an improvement.
    #[test]
    fn an_equal_one_is_not_better() {
        let config = EvalConfig::default();
        let mut seen = Evaluations::default();
        assert!(seen.observe(1, Some(0.5), &config));
        assert!(!seen.observe(2, Some(0.5), &config));
        assert!(seen.observe(3, Some(0.5 + 1e-12), &config));
    }

    #[test]
    fn evaluations_are_due_at_multiples_and_at_the_end() {
        let config = EvalConfig { every: 4, ..EvalConfig::default() };
        let due: Vec<u32> = (1..=10).filter(|&done| config.is_due(done, 10)).collect();
        assert_eq!(due, [4, 8, 10]);
        assert!(!EvalConfig::default().is_due(10, 10));
    }
}

//! Scores of a reward as metrics of generated text, for `grpo eval --reward`.

use std::path::Path;

use grpo_data::statistics::mean;
use grpo_rewards::{IdentifiedReward, Outcome, PartName, RewardInput};

use super::rows::{row, with_prompt_fields};
use super::{Generations, Measured};
use crate::task::Tasks;
use crate::train_file::load_reward;

/// What a reward says about the texts of a file.
pub(crate) struct Rewarded {
    parts: Vec<PartName>,
    /// Outcomes of each prompt's texts.
    outcomes: Vec<Vec<Outcome>>,
}

impl Rewarded {
    /// Scores texts that were read with all keys of their records. The rewards become their scores.
    ///
    /// # Errors
    /// Returns an error if the configuration has no valid reward, or if no text has a reward.
    pub(crate) fn new(
        config: &Path,
        file: &Path,
        all: &mut Generations,
        tasks: &Tasks,
    ) -> anyhow::Result<Self> {
        let (config, reward) = load_reward(config, &[], tasks)?;
        let reward = match tasks.row_format(file, config.type_name()).identify {
            Some(identify) => IdentifiedReward::wrap(reward, identify),
            None => reward,
        };
        let mut outcomes = Vec::new();
        for of in &mut all.prompts {
            let input = |generation: &_| {
                with_prompt_fields(row(&of.prompt, Clone::clone(generation)), tasks).input
            };
            let inputs: Vec<RewardInput> = of.generations.iter().map(input).collect();
            let scored = reward.score(&inputs);
            for (generation, outcome) in of.generations.iter_mut().zip(&scored) {
                generation.score = outcome.total();
            }
            outcomes.push(scored);
        }
        let failed = |outcome: &Outcome| match outcome {
            Outcome::Failed { reason } => Some(reason.clone()),
            _ => None,
        };
        let is_scored = |outcome: &Outcome| outcome.total().is_some();
        anyhow::ensure!(
            outcomes.iter().flatten().any(is_scored),
            "--reward: no text has a reward; first reason: {}",
            outcomes
                .iter()
                .flatten()
                .find_map(failed)
                .unwrap_or_else(|| "the reward abstained".to_owned())
        );
        Ok(Self { parts: reward.parts(), outcomes })
    }

    /// Adds the mean of each component, and the number of texts without a reward.
    pub(crate) fn add_to(&self, measured: &mut Measured) {
        let unscored = self.outcomes.iter().flatten().filter(|of| of.total().is_none()).count();
        if unscored > 0 {
            measured.add("rewards/unscored", unscored as f64);
        }
        for part in &self.parts {
            let of_prompt = |outcomes: &Vec<Outcome>| {
                let values: Vec<f64> = outcomes.iter().filter_map(|of| of.part(part)).collect();
                (!values.is_empty()).then(|| mean(&values))
            };
            let each: Vec<f64> = self.outcomes.iter().filter_map(of_prompt).collect();
            match each.len() {
                0 => {}
                count if count == self.outcomes.len() => {
                    measured.add_mean(&format!("rewards/{part}/mean"), each);
                }
                _ => measured.add(&format!("rewards/{part}/mean"), mean(&each)),
            }
        }
    }
}

//! Scores of a reward as metrics of generated text, for `grpo eval --reward`.

use std::path::Path;

use grpo_data::statistics::mean;
use grpo_rewards::{Outcome, PartName, RewardInput};

use crate::commands::score::BLOCK;
use crate::eval::{Generation, Generations, Measured, row};
use crate::output::say_aside;
use crate::task::Tasks;
use crate::train_file::LoadedReward;

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
    /// Returns an error if no text has a reward.
    pub(crate) fn new(
        loaded: &LoadedReward,
        file: &Path,
        all: &mut Generations,
        tasks: &Tasks,
    ) -> anyhow::Result<Self> {
        let (_, reward) = loaded.for_completions(Some(file), tasks);
        let inputs = all.prompts.iter().flat_map(|of| {
            let row = |generation: &Generation| row(&of.prompt, generation.clone());
            of.generations
                .iter()
                .map(move |generation| tasks.with_prompt_fields(row(generation)).input)
        });
        // Programs and servers are asked for many completions at once.
        let inputs: Vec<RewardInput> = inputs.collect();
        let mut scored = inputs.chunks(BLOCK).flat_map(|block| reward.score(block));
        let mut outcomes = Vec::new();
        for of in &mut all.prompts {
            let of_prompt: Vec<Outcome> = scored.by_ref().take(of.generations.len()).collect();
            for (generation, outcome) in of.generations.iter_mut().zip(&of_prompt) {
                generation.score = outcome.total();
            }
            outcomes.push(of_prompt);
        }
        let failed = |outcome: &Outcome| match outcome {
            Outcome::Failed { reason } => Some(reason.clone()),
            _ => None,
        };
        let all_outcomes = || outcomes.iter().flatten();
        let unscored = all_outcomes().filter(|outcome| outcome.total().is_none()).count();
        let first = || {
            let reason = all_outcomes().find_map(failed);
            reason.unwrap_or_else(|| "the reward abstained".to_owned())
        };
        anyhow::ensure!(
            unscored < all_outcomes().count(),
            "--reward: no text has a reward; first reason: {}",
            first()
        );
        if unscored > 0 {
            say_aside(format_args!("no reward    {unscored:>8} texts; first reason: {}", first()));
        }
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

//! Scores of a reward as metrics of generated text, for `grpo eval --reward`.

use std::path::Path;

use anyhow::Context;
use grpo_data::statistics::mean;
use grpo_rewards::{Outcome, PartName, RewardInput};
use grpo_task::eval::{Generation, Generations, Measured, row};
use grpo_task::output::say_aside;
use grpo_task::task::Tasks;

use crate::evaluate::score::{Asked, BLOCK, Source, reason, remedy};
use crate::train_file::LoadedReward;

/// What a reward says about the texts of a file.
pub(crate) struct Rewarded {
    parts: Vec<PartName>,
    /// Outcomes of each prompt's texts.
    outcomes: Vec<Vec<Outcome>>,
    /// Number of texts without a reward.
    unscored: usize,
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
        let (format, reward) = loaded.for_completions(Some(file), tasks);
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
        let unscored: Vec<(&RewardInput, &Outcome)> = inputs
            .iter()
            .zip(outcomes.iter().flatten())
            .filter(|(_, outcome)| outcome.total().is_none())
            .collect();
        let count = unscored.len();
        if let Some(first) = unscored.first() {
            let why = |input: &RewardInput, outcome: &Outcome| {
                let remedy = remedy(&*reward, input, Source::Eval(file));
                format!("{}{remedy}", reason(&input.text, outcome, &format))
            };
            let failed =
                unscored.iter().find(|(_, outcome)| matches!(outcome, Outcome::Failed { .. }));
            let (input, outcome) = *failed.unwrap_or(first);
            let reason = why(input, outcome);
            anyhow::ensure!(
                count < inputs.len(),
                "--reward: no text has a reward; first reason: {reason}"
            );
            let mut asked = Asked::new(&*reward);
            for (input, outcome) in inputs.iter().zip(outcomes.iter().flatten()) {
                asked.add(&input.text, outcome, &format, || why(input, outcome));
            }
            asked.check(format.holds).context("--reward")?;
            say_aside(format_args!("no reward    {count:>8} texts; first reason: {reason}"));
        }
        Ok(Self { parts: reward.parts(), outcomes, unscored: count })
    }

    /// Adds the mean of each component over the texts that have it, and the number of texts without a
    /// reward.
    pub(crate) fn add_to(&self, measured: &mut Measured) {
        measured.add_unscored(self.unscored);
        for part in &self.parts {
            let of_prompt = |outcomes: &Vec<Outcome>| {
                let values: Vec<f64> = outcomes.iter().filter_map(|of| of.part(part)).collect();
                (!values.is_empty()).then(|| mean(&values))
            };
            let each: Vec<Option<f64>> = self.outcomes.iter().map(of_prompt).collect();
            measured.add_mean_of_some(&format!("rewards/{part}/mean"), &each);
        }
    }
}

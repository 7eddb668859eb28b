//! Scores of a reward as metrics of generated text.

use std::path::Path;

use anyhow::Context;
use grpo_data::statistics::mean;
use grpo_eval::stats::Bootstrap;
use grpo_eval::{MeasureError, PromptVotes, majority_at_k};
use grpo_rewards::{Outcome, PartName, Reward, RewardInput};
use grpo_task::eval::{Generation, Generations, Measured, RowFormat, SuiteOptions, row};
use grpo_task::output::say_aside;
use grpo_task::task::Tasks;

use crate::evaluate::score::{Asked, BLOCK, Source, reason, remedy};
use crate::train_file::LoadedReward;

/// What a reward says about the texts of each prompt.
pub(crate) struct Rewarded {
    parts: Vec<PartName>,
    /// Outcomes of each prompt's texts.
    outcomes: Vec<Vec<Outcome>>,
    /// Answers in each prompt's texts, if the reward extracts some.
    votes: Option<Vec<PromptVotes>>,
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
        let mut scored = inputs.chunks(BLOCK).flat_map(|block| reward.score(block)).zip(&inputs);
        let mut of_prompts = Vec::new();
        for of in &mut all.prompts {
            let of_prompt: Vec<(&RewardInput, Outcome)> =
                scored.by_ref().take(of.generations.len()).map(|(of, input)| (input, of)).collect();
            for (generation, (_, outcome)) in of.generations.iter_mut().zip(&of_prompt) {
                generation.score = outcome.total();
            }
            of_prompts.push(of_prompt);
        }
        Self::of_outcomes(&*reward, &format, Source::Eval(file), of_prompts)
    }

    /// Creates the summary of the texts of each prompt and their outcomes.
    ///
    /// # Errors
    /// Returns an error if no text has a reward.
    pub(crate) fn of_outcomes(
        reward: &dyn Reward,
        format: &RowFormat,
        source: Source<'_>,
        of_prompts: Vec<Vec<(&RewardInput, Outcome)>>,
    ) -> anyhow::Result<Self> {
        let all = || of_prompts.iter().flatten();
        let unscored: Vec<_> = all().filter(|(_, outcome)| outcome.total().is_none()).collect();
        let count = unscored.len();
        if let Some(first) = unscored.first() {
            let why = |input: &RewardInput, outcome: &Outcome| {
                let remedy = remedy(reward, input, source);
                format!("{}{remedy}", reason(&input.text, outcome, format))
            };
            let failed =
                unscored.iter().find(|(_, outcome)| matches!(outcome, Outcome::Failed { .. }));
            let (input, outcome) = *failed.unwrap_or(first);
            let reason = why(input, outcome);
            anyhow::ensure!(
                count < all().count(),
                "--reward: no text has a reward; first reason: {reason}"
            );
            let mut asked = Asked::new(reward);
            for (input, outcome) in all() {
                asked.add(&input.text, outcome, format, || why(input, outcome));
            }
            asked.check(format.holds).context("--reward")?;
            say_aside(format_args!("no reward    {count:>8} texts; first reason: {reason}"));
        }
        let votes = reward.answer().map(|answer| {
            let votes = |of_prompt: &Vec<(&RewardInput, Outcome)>| {
                let vote =
                    |(input, _): &(&RewardInput, Outcome)| answer.vote(&input.text, &input.fields);
                let votes: Vec<Option<(String, bool)>> = of_prompt.iter().map(vote).collect();
                PromptVotes::from_answers(votes.iter().map(|vote| {
                    vote.as_ref().map(|(answer, is_right)| (answer.as_str(), *is_right))
                }))
            };
            of_prompts.iter().map(votes).collect()
        });
        let outcomes = of_prompts
            .into_iter()
            .map(|of_prompt| of_prompt.into_iter().map(|(_, outcome)| outcome).collect())
            .collect();
        Ok(Self { parts: reward.parts(), outcomes, votes, unscored: count })
    }

    /// Adds the mean of each component over the texts that have it, the number of texts without a reward and
    /// Majority@k.
    ///
    /// # Errors
    /// Returns an error if k is larger than the number of texts of a prompt.
    pub(crate) fn add_to(
        &self,
        measured: &mut Measured,
        options: &SuiteOptions,
    ) -> Result<(), MeasureError> {
        measured.add_unscored(self.unscored);
        for part in &self.parts {
            let of_prompt = |outcomes: &Vec<Outcome>| {
                let values: Vec<f64> = outcomes.iter().filter_map(|of| of.part(part)).collect();
                (!values.is_empty()).then(|| mean(&values))
            };
            let each: Vec<Option<f64>> = self.outcomes.iter().map(of_prompt).collect();
            measured.add_mean_of_some(&format!("rewards/{part}/mean"), &each);
        }
        let Some(votes) = &self.votes else { return Ok(()) };
        let fewest = votes.iter().map(PromptVotes::samples).min().unwrap_or(0);
        // A single vote is Pass@1.
        let ks: Vec<usize> = options.ks(fewest).into_iter().filter(|k| *k > 1).collect();
        let bootstrap = Bootstrap { seed: options.seed, ..Bootstrap::default() };
        for (k, majority) in &majority_at_k(votes, &ks, &bootstrap)? {
            measured.add_at_k(&format!("majority_at_{k}"), majority);
        }
        Ok(())
    }
}

//! Compares a server's log-probabilities with those of this program before training.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::Server;
use grpo_model::{Frozen, Policy, score_completions};

use super::VllmError;
use super::adapters::Target;
use super::completions::{Choice, CompletionRequest, CompletionSettings};

/// How far log-probabilities of servers may be from those of the trainer, in nats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// For each token.
    Each(f64),
    /// On average. For runs that correct differences.
    Mean(f64),
}

/// Number of prompts per server.
const PROMPTS: usize = 4;
/// Number of tokens of each prompt and of each completion.
const TOKENS: usize = 8;

/// A server's log-probabilities next to those of the trainer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Difference {
    largest: f64,
    mean: f64,
}

/// Tokens that a server has sampled.
pub(crate) struct Probe {
    prompts: Vec<Vec<u32>>,
    choices: Vec<Choice>,
    temperature: f32,
}

impl Probe {
    /// Samples a few tokens on a server. Prompts are ids from all over the vocabulary, because the run's
    /// prompts are not known yet.
    pub(crate) fn sample(server: &Server, target: &Target<'_>) -> Result<Self, VllmError> {
        let vocabulary = target.policy.vocabulary_size();
        let tokens = TOKENS.min(target.policy.context_length() / 2).max(1);
        // At temperature 1, raw log-probabilities are not recognised, but those under a repetition
        // penalty would be wrong too.
        let temperature = if target.temperature == 1.0 { 0.5 } else { target.temperature };
        let settings = Arc::new(CompletionSettings {
            count: 1,
            max_tokens: tokens,
            vocabulary,
            temperature,
            repetition_penalty: 1.0,
            forbidden: Vec::new(),
            end_ids: Vec::new(),
            stop: Vec::new(),
        });
        let id = |token: usize| ((token + 1) * vocabulary / (PROMPTS * tokens + 1)) as u32;
        let prompts: Vec<Vec<u32>> = (0..PROMPTS)
            .map(|prompt| (0..tokens).map(|token| id(prompt * tokens + token)).collect())
            .collect();
        let request = |prompt: &Vec<u32>| CompletionRequest {
            settings: Arc::clone(&settings),
            model: target.adapter.name.clone(),
            prompt: prompt.clone(),
            seed: None,
        };
        let stop = AtomicBool::new(false);
        let answers = prompts.iter().map(|prompt| server.request(&request(prompt), &stop));
        let choices: Vec<Choice> = answers.collect::<Result<Vec<_>, _>>()?.concat();
        Ok(Self { prompts, choices, temperature })
    }

    /// Scores the tokens here.
    ///
    /// # Errors
    /// Returns an error if the log-probabilities differ by more than the tolerance.
    pub(crate) fn check(
        &self,
        url: &str,
        policy: &Frozen<Policy>,
        tolerance: Tolerance,
    ) -> Result<(), VllmError> {
        let refused = |what: String, fix| Err(VllmError::Server { url: url.to_owned(), what, fix });
        let difference = |temperature: f32| {
            let rows: Vec<(&[u32], &[u32])> = self
                .prompts
                .iter()
                .zip(&self.choices)
                .map(|(prompt, choice)| (&**prompt, &*choice.ids))
                .collect();
            let own = score_completions(policy, &rows, temperature);
            let own = own.iter().flat_map(|scores| &scores.logprobs);
            let theirs = self.choices.iter().flat_map(|choice| &choice.logprobs);
            let mut differences: Vec<f64> =
                own.zip(theirs).map(|(own, theirs)| (own - f64::from(*theirs)).abs()).collect();
            // NaN is the largest.
            differences.sort_by(f64::total_cmp);
            let mean = differences.iter().sum::<f64>() / differences.len() as f64;
            Difference { largest: differences[differences.len() - 1], mean }
        };
        let is_within = |Difference { largest, mean }: Difference| match tolerance {
            Tolerance::Each(most) => largest <= most,
            Tolerance::Mean(most) => mean <= most,
        };
        let temperature = self.temperature;
        let found = difference(temperature);
        if is_within(found) {
            return Ok(());
        }
        if temperature != 1.0 && is_within(difference(1.0)) {
            let what = format!(
                "its log-probabilities are those at temperature 1 instead of {temperature}"
            );
            return refused(what, "start vLLM with `--logprobs-mode processed_logprobs`");
        }
        let what = format!(
            "its log-probabilities differ from those of this program by up to {:.4} nats, {:.4} on average",
            found.largest, found.mean
        );
        match tolerance {
            Tolerance::Each(_) => refused(
                what,
                "start vLLM with the model of this run, `--dtype float32` and `--logprobs-mode processed_logprobs`, remove base_precision, or set sampler_check.above = \"correct\"",
            ),
            Tolerance::Mean(_) => refused(what, "start vLLM with the model of this run"),
        }
    }
}

//! User settings for the sampling distribution.

use grpo_data::short_number;
use serde::{Deserialize, Serialize};

use crate::{DistributionError, SamplingDistribution};

/// Unvalidated settings for a sampling distribution. By default, the model's distribution is used
/// unchanged.
///
/// See [`SamplingDistribution`] for how they are applied, and in which order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SamplingSettings {
    /// Softmax temperature, from 0.001 to 1000.
    pub temperature: f32,
    /// Maximum number of tokens to keep, at least 1. The most probable tokens are kept. `None`
    /// keeps all tokens.
    pub top_k: Option<usize>,
    /// Minimum total probability of the tokens to keep, above 0 and at most 1. `None` or 1 keeps
    /// all tokens.
    pub top_p: Option<f32>,
    /// Minimum probability of a token as a fraction of the largest probability, at least 0 and
    /// below 1. `None` or 0 keeps all tokens.
    pub min_p: Option<f32>,
    /// Penalty for tokens that already occur in the sequence, from 0.01 to 100. `None` or 1
    /// disables it.
    pub repetition_penalty: Option<f32>,
    /// Ids that are never sampled, in any order.
    pub forbidden: Vec<u32>,
}

impl Default for SamplingSettings {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: None,
            top_p: None,
            min_p: None,
            repetition_penalty: None,
            forbidden: Vec::new(),
        }
    }
}

impl SamplingSettings {
    /// Validates all settings except `forbidden`, which requires a vocabulary.
    ///
    /// # Errors
    /// Returns an error for the first setting that is out of range or NaN.
    pub fn check(&self) -> Result<(), DistributionError> {
        let refuse = |setting, problem: String| Err(DistributionError::new(setting, problem));
        let temperature = self.temperature;
        // Outside this range, dividing logits by the temperature may exceed the range of f32.
        if !(1e-3..=1e3).contains(&temperature) {
            let expected = match temperature == 0.0 {
                true => "use top_k = 1 (--top-k 1) for the most likely token at each step",
                false => "use 0.001 to 1000 (1 is the model's own distribution)",
            };
            let temperature = short_number(temperature);
            let problem = format!("temperature = {temperature} is out of range; {expected}");
            return refuse("temperature", problem);
        }
        if self.top_k == Some(0) {
            let problem =
                "top_k = 0 is out of range; use 1 or more, or remove it to keep all tokens";
            return refuse("top_k", problem.to_owned());
        }
        if let Some(top_p) = self.top_p.filter(|&p| !(p > 0.0 && p <= 1.0)) {
            let expected = "use a number above 0 and at most 1 (1 keeps all tokens)";
            let top_p = short_number(top_p);
            return refuse("top_p", format!("top_p = {top_p} is out of range; {expected}"));
        }
        if let Some(min_p) = self.min_p.filter(|p| !(0.0..1.0).contains(p)) {
            let expected = "use 0 or more and less than 1 (0 keeps all tokens)";
            let min_p = short_number(min_p);
            let problem = format!("min_p = {min_p} is out of range; {expected}");
            return refuse("min_p", problem);
        }
        match self.repetition_penalty.filter(|penalty| !(0.01..=100.0).contains(penalty)) {
            Some(penalty) => {
                let expected = "use 0.01 to 100 (1 has no effect)";
                let penalty = short_number(penalty);
                let problem = format!("repetition_penalty = {penalty} is out of range; {expected}");
                refuse("repetition_penalty", problem)
            }
            None => Ok(()),
        }
    }

    /// Validates the settings and creates a distribution over `vocabulary` tokens. Settings without
    /// an effect are disabled: `top_p` = 1, `min_p` = 0, `repetition_penalty` = 1, or `top_k` equal
    /// to the vocabulary size.
    ///
    /// # Errors
    /// Returns an error if [`Self::check`] fails, if a forbidden id is outside the vocabulary, or
    /// if all ids are forbidden.
    pub fn checked(self, vocabulary: usize) -> Result<SamplingDistribution, DistributionError> {
        self.check()?;
        let mut forbidden = self.forbidden;
        forbidden.sort_unstable();
        forbidden.dedup();
        if let Some(&id) = forbidden.iter().find(|&&id| id as usize >= vocabulary) {
            let problem =
                format!("forbidden token id {id} is outside the vocabulary of {vocabulary} tokens");
            return Err(DistributionError::new("forbidden", problem));
        }
        if forbidden.len() == vocabulary {
            let problem = "all tokens are forbidden; at least one must be allowed";
            return Err(DistributionError::new("forbidden", problem));
        }
        Ok(SamplingDistribution {
            temperature: self.temperature,
            top_k: self.top_k.filter(|&k| k < vocabulary),
            top_p: self.top_p.filter(|&p| p < 1.0),
            min_p: self.min_p.filter(|&p| p > 0.0),
            repetition_penalty: self.repetition_penalty.filter(|&penalty| penalty != 1.0),
            forbidden,
            vocabulary,
        })
    }
}

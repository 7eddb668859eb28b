//! User settings for the sampling distribution.

use grpo_data::{Ranges, short_number};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{DistributionError, SamplingDistribution};

/// Unvalidated settings for a sampling distribution. By default, the model's distribution is used
/// unchanged. They are shared by all commands that sample; the comments are those of the keys of
/// `[sampling]`, which has keys of the rollout in addition.
///
/// See [`SamplingDistribution`] for how they are applied, and in which order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct SamplingSettings {
    /// Divides the logits, after the repetition penalty.
    // Outside this range, the quotient may exceed the range of f32.
    #[schemars(range(min = 0.001, max = 1000), extend("x-basic" = true))]
    pub temperature: f32,
    /// Sample from the k most probable tokens. Default: all tokens.
    #[schemars(range(min = 1))]
    pub top_k: Option<usize>,
    /// Sample from the fewest most probable of the remaining tokens with at least this total
    /// probability. Default: all tokens.
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0, "x-basic" = true))]
    pub top_p: Option<f32>,
    /// Sample from remaining tokens with at least this fraction of the largest probability.
    /// Default: all tokens.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub min_p: Option<f32>,
    /// For tokens already in the sequence, including the prompt: divides positive and multiplies
    /// negative logits, before the temperature.
    #[schemars(range(min = 0.01, max = 100))]
    pub repetition_penalty: Option<f32>,
    /// Ids that are never sampled, in any order. They follow from the model and are not a key.
    #[serde(skip)]
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
        let refuse = |setting: &str, problem: String| Err(DistributionError::new(setting, problem));
        if self.temperature == 0.0 {
            let problem = "temperature = 0 is out of range; use top_k = 1 (--top-k 1) for the most likely token at each step";
            return refuse("temperature", problem.to_owned());
        }
        if let Err(fault) = self.check_ranges("") {
            let neutral = match &*fault.key {
                "temperature" => "1 is the model's own distribution",
                "top_k" => "remove it to keep all tokens",
                _ => "1 has no effect",
            };
            return refuse(&fault.key, format!("{fault} ({neutral})"));
        }
        if let Some(top_p) = self.top_p.filter(|&p| !(p > 0.0 && p <= 1.0)) {
            let expected = "expected a number above 0 and at most 1 (1 keeps all tokens)";
            let top_p = short_number(top_p);
            return refuse("top_p", format!("top_p = {top_p} is out of range; {expected}"));
        }
        if let Some(min_p) = self.min_p.filter(|p| !(0.0..1.0).contains(p)) {
            let expected = "expected 0 or more and less than 1 (0 keeps all tokens)";
            let min_p = short_number(min_p);
            return refuse("min_p", format!("min_p = {min_p} is out of range; {expected}"));
        }
        Ok(())
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

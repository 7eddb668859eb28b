//! Compares log-probabilities from the sampler and the trainer. At the start of a step, both use
//! the same weights, so any difference should only be due to rounding.

use grpo_core::{LossConfig, MismatchCorrection, MismatchMode, RatioLevel};
use grpo_data::Completion;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::TrainError;

/// The `[sampler_check]` section.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SamplerCheck {
    /// What to do if a token differs by more than 0.001 nats: end the run with a message that names
    /// the token, or correct the step and set the metric `sampling/corrected`. On a CPU all
    /// differences are 0 ([decision 39](decisions/0039-one-order-of-sums.md)), except with
    /// `sampling.weights` and vLLM; a GPU adds in another order.
    pub above: Option<AboveTolerance>,
    /// Largest difference in nats for a token. It is not a key: only tests and benchmarks, whose
    /// log-probabilities are exact or not those of a sampler, change it.
    #[serde(skip)]
    pub tolerance: f64,
}

/// What to do about a sampler mismatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AboveTolerance {
    /// Stops the run before the policy is updated.
    Stop,
    /// Applies truncated importance sampling to all tokens in the step, with weights between 0 and
    /// 2. A correction that is configured in the loss takes precedence.
    Correct,
}

/// Truncated importance sampling (Yao et al. 2025) with the same bound as in TRL.
pub(crate) const TRUNCATED: MismatchCorrection = MismatchCorrection {
    level: RatioLevel::Token,
    mode: MismatchMode::Truncate,
    min: 0.0,
    max: 2.0,
};

impl Default for SamplerCheck {
    /// On the CPU, the difference is 0 (docs/decisions/0039). The largest one measured on a GPU in
    /// f32 is 3e-5 (docs/gpu.md).
    fn default() -> Self {
        Self { above: None, tolerance: Self::TOLERANCE }
    }
}

impl SamplerCheck {
    /// Default of [`Self::tolerance`].
    pub const TOLERANCE: f64 = 1e-3;

    /// Fills in the default action.
    #[must_use]
    pub fn resolved(self, mismatch: Option<MismatchCorrection>) -> Self {
        let usual = match mismatch {
            Some(_) => AboveTolerance::Correct,
            None => AboveTolerance::Stop,
        };
        Self { above: Some(self.above.unwrap_or(usual)), ..self }
    }

    /// Returns whether a mismatch is corrected.
    pub fn corrects(&self, loss: &LossConfig) -> bool {
        self.resolved(loss.mismatch).above == Some(AboveTolerance::Correct)
    }

    /// Returns whether any token in `completions` exceeds the tolerance. `trainer` contains
    /// `log π_θ` for all actions in order.
    ///
    /// # Errors
    /// Returns an error if the tolerance is exceeded and mismatches are not corrected. A difference
    /// that is not finite is always an error. Completions that were not sampled are not checked.
    pub(crate) fn is_above(
        &self,
        completions: &[&Completion],
        trainer: &[f64],
        loss: &LossConfig,
    ) -> Result<bool, TrainError> {
        let Some(furthest) = furthest(completions, trainer) else { return Ok(false) };
        let difference = furthest.difference();
        if difference <= self.tolerance {
            return Ok(false);
        }
        if difference.is_finite() && self.corrects(loss) {
            return Ok(true);
        }
        let Token { completion, action, sampler, trainer } = furthest;
        let mask = completion.action_mask().iter().enumerate();
        let mut positions = mask.filter_map(|(position, &is_action)| is_action.then_some(position));
        let key = completion.key();
        Err(TrainError::SamplerMismatch {
            step: u64::from(key.step) + 1,
            prompt: key.prompt,
            sample: key.sample,
            position: positions.nth(action).expect("an action has a position"),
            sampler,
            trainer,
            tolerance: self.tolerance,
        })
    }
}

/// Log-probabilities for one action, from the sampler and from the trainer.
struct Token<'a> {
    completion: &'a Completion,
    /// Index of the action within the completion.
    action: usize,
    sampler: f64,
    trainer: f64,
}

impl Token<'_> {
    /// Returns the absolute difference. NaN is converted to infinity, so that it exceeds any
    /// tolerance.
    fn difference(&self) -> f64 {
        let difference = (self.sampler - self.trainer).abs();
        if difference.is_nan() { f64::INFINITY } else { difference }
    }
}

/// Returns the action with the largest difference, or `None` if no completion was sampled. If there are
/// several, the first one is returned.
fn furthest<'a>(completions: &[&'a Completion], trainer: &[f64]) -> Option<Token<'a>> {
    let mut rest = trainer;
    let tokens = completions.iter().flat_map(|completion| {
        let (own, others) = rest.split_at(completion.actions());
        rest = others;
        let sampler = completion.sampling_logprobs().unwrap_or_default();
        sampler.iter().zip(own).enumerate().map(|(action, (&sampler, &trainer))| Token {
            completion,
            action,
            sampler: f64::from(sampler),
            trainer,
        })
    });
    tokens.reduce(|a, b| if b.difference() > a.difference() { b } else { a })
}

#[cfg(test)]
mod tests {
    use grpo_core::Preset;
    use grpo_data::{CompletionParts, Finish, SampleKey, SampledUnder};

    use super::*;

    /// Creates a completion with two prompt tokens and two actions, which have these
    /// log-probabilities.
    fn completion(sample: u32, sampling_logprobs: [f32; 2]) -> Completion {
        Completion::new(CompletionParts {
            prefix: Default::default(),
            ids: vec![0, 1, 2, 3],
            action_mask: vec![false, false, true, true],
            sampling_logprobs: Some(sampling_logprobs.to_vec()),
            finish: Finish::Length,
            key: SampleKey { seed: 1, step: 6, prompt: 4, sample },
            policy_version: 0,
            sampled_under: SampledUnder::default(),
        })
    }

    /// Runs the check on two completions, with the given log-probabilities from the trainer.
    fn check(above: AboveTolerance, trainer: [f64; 4]) -> Result<bool, String> {
        let completions = [completion(0, [-1.0, -0.5]), completion(1, [-2.0, -0.25])];
        let check = SamplerCheck { tolerance: 0.125, above: Some(above) };
        let found = check.is_above(&completions.each_ref(), &trainer, &Preset::Grpo.config());
        found.map_err(|error| error.to_string())
    }

    #[test]
    fn the_tolerance_is_inside() {
        for above in [AboveTolerance::Stop, AboveTolerance::Correct] {
            assert_eq!(check(above, [-1.125, -0.375, -2.0, -0.25]), Ok(false));
        }
        assert_eq!(check(AboveTolerance::Correct, [-1.0, -0.5, -2.25, -0.25]), Ok(true));
    }

    /// The log-probabilities of the trainer belong to the completions in order, whether they were
    /// sampled or not.
    #[test]
    fn completions_that_were_not_sampled_are_not_checked() {
        let mut parts: CompletionParts = completion(0, [0.0, 0.0]).into();
        parts.sampling_logprobs = None;
        let completions = [Completion::new(parts), completion(1, [-2.0, -0.25])];
        let check = SamplerCheck { tolerance: 0.125, above: Some(AboveTolerance::Correct) };
        let is_above = |of: &[&Completion], trainer: &[f64]| {
            check.is_above(of, trainer, &Preset::Grpo.config()).unwrap()
        };
        let both = completions.each_ref();
        assert!(!is_above(&both, &[-9.0, -9.0, -2.0, -0.25]));
        assert!(is_above(&both, &[-2.0, -0.25, -9.0, -9.0]));
        assert!(!is_above(&both[..1], &[-9.0, -9.0]));
    }

    /// The error describes the token with the largest absolute difference.
    #[test]
    fn reports_the_token_with_the_largest_difference() {
        assert_eq!(
            check(AboveTolerance::Stop, [-1.5, -0.75, -2.0, -1.0]).unwrap_err(),
            "step 7: the sampler recorded log-probability -0.250000 at position 3 of prompt 4, sample 1, but the trainer computes -1.000000 with the same weights, which exceeds the tolerance of 0.125; find the difference, or set sampler_check.above = \"correct\" to weight the tokens of such a step by their ratio"
        );
    }

    #[test]
    fn nan_exceeds_every_tolerance() {
        for number in [f64::NAN, f64::NEG_INFINITY] {
            for above in [AboveTolerance::Stop, AboveTolerance::Correct] {
                // This must also work if another token exceeds the tolerance by a finite amount.
                for trainer in [[-9.0, number, -2.0, -0.25], [-1.0, number, -9.0, -0.25]] {
                    let error = check(above, trainer).unwrap_err();
                    let expected = format!(
                        "step 7: the sampler recorded log-probability -0.500000 at position 3 of prompt 4, sample 0, but the trainer computes {number} with the same weights, which exceeds the tolerance of 0.125; no weight can correct this: the model or its implementation is broken"
                    );
                    assert_eq!(error, expected);
                }
            }
        }
    }

    #[test]
    fn a_correcting_loss_continues() {
        let usual = SamplerCheck::default();
        assert_eq!(usual.resolved(None).above, Some(AboveTolerance::Stop));
        assert_eq!(usual.resolved(Some(TRUNCATED)).above, Some(AboveTolerance::Correct));
        let stop = SamplerCheck { above: Some(AboveTolerance::Stop), ..usual };
        assert_eq!(stop.resolved(Some(TRUNCATED)), stop);
    }
}

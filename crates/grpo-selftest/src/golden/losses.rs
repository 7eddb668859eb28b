//! `losses.json`.

use std::collections::BTreeMap;

use grpo_core::{BatchTotals, HighEntropy, LossConfig};
use serde::Deserialize;

use crate::SelftestError;
use crate::golden::read::{Problem, cases, check_length, check_shape, mask_of};
use crate::golden::settings::Settings;
use crate::oracle::{LossCase, Rows};

/// A loss case with TRL's results.
#[derive(Clone, Debug)]
pub struct GoldenLoss {
    /// Description of the settings.
    pub label: String,
    /// Inputs; `reference`, `old` and `sampling` only if TRL uses them.
    pub case: LossCase,
    /// Settings of TRL.
    pub config: LossConfig,
    /// TRL's coefficient of the entropy bonus, before the division by accumulation steps.
    pub entropy_coef: f64,
    /// Factor from our loss without the bonus to TRL's metric `policy_loss`.
    pub policy_loss_factor: f64,
    /// Sequences of the optimizer batch of which the case is a micro-batch.
    pub sequences: usize,
    /// Tokens of the optimizer batch.
    pub tokens: usize,
    /// Largest length in tokens.
    pub max_completion_length: usize,
    /// TRL's results.
    pub expected: ExpectedLoss,
}

/// TRL's results.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "an object with named values")]
pub struct ExpectedLoss {
    /// The loss.
    pub loss: f64,
    /// `[b][t]`.
    pub grad_logprobs: Rows,
    /// `[b][t]`; `None` if the loss does not depend on the entropy.
    pub grad_entropy: Option<Rows>,
    /// Metrics by TRL's names; null means NaN.
    pub metrics: BTreeMap<String, Option<f64>>,
    /// The corrected `π_old / π_sampler`, `[b][t]` or `[b][1]`; `None` without a correction.
    pub importance_sampling_ratio: Option<Rows>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with named values")]
struct Raw {
    config: Settings,
    inputs: RawInputs,
    expected: ExpectedLoss,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with named values")]
struct RawInputs {
    mask: Rows,
    logp: Rows,
    old: Rows,
    #[serde(rename = "ref")]
    reference: Rows,
    sampling: Rows,
    entropy: Rows,
    advantages: Vec<f64>,
}

impl GoldenLoss {
    /// Returns the totals of the optimizer batch; the high-entropy threshold is that of `case`,
    /// which may be in another precision.
    pub fn totals(&self, case: &LossCase) -> BatchTotals {
        BatchTotals {
            sequences: self.sequences,
            tokens: self.tokens,
            max_completion_length: self.max_completion_length,
            high_entropy: self
                .config
                .high_entropy_share
                .map(|share| HighEntropy::of(case.active_entropies(), share)),
        }
    }
}

/// Parses `losses.json`; errors name `file`.
///
/// # Errors
/// Returns an error for invalid JSON, a key that is missing or has an unexpected type or shape, or
/// settings that grpo-core rejects.
pub fn read_losses(text: &str, file: &str) -> Result<Vec<GoldenLoss>, SelftestError> {
    cases(text, file, |raw, _| check(raw))
}

fn check(raw: Raw) -> Result<GoldenLoss, Problem> {
    let Raw { config: settings, inputs, expected } = raw;
    let shape = check_shapes(&inputs, &expected)?;
    let config = settings.loss_config().map_err(|error| ("config", error.to_string()))?;
    let case = LossCase {
        mask: mask_of("inputs.mask", &inputs.mask)?,
        logprobs: inputs.logp,
        old: settings.old_logprobs.then_some(inputs.old),
        reference: (settings.beta != 0.0).then_some(inputs.reference),
        sampling: config.mismatch.map(|_| inputs.sampling),
        exact_kl: None,
        entropies: inputs.entropy,
        advantages: inputs.advantages,
        entropy_coef: 0.0,
    };
    let steps = settings.gradient_accumulation_steps;
    let tokens = tokens_of_the_batch(&settings, case.tokens())?;
    // TRL averages the bonus over this micro-batch and divides by the accumulation steps; here the
    // mean is over the `bonus_tokens` of the optimizer batch.
    let of_micro_batch = case.tokens().max(1) as f64;
    let share = match config.high_entropy_share {
        Some(_) => 1.0,
        None => tokens as f64 / of_micro_batch,
    };
    let entropy_coef = settings.entropy_coef / steps as f64 * share;
    Ok(GoldenLoss {
        label: settings.label(shape),
        config,
        entropy_coef: settings.entropy_coef,
        policy_loss_factor: if settings.divides_by_accumulation() { steps as f64 } else { 1.0 },
        sequences: case.rows() * steps,
        tokens,
        max_completion_length: settings.max_completion_length,
        expected,
        case: LossCase { entropy_coef, ..case },
    })
}

/// TRL counts all generated tokens and takes the share of one optimizer step.
fn tokens_of_the_batch(settings: &Settings, tokens: usize) -> Result<usize, Problem> {
    let (accumulated, generated) =
        (settings.gradient_accumulation_steps, settings.steps_per_generation);
    for (key, steps) in [
        ("config.gradient_accumulation_steps", accumulated),
        ("config.steps_per_generation", generated),
    ] {
        if steps == 0 {
            return Err((key, "0, expected 1 or more".to_owned()));
        }
    }
    if !(tokens * accumulated).is_multiple_of(generated) {
        let problem = format!("{generated}, expected a divisor of {tokens} tokens × {accumulated}");
        return Err(("config.steps_per_generation", problem));
    }
    Ok(tokens * accumulated / generated)
}

/// Checks the shape of all inputs and gradients.
fn check_shapes(inputs: &RawInputs, expected: &ExpectedLoss) -> Result<[usize; 2], Problem> {
    let shape = [inputs.mask.len(), inputs.mask.first().map_or(0, Vec::len)];
    if shape.contains(&0) {
        return Err(("inputs.mask", "nothing, expected at least one token".to_owned()));
    }
    for (key, rows) in [
        ("inputs.mask", &inputs.mask),
        ("inputs.logp", &inputs.logp),
        ("inputs.old", &inputs.old),
        ("inputs.ref", &inputs.reference),
        ("inputs.sampling", &inputs.sampling),
        ("inputs.entropy", &inputs.entropy),
        ("expected.grad_logprobs", &expected.grad_logprobs),
    ] {
        check_shape(key, rows, shape)?;
    }
    check_length("inputs.advantages", &inputs.advantages, shape[0])?;
    if let Some(gradient) = &expected.grad_entropy {
        check_shape("expected.grad_entropy", gradient, shape)?;
    }
    if let Some(ratio) = &expected.importance_sampling_ratio {
        let width = match ratio.first().map(Vec::len) {
            Some(1) => 1,
            _ => shape[1],
        };
        check_shape("expected.importance_sampling_ratio", ratio, [shape[0], width])?;
    }
    Ok(shape)
}

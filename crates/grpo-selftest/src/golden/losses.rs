//! Reads `losses.json`.

use std::collections::BTreeMap;

use grpo_core::{BatchTotals, HighEntropy, LossConfig};
use serde::Deserialize;

use crate::SelftestError;
use crate::golden::read::{Problem, cases, check_length, check_shape, mask_of};
use crate::golden::settings::Settings;
use grpo_oracle::{LossCase, Rows};

/// A loss case and the results computed by TRL.
#[derive(Clone, Debug)]
pub struct GoldenLoss {
    /// Description of the settings.
    pub label: String,
    /// Loss inputs. `reference`, `old` and `sampling` are only set if TRL uses them.
    pub case: LossCase,
    /// Settings used by TRL.
    pub config: LossConfig,
    /// Entropy bonus coefficient in TRL, before it is divided by the accumulation steps.
    pub entropy_coef: f64,
    /// Factor that converts our loss without the bonus to TRL's `policy_loss` metric.
    pub policy_loss_factor: f64,
    /// Number of sequences in the optimizer batch that contains this micro-batch.
    pub sequences: usize,
    /// Number of tokens in the optimizer batch.
    pub tokens: usize,
    /// Maximum completion length in tokens.
    pub max_completion_length: usize,
    /// Results computed by TRL.
    pub expected: ExpectedLoss,
}

/// Results computed by TRL.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "an object with named values")]
pub struct ExpectedLoss {
    /// Loss.
    pub loss: f64,
    /// Gradient with respect to log-probabilities, `[b][t]`.
    pub grad_logprobs: Rows,
    /// Gradient with respect to entropies, `[b][t]`. `None` if the loss does not depend on them.
    pub grad_entropy: Option<Rows>,
    /// Metrics by TRL name. Null means NaN.
    pub metrics: BTreeMap<String, Option<f64>>,
    /// Corrected `π_old / π_sampler`, `[b][t]` or `[b][1]`. `None` without a correction.
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
    /// Returns the optimizer batch totals. The high-entropy threshold is computed from `case`,
    /// which may have a different precision.
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

/// Parses `losses.json`. `file` is used in error messages.
///
/// # Errors
/// Returns an error if the JSON is invalid, if a key is missing or has an unexpected type or shape,
/// or if grpo-core rejects the settings.
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
    // TRL averages the bonus over the micro-batch and divides it by the accumulation steps. Our
    // mean is over all `bonus_tokens` in the optimizer batch.
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

/// TRL counts all generated tokens and uses the fraction that belongs to one optimizer step.
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

/// Checks the shapes of all inputs and gradients.
fn check_shapes(inputs: &RawInputs, expected: &ExpectedLoss) -> Result<[usize; 2], Problem> {
    let shape = [inputs.mask.len(), inputs.mask.first().map_or(0, Vec::len)];
    if shape.contains(&0) {
        return Err(("inputs.mask", "empty, expected at least one token".to_owned()));
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

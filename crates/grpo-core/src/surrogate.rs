//! What a token adds to the loss, before masks, penalty and reduction.

use burn::tensor::{Tensor, activation::sigmoid};
use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::config::{above_zero, at_least_zero};

/// The surrogate objective of one token, with `c` the ratio `π_θ / π_old` and `A` the advantage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Surrogate {
    /// `−min(min(c, δ) A, clip(c, 1 − ε_low, 1 + ε_high) A)` (Shao et al. 2024, equation 3).
    Clipped {
        /// ε_low: where A is negative, a ratio below `1 − ε_low` has no gradient.
        epsilon_low: f64,
        /// ε_high: where A is positive, a ratio above `1 + ε_high` has no gradient.
        epsilon_high: f64,
        /// δ: a ratio above δ counts as δ and has no gradient. Above `1 + ε_high` that matters where A is
        /// negative ("two-sided clipping", INTELLECT-2, 2025); a smaller δ takes the place of ε_high too.
        delta: Option<f64>,
    },
    /// `−sg[min(c, cap)] A log π_θ` (MiniMax-M1, 2025, "CISPO"): a clipped ratio keeps its gradient.
    Cispo {
        /// Largest ratio, absolute; 5 in the paper.
        cap: f64,
    },
    /// `−(4/τ) σ(τ (c − 1)) A` (Qwen, 2025, "Soft Adaptive Policy Optimization").
    Sapo {
        /// τ where A is positive.
        temperature_positive: f64,
        /// τ elsewhere.
        temperature_negative: f64,
    },
    /// `−sg[φ(W)] A log π_θ` with one weight a sequence, `φ(W) = exp(λ + k ln W − λ W)`
    /// ("VESPO", 2026).
    Vespo {
        /// k where A ≥ 0.
        k_positive: f64,
        /// λ where A ≥ 0.
        lambda_positive: f64,
        /// k elsewhere.
        k_negative: f64,
        /// λ elsewhere.
        lambda_negative: f64,
    },
    /// `−A log π_θ` (Williams 1992). (With braces, so that an unknown key in it is refused.)
    Reinforce {},
}

impl Surrogate {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        match *self {
            Self::Clipped { epsilon_low, epsilon_high, delta } => {
                if !(0.0..=1.0).contains(&epsilon_low) {
                    let (name, value) = ("epsilon_low", epsilon_low);
                    return Err(ConfigError::Range { name, value, expected: "0 to 1" });
                }
                at_least_zero("epsilon_high", epsilon_high)?;
                delta.map_or(Ok(()), |delta| above_zero("delta", delta))
            }
            Self::Cispo { cap } => above_zero("cap", cap),
            Self::Sapo { temperature_positive, temperature_negative } => {
                above_zero("temperature_positive", temperature_positive)?;
                above_zero("temperature_negative", temperature_negative)
            }
            Self::Vespo { k_positive, lambda_positive, k_negative, lambda_negative } => {
                above_zero("k_positive", k_positive)?;
                above_zero("lambda_positive", lambda_positive)?;
                above_zero("k_negative", k_negative)?;
                above_zero("lambda_negative", lambda_negative)
            }
            Self::Reinforce {} => Ok(()),
        }
    }
}

/// What a surrogate is computed from; `[b, t]` unless said otherwise, with 0 in padded places of `logprobs`
/// and `log_ratio`.
pub(crate) struct SurrogateInputs {
    pub(crate) logprobs: Tensor<2>,
    pub(crate) ratio: Tensor<2>,
    /// `log π_θ − log π_old` of tokens, whatever the level of the ratio.
    pub(crate) log_ratio: Tensor<2>,
    /// The corrected `π_old / π_sampler`, 1 in padded places.
    pub(crate) mismatch: Option<Tensor<2>>,
    pub(crate) advantages: Tensor<2>,
}

/// The loss of each token, `[b, t]`.
pub(crate) fn surrogate_loss(surrogate: &Surrogate, inputs: SurrogateInputs) -> Tensor<2> {
    let SurrogateInputs { logprobs, ratio, log_ratio, mismatch, advantages } = inputs;
    match *surrogate {
        Surrogate::Clipped { epsilon_low, epsilon_high, delta } => {
            let clipped = ratio.clone().clamp(1.0 - epsilon_low, 1.0 + epsilon_high);
            let bounded = match delta {
                Some(delta) => ratio.clamp_max(delta),
                None => ratio,
            };
            (bounded * advantages.clone()).min_pair(clipped * advantages).neg()
        }
        Surrogate::Cispo { cap } => (ratio.detach().clamp_max(cap) * advantages * logprobs).neg(),
        Surrogate::Sapo { temperature_positive, temperature_negative } => {
            let positive = advantages.clone().greater_elem(0.0);
            let temperature = advantages
                .full_like(temperature_negative)
                .mask_fill(positive, temperature_positive);
            let gate = sigmoid((ratio - 1.0) * temperature.clone()) * 4.0 / temperature;
            (gate * advantages).neg()
        }
        Surrogate::Vespo { k_positive, lambda_positive, k_negative, lambda_negative } => {
            let negative = advantages.clone().lower_elem(0.0); // [b, t]
            let by_sign = |positive: f64, other: f64| {
                advantages.full_like(positive).mask_fill(negative.clone(), other)
            };
            let (k, lambda) =
                (by_sign(k_positive, k_negative), by_sign(lambda_positive, lambda_negative));
            let log_weight = vespo_log_weight(log_ratio.detach(), mismatch).expand(k.dims());
            let log_phi = lambda.clone() + k * log_weight.clone() - lambda * log_weight.exp();
            let phi = log_phi.exp();
            let phi = phi.clone().mask_fill(phi.is_finite().bool_not(), 0.0);
            (phi * advantages * logprobs).neg()
        }
        Surrogate::Reinforce {} => (advantages * logprobs).neg(),
    }
}

/// `ln W` of each sequence, `[b, 1]`.
fn vespo_log_weight(log_ratio: Tensor<2>, mismatch: Option<Tensor<2>>) -> Tensor<2> {
    let mut log_weight = log_ratio.clamp(-VESPO_LARGEST, VESPO_LARGEST).sum_dim(1);
    if let Some(mismatch) = mismatch {
        // A masked 0 counts as the smallest weight, and ln 1 = 0 in padded places.
        log_weight = log_weight
            + mismatch.clamp_min(VESPO_SMALLEST_WEIGHT).log().clamp_max(VESPO_LARGEST).sum_dim(1);
    }
    log_weight.clamp(VESPO_SMALLEST_WEIGHT.ln(), VESPO_LARGEST)
}

/// Bound of a log-ratio and of `ln W`.
pub(crate) const VESPO_LARGEST: f64 = 20.0;
/// Lower bound of `W`.
pub(crate) const VESPO_SMALLEST_WEIGHT: f64 = 1e-8;

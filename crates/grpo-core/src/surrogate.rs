//! Surrogate objectives.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dual::Dual;
use crate::error::{ConfigError, above_zero, at_least_zero};
use crate::host_inputs::Sequence;
use crate::terms::{Clipping, SamplingTerms};

/// Surrogate objective for one token, where `c = π_θ / π_old` is the ratio and `A` is the
/// advantage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Surrogate {
    /// `−min(min(c, δ) A, clip(c, 1 − ε_low, 1 + ε_high) A)` (Shao et al. 2024, equation 3).
    Clipped {
        /// ε_low: ratios below `1 − ε_low` have no gradient if A < 0.
        epsilon_low: f64,
        /// ε_high: ratios above `1 + ε_high` have no gradient if A > 0.
        epsilon_high: f64,
        /// δ: ratios above δ are limited to δ and have no gradient. If δ is above `1 + ε_high`, it
        /// only has an effect for A < 0 ("two-sided clipping", INTELLECT-2, 2025). A smaller δ also
        /// overrides ε_high.
        delta: Option<f64>,
    },
    /// `−sg[min(c, cap)] A log π_θ` (MiniMax-M1, 2025, "CISPO"). Clipped tokens keep their
    /// gradient.
    Cispo {
        /// Largest ratio, as an absolute value. The paper uses 5.
        cap: f64,
    },
    /// `−(4/τ) σ(τ (c − 1)) A` (Qwen, 2025, "Soft Adaptive Policy Optimization").
    Sapo {
        /// τ for A > 0.
        temperature_positive: f64,
        /// τ for A ≤ 0.
        temperature_negative: f64,
    },
    /// `−sg[φ(W)] A log π_θ`, where `φ(W) = exp(λ + k ln W − λ W)` is a weight per sequence
    /// ("VESPO", 2026).
    Vespo {
        /// k for A ≥ 0.
        k_positive: f64,
        /// λ for A ≥ 0.
        lambda_positive: f64,
        /// k for A < 0.
        k_negative: f64,
        /// λ for A < 0.
        lambda_negative: f64,
    },
    /// `−A log π_θ` (Williams 1992).
    // The braces make serde reject unknown keys.
    Reinforce {},
}

impl Surrogate {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        match *self {
            Self::Clipped { epsilon_low, epsilon_high, delta } => {
                if !(0.0..=1.0).contains(&epsilon_low) {
                    return Err(ConfigError::out_of_range("epsilon_low", epsilon_low, "0 to 1"));
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

/// Surrogate loss for one token.
pub(crate) struct SurrogateLoss {
    pub(crate) loss: Dual,
    /// See [`crate::TokenTerms`].
    pub(crate) clipping: Option<Clipping>,
    pub(crate) is_capped: Option<bool>,
    pub(crate) vespo_phi: Option<f64>,
}

impl Surrogate {
    /// Returns the loss for each token in a sequence. Masks, the penalty and the reduction are
    /// applied later.
    pub(crate) fn losses(
        &self,
        sequence: &Sequence<'_>,
        ratios: &[Dual],
        sampling: Option<&[SamplingTerms]>,
    ) -> Vec<SurrogateLoss> {
        let advantage = sequence.advantage;
        let mismatch = |t: usize| sampling.and_then(|terms| terms[t].weight).unwrap_or(1.0);
        let plain =
            |loss: Dual| SurrogateLoss { loss, clipping: None, is_capped: None, vespo_phi: None };
        let each = |of: &dyn Fn(usize, Dual) -> SurrogateLoss| {
            ratios.iter().enumerate().map(|(t, &ratio)| of(t, ratio)).collect()
        };
        match *self {
            Self::Clipped { epsilon_low, epsilon_high, delta } => each(&|t, ratio| {
                let (low, high) = (1.0 - epsilon_low, 1.0 + epsilon_high);
                let bounded = ratio.min(Dual::constant(delta.unwrap_or(f64::INFINITY)));
                let clipped = ratio.clamp(low, high);
                let clipping = Clipping {
                    low: ratio.value < low && advantage < 0.0,
                    high: ratio.value > high && advantage > 0.0,
                };
                let loss = -(bounded * advantage).min(clipped * advantage) * mismatch(t);
                SurrogateLoss { clipping: Some(clipping), ..plain(loss) }
            }),
            Self::Cispo { cap } => each(&|t, ratio| {
                let weight = ratio.value.min(cap) * advantage * mismatch(t);
                let is_capped = Some(ratio.value > cap && advantage > 0.0);
                SurrogateLoss { is_capped, ..plain(-sequence.logprob(t) * weight) }
            }),
            Self::Sapo { temperature_positive, temperature_negative } => each(&|t, ratio| {
                let temperature = match advantage > 0.0 {
                    true => temperature_positive,
                    false => temperature_negative,
                };
                let gate = ((ratio - 1.0) * temperature).sigmoid() * (4.0 / temperature);
                plain(-gate * advantage * mismatch(t))
            }),
            Self::Vespo { k_positive, lambda_positive, k_negative, lambda_negative } => {
                let (k, lambda) = match advantage >= 0.0 {
                    true => (k_positive, lambda_positive),
                    false => (k_negative, lambda_negative),
                };
                let log_weight = vespo_log_weight(sequence, sampling);
                let phi = (lambda + k * log_weight - lambda * log_weight.exp()).exp();
                let phi = if phi.is_finite() { phi } else { 0.0 };
                each(&|t, _| {
                    let loss = -sequence.logprob(t) * (phi * advantage);
                    SurrogateLoss { vespo_phi: Some(phi), ..plain(loss) }
                })
            }
            Self::Reinforce {} => {
                each(&|t, _| plain(-sequence.logprob(t) * (advantage * mismatch(t))))
            }
        }
    }
}

/// Returns `ln W` for a sequence. In VESPO, the mismatch correction is part of this weight and not
/// a separate loss factor.
fn vespo_log_weight(sequence: &Sequence<'_>, sampling: Option<&[SamplingTerms]>) -> f64 {
    let bounded = |x: f64| x.clamp(-VESPO_LARGEST, VESPO_LARGEST);
    let mut log_weight: f64 = sequence.log_ratios().into_iter().map(bounded).sum();
    let weights = sampling.into_iter().flatten().filter_map(|token| token.weight);
    // A masked quotient is 0, which counts as the smallest weight.
    let log_of = |weight: f64| weight.max(VESPO_SMALLEST_WEIGHT).ln().min(VESPO_LARGEST);
    log_weight += weights.map(log_of).sum::<f64>();
    log_weight.clamp(VESPO_SMALLEST_WEIGHT.ln(), VESPO_LARGEST)
}

/// Limit on each log-ratio and on `ln W`.
const VESPO_LARGEST: f64 = 20.0;
/// Lower bound of `W`.
const VESPO_SMALLEST_WEIGHT: f64 = 1e-8;

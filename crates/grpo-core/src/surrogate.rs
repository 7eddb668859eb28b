//! Surrogate objectives of a token, before masks, penalty and reduction.

use serde::{Deserialize, Serialize};

use crate::dual::Dual;
use crate::error::{ConfigError, above_zero, at_least_zero};
use crate::loss_inputs::Sequence;
use crate::terms::{Clipping, SamplingTerms};

/// The surrogate objective of one token, with the ratio `c = π_θ / π_old` and the advantage `A`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Surrogate {
    /// `−min(min(c, δ) A, clip(c, 1 − ε_low, 1 + ε_high) A)` (Shao et al. 2024, equation 3).
    Clipped {
        /// ε_low: for A < 0, a ratio below `1 − ε_low` has no gradient.
        epsilon_low: f64,
        /// ε_high: for A > 0, a ratio above `1 + ε_high` has no gradient.
        epsilon_high: f64,
        /// δ: a ratio above δ is limited to δ and has no gradient. A δ above `1 + ε_high` affects
        /// only A < 0 ("two-sided clipping", INTELLECT-2, 2025); a smaller δ replaces ε_high too.
        delta: Option<f64>,
    },
    /// `−sg[min(c, cap)] A log π_θ` (MiniMax-M1, 2025, "CISPO"): a clipped ratio keeps its gradient.
    Cispo {
        /// Largest ratio, absolute; 5 in the paper.
        cap: f64,
    },
    /// `−(4/τ) σ(τ (c − 1)) A` (Qwen, 2025, "Soft Adaptive Policy Optimization").
    Sapo {
        /// τ for A > 0.
        temperature_positive: f64,
        /// τ for A ≤ 0.
        temperature_negative: f64,
    },
    /// `−sg[φ(W)] A log π_θ` with one weight per sequence, `φ(W) = exp(λ + k ln W − λ W)` ("VESPO",
    /// 2026).
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
    /// `−A log π_θ` (Williams 1992). The braces make serde reject unknown keys.
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

/// The surrogate loss of a token.
pub(crate) struct SurrogateLoss {
    pub(crate) loss: Dual,
    /// See [`crate::TokenTerms`].
    pub(crate) clipping: Option<Clipping>,
    pub(crate) is_capped: Option<bool>,
    pub(crate) vespo_phi: Option<f64>,
}

impl Surrogate {
    /// Returns the loss of each token of a sequence, before masks, penalty and reduction.
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

/// Returns `ln W` of a sequence. The mismatch correction is part of this weight instead of a factor
/// of the loss.
fn vespo_log_weight(sequence: &Sequence<'_>, sampling: Option<&[SamplingTerms]>) -> f64 {
    let bounded = |x: f64| x.clamp(-VESPO_LARGEST, VESPO_LARGEST);
    let mut log_weight: f64 = sequence.log_ratios().into_iter().map(bounded).sum();
    let weights = sampling.into_iter().flatten().filter_map(|token| token.weight);
    // A masked quotient of 0 counts as the smallest weight.
    let log_of = |weight: f64| weight.max(VESPO_SMALLEST_WEIGHT).ln().min(VESPO_LARGEST);
    log_weight += weights.map(log_of).sum::<f64>();
    log_weight.clamp(VESPO_SMALLEST_WEIGHT.ln(), VESPO_LARGEST)
}

/// Bound of a log-ratio and of `ln W`.
const VESPO_LARGEST: f64 = 20.0;
/// Lower bound of `W`.
const VESPO_SMALLEST_WEIGHT: f64 = 1e-8;

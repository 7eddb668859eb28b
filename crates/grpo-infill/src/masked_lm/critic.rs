//! Critic head training.

use crate::MaskedText;
use burn::tensor::activation::log_sigmoid;
use burn::tensor::{Tensor, TensorData};
use grpo_data::{ConfigFault, Ranges};
use grpo_kernels::{gather_rows, indices};
use grpo_model::{Dropout, LanguageModel, TokenBatch, Transformer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Critic training settings.
///
/// The model fills its own blanks and reads the filled text. The critic head learns to predict
/// which characters differ from the original, using binary cross-entropy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct CriticConfig {
    /// Weight of the critic's loss.
    #[schemars(range(min = 0, max = 1000))]
    pub alpha: f64,
    /// Step from which the weight rises linearly from 0.
    pub warmup_from: u64,
    /// Step at which the weight is reached.
    pub warmup_to: u64,
    /// Learn from all characters of the filled text, or from the targets only.
    pub scope: CriticScope,
}

/// The characters from which a critic learns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CriticScope {
    /// All characters, including those ignored by the cross-entropy.
    #[default]
    MaskedAndIgnore,
    /// Targets only.
    MaskedOnly,
}

impl Default for CriticConfig {
    fn default() -> Self {
        Self { alpha: 0.5, warmup_from: 0, warmup_to: 0, scope: CriticScope::default() }
    }
}

impl CriticConfig {
    pub(super) fn check(&self) -> Result<(), ConfigFault> {
        self.check_ranges("critic")?;
        let (from, to) = (self.warmup_from, self.warmup_to);
        if to < from {
            Err(ConfigFault::new(
                "critic.warmup_to",
                format!("critic.warmup_to = {to} is before critic.warmup_from = {from}"),
                "",
            ))
        } else {
            Ok(())
        }
    }

    /// Returns the weight of the critic loss at a zero-based step.
    pub(super) fn weight(&self, step: u64) -> f64 {
        if step >= self.warmup_to {
            return self.alpha;
        }
        let length = (self.warmup_to - self.warmup_from) as f64;
        self.alpha * step.saturating_sub(self.warmup_from) as f64 / length
    }
}

/// Computes the binary cross-entropy of the critic on `filled`, using `texts` as the reference. The
/// loss is summed over the positions in `scope` and has shape `[1]`.
pub(super) fn loss(
    model: &Transformer,
    texts: &[MaskedText],
    filled: &[Vec<u32>],
    scope: CriticScope,
    dropout: &mut Dropout,
) -> Tensor<1> {
    let batch: TokenBatch = filled.iter().map(Vec::as_slice).collect();
    let (mut rows, mut signs) = (Vec::new(), Vec::new());
    for (index, (text, filled)) in texts.iter().zip(filled).enumerate() {
        let first = batch.rows(index).start;
        for (place, &id) in filled.iter().enumerate() {
            if scope == CriticScope::MaskedAndIgnore || text.is_target[place] {
                rows.push(first + place);
                signs.push(if id == text.original[place] { -1.0_f32 } else { 1.0 });
            }
        }
    }
    let hidden = model.hidden(&batch, dropout);
    let hidden = gather_rows(hidden, indices(rows.iter().copied(), &model.device()));
    let logits = model.critic(hidden).expect("a model with a critic");
    let signs = TensorData::new(signs, [rows.len()]);
    // The loss is −log σ(z) for a wrong character, and −log (1 − σ(z)) = −log σ(−z) for a correct
    // one.
    log_sigmoid(logits * Tensor::from_data(signs, &model.device())).sum().neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_part_rises_between_two_steps() {
        let critic = CriticConfig { warmup_from: 10, warmup_to: 30, ..CriticConfig::default() };
        for (step, expected) in [(0, 0.0), (10, 0.0), (20, 0.25), (30, 0.5), (1000, 0.5)] {
            assert_eq!(critic.weight(step), expected, "step {step}");
        }
        assert_eq!(CriticConfig::default().weight(0), 0.5);
    }
}

//! From the losses of tokens to one number.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::HighEntropy;

/// How the losses of tokens are averaged. Every denominator but that of [`Self::MicroBatchTokenMean`] is of
/// the whole optimizer batch, so that the gradient is the same however the batch is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// Mean over the tokens of each sequence, then over sequences (GRPO).
    SequenceMean,
    /// Sum over the tokens of each sequence, mean over sequences (LUSPO).
    SequenceSum,
    /// Mean over all tokens of the optimizer batch (DAPO).
    TokenMean,
    /// Mean over the tokens of each micro-batch, which counts by its share of the sequences (BNPO): how the
    /// batch is split changes the gradient.
    MicroBatchTokenMean,
    /// Sum over tokens, divided by sequences × longest possible completion (Dr. GRPO).
    Constant,
}

/// What a whole optimizer batch holds, known before it is split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchTotals {
    /// Completions.
    pub sequences: usize,
    /// Action tokens.
    pub tokens: usize,
    /// The longest completion that could have been sampled, in tokens.
    pub max_completion_length: usize,
    /// What the high-entropy mask keeps; needed where the loss has one.
    pub high_entropy: Option<HighEntropy>,
}

impl BatchTotals {
    /// Tokens that the entropy bonus is a mean of.
    pub(crate) fn bonus_tokens(&self) -> usize {
        self.high_entropy.map_or(self.tokens, |kept| kept.tokens)
    }
}

/// The weight of each token in the loss: `loss = Σ w · L`.
///
/// # Shapes
/// - mask: `[b, t]`, 1 for action tokens and 0 elsewhere; rows may be a part of the whole batch
/// - result: `[b, t]`, 0 where the mask is; a row without an action weighs nothing
pub(crate) fn token_weights(
    mask: &Tensor<2>,
    reduction: Reduction,
    totals: &BatchTotals,
) -> Tensor<2> {
    let sequences = totals.sequences.max(1) as f64;
    match reduction {
        Reduction::SequenceMean => {
            mask.clone() / mask.clone().sum_dim(1).clamp_min(1.0) / sequences
        }
        Reduction::SequenceSum => mask.clone() / sequences,
        Reduction::TokenMean => mask.clone() / totals.tokens.max(1) as f64,
        Reduction::MicroBatchTokenMean => {
            let [rows, _] = mask.dims();
            let tokens = mask.clone().sum_dim(1).sum_dim(0).clamp_min(1.0); // [1, 1]
            mask.clone() / tokens * (rows as f64 / sequences)
        }
        Reduction::Constant => {
            mask.clone() / (sequences * totals.max_completion_length.max(1) as f64)
        }
    }
}

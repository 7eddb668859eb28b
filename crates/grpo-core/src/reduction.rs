//! From the losses of tokens to one number.

use serde::{Deserialize, Serialize};

/// How the losses of tokens are averaged. Every denominator is of the whole optimizer batch, so that the
/// gradient is the same however the batch is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// Mean over the tokens of each sequence, then over sequences (GRPO).
    SequenceMean,
    /// Mean over all tokens (DAPO).
    TokenMean,
    /// Sum over tokens, divided by sequences × longest possible completion (Dr. GRPO).
    Constant,
}

/// What a whole optimizer batch holds, known before it is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchTotals {
    /// Completions.
    pub sequences: usize,
    /// Action tokens.
    pub tokens: usize,
    /// The longest completion that could have been sampled, in tokens.
    pub max_completion_length: usize,
}

/// The weight of each token in the loss: `loss = Σ w · L`.
///
/// # Shapes
/// - mask: `[b, t]` by rows, true for action tokens; rows may be a part of the whole batch
/// - result: `[b, t]` by rows, 0 where the mask is false
///
/// A row without an action weighs nothing.
pub fn token_weights(mask: &[Vec<bool>], reduction: Reduction, totals: &BatchTotals) -> Vec<f32> {
    let row_weight = |active: usize| {
        let denominator = match reduction {
            Reduction::SequenceMean => active as f64 * totals.sequences as f64,
            Reduction::TokenMean => totals.tokens as f64,
            Reduction::Constant => totals.sequences as f64 * totals.max_completion_length as f64,
        };
        1.0 / denominator.max(1.0)
    };
    mask.iter()
        .flat_map(|row| {
            let weight = row_weight(row.iter().filter(|&&active| active).count()) as f32;
            row.iter().map(move |&active| if active { weight } else { 0.0 })
        })
        .collect()
}

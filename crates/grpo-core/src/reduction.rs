//! Reduction of token losses to a scalar.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::HighEntropy;

/// How token losses are averaged. Except for `micro_batch_token_mean`, denominators are
/// computed over the whole optimizer batch, so the gradient does not depend on how the batch is
/// split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// Averages over the tokens in each sequence, then over sequences (GRPO).
    SequenceMean,
    /// Sums over the tokens in each sequence, then averages over sequences (LUSPO).
    SequenceSum,
    /// Averages over all tokens in the optimizer batch (DAPO).
    TokenMean,
    /// Averages over the tokens in each micro-batch and weights micro-batches by their share of the
    /// sequences (BNPO). The gradient depends on how the batch is split.
    MicroBatchTokenMean,
    /// Sums over all tokens and divides by sequences × maximum completion length (Dr. GRPO).
    Constant,
}

/// Totals for an optimizer batch, computed before it is split into micro-batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchTotals {
    /// Number of completions.
    pub sequences: usize,
    /// Number of action tokens.
    pub tokens: usize,
    /// Maximum completion length in tokens.
    pub max_completion_length: usize,
    /// High-entropy mask. Required if [`crate::LossConfig::high_entropy_share`] is set.
    pub high_entropy: Option<HighEntropy>,
}

impl BatchTotals {
    /// Returns the number of tokens that the entropy bonus is averaged over.
    pub(crate) fn bonus_tokens(&self) -> usize {
        self.high_entropy.map_or(self.tokens, |kept| kept.tokens)
    }
}

impl Reduction {
    /// Returns the weight `w` in `loss = Σ w · L` for each token in a sequence of `length` tokens.
    /// The second argument is the size of the micro-batch.
    pub(crate) fn token_weight(
        self,
        length: usize,
        [micro_sequences, micro_tokens]: [usize; 2],
        totals: &BatchTotals,
    ) -> f64 {
        let at_least_1 = |count: usize| count.max(1) as f64;
        let sequences = at_least_1(totals.sequences);
        match self {
            Self::SequenceMean => 1.0 / at_least_1(length) / sequences,
            Self::SequenceSum => 1.0 / sequences,
            Self::TokenMean => 1.0 / at_least_1(totals.tokens),
            Self::MicroBatchTokenMean => {
                micro_sequences as f64 / sequences / at_least_1(micro_tokens)
            }
            Self::Constant => 1.0 / (sequences * at_least_1(totals.max_completion_length)),
        }
    }
}

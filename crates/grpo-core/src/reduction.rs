//! Reduction of token losses to a number.

use serde::{Deserialize, Serialize};

use crate::HighEntropy;

/// How token losses are averaged. Every denominator except that of [`Self::MicroBatchTokenMean`] is
/// taken over the whole optimizer batch, so the gradient does not depend on how the batch is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// Mean over the tokens of each sequence, then over sequences (GRPO).
    SequenceMean,
    /// Sum over the tokens of each sequence, mean over sequences (LUSPO).
    SequenceSum,
    /// Mean over all tokens of the optimizer batch (DAPO).
    TokenMean,
    /// Mean over the tokens of each micro-batch, weighted by its fraction of the sequences (BNPO).
    /// The gradient depends on how the batch is split.
    MicroBatchTokenMean,
    /// Sum over tokens, divided by sequences × longest possible completion (Dr. GRPO).
    Constant,
}

/// Totals of an optimizer batch, known before it is split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchTotals {
    /// Number of completions.
    pub sequences: usize,
    /// Number of action tokens.
    pub tokens: usize,
    /// Largest possible length of a completion in tokens.
    pub max_completion_length: usize,
    /// The high-entropy mask; required if the loss has one.
    pub high_entropy: Option<HighEntropy>,
}

impl BatchTotals {
    /// Returns the number of tokens in the mean of the entropy bonus.
    pub(crate) fn bonus_tokens(&self) -> usize {
        self.high_entropy.map_or(self.tokens, |kept| kept.tokens)
    }
}

impl Reduction {
    /// Returns the weight of each token in `loss = Σ w · L`, for a sequence of `length` tokens in a
    /// micro-batch of the given size.
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

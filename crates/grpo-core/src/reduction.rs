//! From the losses of tokens to one number.

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

impl Reduction {
    /// The weight of each token of a sequence with `length` tokens, in a micro-batch with so many sequences and tokens:
    /// `loss = Σ w · L`.
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

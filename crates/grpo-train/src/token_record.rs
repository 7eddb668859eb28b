//! What a step computed for each token, for whoever asks what moved the policy and why nothing else did.

use grpo_core::{LossTerms, TokenOutcome, TokenTerms};

/// What a step computed for the tokens of one completion; each list has one entry an action.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenRecord {
    /// `log π_θ` in the first update, which is `log π_old`, in nats.
    pub logprobs: Vec<f64>,
    /// `log π_ref`, in nats.
    pub ref_logprobs: Vec<f64>,
    /// Entropy of the policy's distribution in the first update, in nats.
    pub entropies: Vec<f64>,
    /// ∂loss/∂log π_θ of the token, summed over the updates of the step: below 0 where the step makes the token likelier.
    /// The exact KL and the entropy bonus are functions of whole distributions, and no part of it.
    pub gradients: Vec<f64>,
    /// The same of the surrogate alone, without a KL penalty.
    pub surrogate_gradients: Vec<f64>,
    /// Whether each update moved the token, and if not, why.
    pub outcomes: Vec<Vec<TokenOutcome>>,
}

impl TokenRecord {
    /// The same of a loss that has this weight.
    pub(crate) fn weighted(mut self, weight: f64) -> Self {
        let gradients = self.gradients.iter_mut().chain(&mut self.surrogate_gradients);
        gradients.for_each(|gradient| *gradient *= weight);
        self
    }
}

/// What the updates of a micro-batch computed for the tokens of each completion; `reference` is `log π_ref`, `[n]`.
pub(crate) fn token_records(
    updates: &[LossTerms],
    reference: &[f64],
    is_scored: &[bool],
) -> Vec<TokenRecord> {
    let Some(first) = updates.first() else { return Vec::new() };
    let outcomes: Vec<Vec<TokenOutcome>> =
        updates.iter().map(|update| update.outcomes(is_scored)).collect();
    let mut end = 0;
    let sequences = first.sequences.iter().enumerate();
    sequences
        .map(|(row, sequence)| {
            let actions = end..end + sequence.tokens.len();
            end = actions.end;
            let sum = |of: fn(&TokenTerms) -> f64| -> Vec<f64> {
                let tokens = 0..sequence.tokens.len();
                let each = |update: &LossTerms, t: usize| of(&update.sequences[row].tokens[t]);
                tokens.map(|t| updates.iter().map(|update| each(update, t)).sum()).collect()
            };
            TokenRecord {
                logprobs: sequence.tokens.iter().map(|token| token.logprob).collect(),
                ref_logprobs: reference[actions.clone()].to_vec(),
                entropies: sequence.tokens.iter().filter_map(|token| token.entropy).collect(),
                gradients: sum(|token| token.gradient),
                surrogate_gradients: sum(|token| token.surrogate_gradient),
                outcomes: actions.map(|i| outcomes.iter().map(|update| update[i]).collect()).collect(),
            }
        })
        .collect()
}

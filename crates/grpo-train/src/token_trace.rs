//! What a step computed for each token, for those who ask what moved the policy and why nothing else did.

use grpo_core::{LossTerms, TokenOutcome, TokenTerms};
use grpo_data::TokenTrace;

/// What the updates of a micro-batch computed for the tokens of each completion; `reference` is `log π_ref`, `[n]`, and
/// gradients are those of a loss of this `weight`.
pub(crate) fn token_traces(
    updates: &[LossTerms],
    reference: &[f64],
    is_scored: &[bool],
    weight: f64,
) -> Vec<TokenTrace> {
    let Some(first) = updates.first() else { return Vec::new() };
    let outcomes: Vec<Vec<TokenOutcome>> =
        updates.iter().map(|update| update.outcomes(is_scored)).collect();
    let mut end = 0;
    let trace = |(row, sequence): (usize, &grpo_core::SequenceTerms)| {
        let actions = end..end + sequence.tokens.len();
        end = actions.end;
        let own = |of: fn(&TokenTerms) -> f64| sequence.tokens.iter().map(of).collect();
        let sum = |of: fn(&TokenTerms) -> f64| -> Vec<f64> {
            let each = |update: &LossTerms, t: usize| of(&update.sequences[row].tokens[t]);
            let tokens = 0..sequence.tokens.len();
            let total = |t| updates.iter().map(|update| each(update, t)).sum::<f64>();
            tokens.map(|t| weight * total(t)).collect()
        };
        let word = |i| TokenOutcome::join(outcomes.iter().map(|update| update[i]));
        TokenTrace {
            logprobs: own(|token| token.logprob),
            ref_logprobs: reference[actions.clone()].to_vec(),
            entropies: own(|token| token.entropy.expect("the policy has entropies")),
            gradients: sum(|token| token.gradient),
            surrogate_gradients: sum(|token| token.surrogate_gradient),
            outcomes: actions.map(word).collect(),
        }
    };
    first.sequences.iter().enumerate().map(trace).collect()
}

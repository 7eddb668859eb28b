//! Token traces, which show how each token affected the policy.

use grpo_core::{LossTerms, TokenOutcome, TokenTerms};
use grpo_data::TokenTrace;

/// Returns a trace for each completion that covers all updates. `reference` is `log π_ref`, `[n]`.
/// Gradients are scaled by `weight`, the weight of the GRPO loss.
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
        // What is added here is recorded and explained without further code.
        let numbers = [
            // log π_old, log π_ref and the entropy of the policy in the first update, in nats
            ("logprobs", own(|token| token.logprob)),
            ("ref_logprobs", reference[actions.clone()].to_vec()),
            ("entropies", own(|token| token.entropy.expect("entropies were computed"))),
            // ∂loss/∂log π_θ, summed over all updates: if negative, the step makes the token more
            // probable. The exact KL penalty and the entropy bonus depend on the whole distribution
            // and are not included.
            ("gradients", sum(|token| token.gradient)),
            // the same of the surrogate alone
            ("surrogate_gradients", sum(|token| token.surrogate_gradient)),
        ];
        let outcomes = actions.map(word).collect();
        TokenTrace { numbers: numbers.into_iter().collect(), outcomes }
    };
    first.sequences.iter().enumerate().map(trace).collect()
}

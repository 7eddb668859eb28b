//! Token traces, which show how each token affected the policy.

use grpo_core::{LossTerms, TokenColumn, TokenOutcome, TokenTerms};
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
        let column = |(name, of): TokenColumn| {
            let token = |t: usize| {
                let terms = updates.iter().map(|update| &update.sequences[row].tokens[t]);
                of(&terms.collect::<Vec<_>>(), weight)
            };
            (name, (0..sequence.tokens.len()).map(token).collect())
        };
        let of_reference = ("ref_logprobs", reference[actions.clone()].to_vec());
        let numbers = TokenTerms::COLUMNS.map(column).into_iter().chain([of_reference]).collect();
        let word = |i| TokenOutcome::join(outcomes.iter().map(|update| update[i]));
        let outcomes = actions.map(word).collect();
        TokenTrace { numbers, outcomes }
    };
    first.sequences.iter().enumerate().map(trace).collect()
}

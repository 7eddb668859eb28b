//! The entries of completions in the ledger.

use grpo_data::{Completion, Group};
use grpo_run::LedgerCompletion;

/// The completions of groups, each made of the completion itself.
pub(crate) fn entries(groups: &[Group]) -> Vec<LedgerCompletion> {
    groups.iter().flat_map(Group::completions).map(entry).collect()
}

fn entry(completion: &Completion) -> LedgerCompletion {
    let key = completion.key();
    LedgerCompletion::of(
        u64::from(key.step) + 1,
        [key.prompt, key.sample],
        completion.policy_version(),
        completion.action_ids(),
        completion.sampling_logprobs(),
    )
}

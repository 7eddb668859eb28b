//! The entry of a completion in the ledger.

use grpo_data::Completion;
use grpo_run::LedgerCompletion;

/// Made of the completion itself, wherever it is used.
pub(crate) fn entry(completion: &Completion) -> LedgerCompletion {
    let key = completion.key();
    LedgerCompletion::of(
        u64::from(key.step) + 1,
        [key.prompt, key.sample],
        completion.policy_version(),
        completion.action_ids(),
        completion.sampling_logprobs(),
    )
}

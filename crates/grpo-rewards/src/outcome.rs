//! The reward trait and its input type.

use std::path::Path;

use grpo_data::{Completion, Outcome, PartName, Prompt};
use serde_json::{Map, Value};

use crate::{ExternalCalls, Identity, Votes};

/// Assigns scores to completions.
pub trait Reward: Send + Sync {
    /// Scores a batch of completions and returns their outcomes in the same order. The outcome of a
    /// completion must not depend on the remaining completions: a relative reward
    /// ([`Self::is_relative`]) scores each of them as a group of its own.
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome>;

    /// Scores all completions of one group and returns their outcomes in the same order. By default, each
    /// of them is scored on its own.
    fn score_group(&self, group: &[RewardInput]) -> Vec<Outcome> {
        self.score(group)
    }

    /// Returns whether the outcome of a completion depends on the others of its group, e.g. if it is their
    /// rank. Training and evaluation then call [`Self::score_group`] with whole groups, which are not
    /// divided between processes, and keep no outcomes for later completions.
    fn is_relative(&self) -> bool {
        false
    }

    /// Returns the names of all components that an outcome can contain, in display order. Recorded
    /// completions have one column per component.
    fn parts(&self) -> Vec<PartName>;

    /// Returns the names of [`grpo_data::Scored::terms`] in the same order, for use in metrics.
    fn term_names(&self) -> Vec<PartName> {
        Vec::new()
    }

    /// Checks that completions for a prompt with these fields can be scored. Called before
    /// sampling.
    ///
    /// # Errors
    /// Returns a description of the missing field.
    fn check(&self, _fields: &Map<String, Value>) -> Result<(), String> {
        Ok(())
    }

    /// Returns why no completion for a prompt with these fields can succeed, if that is so.
    fn doubt(&self, _fields: &Map<String, Value>) -> Option<String> {
        None
    }

    /// Returns the reward that extracts answers from completions, if there is one, so that the answers can
    /// vote.
    fn answer(&self) -> Option<&dyn Votes> {
        None
    }

    /// Returns whether identical completions of identical prompts always have the same outcome.
    fn is_deterministic(&self) -> bool {
        true
    }

    /// Redirects the standard error output of external programs to a file in `folder`. By default,
    /// this has no effect.
    fn keep_output_in(&self, _folder: &Path) {}

    /// Returns whether a failure of one completion can fail the whole batch. Such a batch is not
    /// distributed over several processes.
    fn fails_as_a_whole(&self) -> bool {
        false
    }

    /// Returns whether the outcomes depend on [`RewardInput::identity`].
    fn uses_identity(&self) -> bool {
        false
    }

    /// Returns what the task knows about completions with these texts. By default, it knows nothing.
    fn identities(&self, texts: &[&str]) -> Vec<Identity> {
        vec![Identity::Unknown; texts.len()]
    }

    /// Returns whether invalid completions are scored like all others, and have no fixed score.
    fn scores_invalid(&self) -> bool {
        false
    }

    /// Ends all work of external programs shortly afterwards. What is being scored fails. The
    /// reward is not used any more after this.
    fn cancel(&self) {}

    /// Returns the calls of external programs and servers since the last query, or `None` if the
    /// reward has none.
    fn take_calls(&self) -> Option<ExternalCalls> {
        None
    }
}

/// A completion to be scored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RewardInput {
    /// The text of the completion.
    pub text: String,
    /// Additional fields of the prompt, e.g. the correct answer or the post to reply to.
    pub fields: Map<String, Value>,
    /// The text of the prompt.
    pub prompt: String,
    /// The token ids of [`Self::text`].
    pub completion_ids: Vec<u32>,
    /// Index of the prompt in the step.
    pub group: u32,
    /// Index of the completion in the group.
    pub sample: u32,
    /// The training step, starting at 1, or `None` during evaluation.
    pub step: Option<u32>,
    /// What the task knows about the completion.
    pub identity: Identity,
}

impl RewardInput {
    /// Creates the input for a completion of `prompt`, using `decode` to convert ids to text.
    pub fn new(
        prompt: &Prompt,
        completion: &Completion,
        step: Option<u32>,
        decode: &dyn Fn(&[u32]) -> String,
    ) -> Self {
        let (completion_ids, key) = (completion.text_ids(), completion.key());
        Self {
            text: decode(&completion_ids),
            fields: prompt.fields.clone(),
            prompt: prompt.text(decode),
            completion_ids,
            group: key.prompt,
            sample: key.sample,
            step,
            identity: Identity::Unknown,
        }
    }
}

impl From<&str> for RewardInput {
    /// Creates the input for a completion of a prompt without fields.
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }
}

//! The trait of rewards and their input.

use std::path::Path;

use grpo_data::{Completion, Outcome, PartName, Prompt};
use serde_json::{Map, Value};

/// A function from completions to scores.
pub trait Reward: Send + Sync {
    /// Scores a batch: one outcome per completion, in order. The outcome of a completion does not
    /// depend on the others.
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome>;

    /// Returns the names of all components that an outcome can have, in display order. They are
    /// columns of recorded completions.
    fn parts(&self) -> Vec<PartName>;

    /// Returns the names of [`grpo_data::Scored::terms`] in order, for metrics per term.
    fn term_names(&self) -> Vec<PartName> {
        Vec::new()
    }

    /// Checks that completions of a prompt with this record can be scored, before any is sampled.
    ///
    /// # Errors
    /// Returns what the record lacks.
    fn check(&self, _fields: &Map<String, Value>) -> Result<(), String> {
        Ok(())
    }

    /// Whether equal completions of equal prompts always have equal outcomes.
    fn is_deterministic(&self) -> bool {
        true
    }

    /// Keeps what programs of the reward write to standard error in a file in `folder`, if it has programs.
    fn keep_output_in(&self, _folder: &Path) {}
}

/// A completion to score.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RewardInput {
    /// The completion.
    pub text: String,
    /// Other fields of the prompt's record, such as a right answer or the post that is replied to.
    pub fields: Map<String, Value>,
    /// The text of its prompt.
    pub prompt: String,
    /// The ids of [`Self::text`].
    pub completion_ids: Vec<u32>,
    /// Index of the prompt in its step.
    pub group: u32,
    /// Index of the completion in its group.
    pub sample: u32,
    /// The training step, from 1; `None` in an evaluation.
    pub step: Option<u32>,
}

impl RewardInput {
    /// Of a completion of `prompt`, whose texts `decode` makes of ids.
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
            prompt: decode(&prompt.ids),
            completion_ids,
            group: key.prompt,
            sample: key.sample,
            step,
        }
    }
}

impl From<&str> for RewardInput {
    /// A completion of a prompt without fields.
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }
}

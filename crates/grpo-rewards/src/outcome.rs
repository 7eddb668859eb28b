//! The trait of reward functions, and what they see of a completion.

use std::path::Path;

use grpo_data::{Completion, Outcome, PartName, Prompt};
use serde_json::{Map, Value};

/// A function from completions to scores.
pub trait Reward: Send + Sync {
    /// Scores a batch: one outcome for each completion, in their order, the same whether a completion comes
    /// alone or among others.
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome>;

    /// The names of all parts that an outcome of it can have, in the order in which they are shown: the columns of the
    /// files that completions are written to.
    fn parts(&self) -> Vec<PartName>;

    /// Names of [`grpo_data::Scored::terms`], in their order; for metrics of each, where there are several.
    fn term_names(&self) -> Vec<PartName> {
        Vec::new()
    }

    /// Whether completions of a prompt with this record can be scored at all, before any is drawn.
    ///
    /// # Errors
    /// What the record lacks.
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

/// A completion as a reward sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RewardInput {
    /// The completion.
    pub text: String,
    /// What else the record of its prompt says (a right answer, the post that is replied to).
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
    /// Of a prompt that says nothing else.
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }
}

//! The trait of rewards and their input.

use grpo_data::{Outcome, PartName};
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
}

/// A completion to score.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RewardInput {
    /// The completion.
    pub text: String,
    /// Other fields of the prompt's record, such as a right answer or the post that is replied to.
    pub fields: Map<String, Value>,
}

impl From<&str> for RewardInput {
    /// A completion of a prompt without fields.
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), fields: Map::new() }
    }
}

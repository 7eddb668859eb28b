//! The trait of reward functions, and what they see of a completion.

use grpo_data::{Outcome, PartName};
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
}

/// A completion as a reward sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RewardInput {
    /// The completion.
    pub text: String,
    /// What else the record of its prompt says (a right answer, the post that is replied to).
    pub fields: Map<String, Value>,
}

impl From<&str> for RewardInput {
    /// Of a prompt that says nothing else.
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), fields: Map::new() }
    }
}

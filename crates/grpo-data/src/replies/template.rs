//! How a tweet is put to a model.

use serde::{Deserialize, Serialize};

use crate::{DataError, Message, PromptSource};

/// The prompt of a tweet: one turn of a user, with an instruction, the tweet, and a cue. The reply is the assistant's turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplyTemplate {
    /// What stands in front of the tweet.
    pub instruction: String,
}

impl Default for ReplyTemplate {
    fn default() -> Self {
        Self { instruction: "Write an engaging reply to this tweet.".to_owned() }
    }
}

impl ReplyTemplate {
    /// Looks for an instruction that says nothing.
    ///
    /// # Errors
    /// The instruction is empty.
    pub fn check(&self) -> Result<(), DataError> {
        match self.instruction.trim().is_empty() {
            true => Err(DataError::Setting {
                key: "data.replies.instruction".to_owned(),
                found: "empty".to_owned(),
                expected: "a sentence that says what to write",
            }),
            false => Ok(()),
        }
    }

    /// What a reply to `tweet` follows, for the model's chat template.
    pub fn prompt(&self, tweet: &str) -> PromptSource {
        let content = format!("{}\n\n{tweet}\n\nReply:", self.instruction);
        PromptSource::Messages(vec![Message { role: "user".to_owned(), content }])
    }
}

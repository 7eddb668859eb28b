//! The prompt template for tweets.

use grpo_data::{Message, PromptSource};
use serde::{Deserialize, Serialize};

use grpo_data::DataError;

/// The prompt for a tweet: a user message that contains an instruction, the tweet and a cue. The
/// reply is the following assistant message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplyTemplate {
    /// The instruction before the tweet.
    pub instruction: String,
}

impl Default for ReplyTemplate {
    fn default() -> Self {
        Self { instruction: "Write an engaging reply to this tweet.".to_owned() }
    }
}

impl ReplyTemplate {
    /// Validates the instruction and the `enable_thinking` option of the chat template. The replies
    /// in a file contain no reasoning, so training with this option would teach the model not to
    /// think.
    ///
    /// # Errors
    /// Returns an error if the instruction is empty or if `thinking` is enabled.
    pub fn check(&self, thinking: Option<bool>) -> Result<(), DataError> {
        if self.instruction.trim().is_empty() {
            let expected = "a sentence that says what to write";
            return Err(DataError::setting("data.replies.instruction", "empty", expected));
        }
        if thinking == Some(true) {
            let expected = "false or unset with data.replies, because replies contain no thinking";
            return Err(DataError::setting("data.thinking", "true", expected));
        }
        Ok(())
    }

    /// Returns the prompt for a tweet.
    pub fn prompt(&self, tweet: &str) -> PromptSource {
        let content = format!("{}\n\n{tweet}\n\nReply:", self.instruction);
        PromptSource::Messages(vec![Message { role: "user".to_owned(), content }])
    }
}

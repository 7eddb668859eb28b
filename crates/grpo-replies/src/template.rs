//! The prompt template for tweets.

use clap::ValueEnum;
use grpo_data::{Message, PromptSource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use grpo_data::DataError;

/// The prompt for a tweet: a user message that contains an instruction, the tweet and a cue. The
/// reply is the following assistant message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReplyTemplate {
    /// With `[data.replies]`, which may be empty, `file` is a file or folder of [tweets and
    /// replies](#tweets-and-replies); one prompt per tweet. Not empty.
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
        PromptSource::Messages(vec![Message::new("user", content)])
    }
}

/// A prompt template for `grpo sample`. All but the first are baselines for models that were not
/// trained for this task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum PromptVariant {
    /// The template of [data.replies], with which the bundled models were trained
    #[default]
    Trained,
    /// One sentence, without examples
    ZeroShot,
    /// Instructions about length, tone and content
    Engineered,
    /// The same instructions and three examples
    WithExamples,
    /// A helpful assistant
    Helpful,
    /// A friend in a conversation
    Conversational,
    /// An expert who adds a fact
    Technical,
}

/// Instructions of [`PromptVariant::Engineered`].
const ENGINEERED: &str = "Write a reply to the tweet below. Keep it to one or two sentences, refer to something specific in the tweet, and sound friendly. Don't use hashtags, links or emojis. Write only the reply.";

/// Tweets with good replies, for [`PromptVariant::WithExamples`].
const EXAMPLES: [[&str; 2]; 3] = [
    [
        "Day three of the move and I still can't find the kettle.",
        "It is always in the last box. Until then, a saucepan makes perfectly good tea.",
    ],
    [
        "Finished my first half marathon in the rain!",
        "In the rain as well? Congratulations, what was the hardest kilometre?",
    ],
    [
        "Our library now lends out seeds.",
        "What a lovely idea. Do people bring seeds back after the harvest?",
    ],
];

impl PromptVariant {
    /// Returns the prompt for a tweet.
    pub(crate) fn prompt(self, tweet: &str) -> PromptSource {
        let message = |role: &str, content: String| Message::new(role, content);
        let user = |instruction: &str| message("user", format!("{instruction}\n\nTweet: {tweet}"));
        let with_system =
            |system: &str| vec![message("system", system.to_owned()), user("Reply to this tweet.")];
        PromptSource::Messages(match self {
            Self::Trained => return ReplyTemplate::default().prompt(tweet),
            Self::ZeroShot => vec![user("Write a reply to this tweet.")],
            Self::Engineered => vec![user(ENGINEERED)],
            Self::WithExamples => {
                let examples = EXAMPLES
                    .map(|[tweet, reply]| format!("Tweet: {tweet}\nReply: {reply}"))
                    .join("\n\n");
                vec![user(&format!("{ENGINEERED}\n\n{examples}"))]
            }
            Self::Helpful => with_system(
                "You are a helpful assistant who replies to tweets in one or two sentences.",
            ),
            Self::Conversational => with_system(
                "You are chatting with a friend. Reply casually and ask a question if it fits.",
            ),
            Self::Technical => with_system(
                "You are an expert on the subject of the tweet. Reply with one accurate and useful fact.",
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_contains_the_tweet_once() {
        let mut seen = Vec::new();
        for variant in PromptVariant::value_variants() {
            let PromptSource::Messages(messages) = variant.prompt("Snow in May!") else {
                panic!("{variant:?}")
            };
            let all: String = messages.iter().map(|message| message.content.as_str()).collect();
            assert_eq!(all.matches("Snow in May!").count(), 1, "{variant:?}: {all}");
            assert_eq!(messages.last().unwrap().role, "user");
            assert!(!seen.contains(&all), "{variant:?} repeats another variant");
            seen.push(all);
        }
        assert_eq!(seen.len(), 7);
    }
}

//! Everything that one line of prompts can get wrong.

use super::Names;

/// What can be wrong with one line or row of prompts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PromptFault {
    /// The line is no JSON object.
    #[error(
        "the line is not a JSON object: {reason}; write one object a line, such as {{\"prompt\": \"2 + 2 =\"}}"
    )]
    NotAnObject {
        /// What the JSON reader said.
        reason: String,
    },
    /// The line is longer than any prompt.
    #[error("the line is longer than {most} bytes; write one object a line")]
    TooLong {
        /// The most bytes of a line.
        most: usize,
    },
    /// No key says what the prompt is.
    #[error("there is no prompt; give one of the keys {expected} (found {found})")]
    NoPrompt {
        /// The keys that would have done.
        expected: Names,
        /// The keys that are there.
        found: Names,
    },
    /// Two keys that say the same thing.
    #[error("there are both `{first}` and `{second}`; keep one of them")]
    Both {
        /// One key.
        first: &'static str,
        /// The other key.
        second: &'static str,
    },
    /// A key that stands there twice.
    #[error("the key `{key}` is there twice; keep one of them")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// A key that holds something else than it should.
    #[error("`{key}` is {found}; expected {expected}")]
    WrongValue {
        /// The key, with the place in it: `messages[2].content`.
        key: String,
        /// What can stand there.
        expected: &'static str,
        /// What stands there, in words.
        found: String,
    },
}

//! Answers of completions, which can vote.

use serde_json::{Map, Value};

/// Finds the answers of completions, and says which are right ([`Reward::answer`](crate::Reward::answer)).
pub trait Votes {
    /// Returns the answer in a completion in a form that is the same for answers that count as equal, and
    /// whether it is right for a prompt with these fields. Returns `None` without an answer.
    fn vote(&self, text: &str, fields: &Map<String, Value>) -> Option<(String, bool)>;

    /// Returns the right answer as the record has it.
    fn right_answer<'a>(&self, fields: &'a Map<String, Value>) -> Option<&'a Value>;
}

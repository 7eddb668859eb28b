//! Records of other programs, which are recognised by their keys.

use serde_json::{Map, Value};

/// A recognised kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A list of messages under another name than `messages`.
    Conversation(&'static str),
    /// `instruction`, `input` and `output`.
    Alpaca,
    /// A text that is a question, and perhaps a text that answers it.
    Question(&'static str, Option<&'static str>),
}

/// Keys of other programs that contain a conversation.
const CONVERSATIONS: [&str; 5] = ["conversations", "conversation", "dialog", "dialogue", "chat"];

/// Keys of questions, with the keys of their answers. The first one that is there counts.
const QUESTIONS: [(&str, [&str; 2]); 2] =
    [("question", ["answer", "solution"]), ("problem", ["solution", "answer"])];

/// Keys without which a question is not complete.
const CONTEXTS: [&str; 8] =
    ["choices", "options", "context", "passage", "input", "schema", "image", "images"];

fn has(row: &Map<String, Value>, key: &str) -> bool {
    row.get(key).is_some_and(|value| !value.is_null() && *value != "")
}

impl Shape {
    /// Returns the kind of a record without a prompt.
    pub(super) fn of(row: &Map<String, Value>) -> Option<Self> {
        let is_conversation = |key: &&str| row.get(*key).is_some_and(Value::is_array);
        if let Some(key) = CONVERSATIONS.into_iter().find(is_conversation) {
            return Some(Self::Conversation(key));
        }
        if has(row, "instruction") && row.contains_key("output") {
            return Some(Self::Alpaca);
        }
        let (question, answers) = QUESTIONS.into_iter().find(|(question, _)| has(row, question))?;
        let is_complete = !CONTEXTS.iter().any(|key| has(row, key));
        let answer = answers.into_iter().find(|key| row.get(*key).is_some_and(Value::is_string));
        is_complete.then_some(Self::Question(question, answer))
    }

    /// Says which columns are what.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Conversation("conversations") => "`conversations` (ShareGPT)",
            Self::Conversation(_) => "a conversation",
            Self::Alpaca => "`instruction` and `output` (Alpaca)",
            Self::Question("question", Some("answer")) => "`question` and `answer`",
            Self::Question("question", Some(_)) => "`question` and `solution`",
            Self::Question("question", None) => "`question`",
            Self::Question(_, Some("solution")) => "`problem` and `solution`",
            Self::Question(_, Some(_)) => "`problem` and `answer`",
            Self::Question(_, None) => "`problem`",
        }
    }
}

/// The name of verl's records, whose prompt is where ours is.
pub(super) const VERL: &str = "`prompt` and `reward_model.ground_truth` (verl)";

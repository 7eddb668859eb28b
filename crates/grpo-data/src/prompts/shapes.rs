//! Records of other programs, which are recognised by their keys.

use super::foreign::{CONTEXTS, has};
use serde_json::{Map, Value};

/// A recognised kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A list of messages under another name than `messages`.
    Conversation(&'static str),
    /// `instruction`, perhaps with a text that it is about, and the answer.
    Instruction {
        /// Key of the text.
        context: &'static str,
        /// Key of the answer.
        answer: &'static str,
    },
    /// A text that is a question, and perhaps a text that answers it.
    Question(&'static str, Option<&'static str>),
}

/// Keys of other programs that contain a conversation.
const CONVERSATIONS: [&str; 5] = ["conversations", "conversation", "dialog", "dialogue", "chat"];

/// Keys of instructions: what they are about, and the answer.
const INSTRUCTIONS: [[&str; 2]; 2] = [["input", "output"], ["context", "response"]];

/// Keys of questions, with the keys of their answers. The first one that is there counts.
const QUESTIONS: [(&str, [&str; 3]); 3] = [
    ("question", ["answer", "solution", "response"]),
    ("problem", ["solution", "answer", "response"]),
    ("query", ["response", "answer", "solution"]),
];

/// Keys of MBPP, whose `text` is a question.
const MBPP: [&str; 3] = ["text", "code", "test_list"];

/// Keys of the first Alpaca file, whose `text` repeats the others in a template for models of its time.
const ALPACA: [&str; 3] = ["text", "instruction", "output"];

/// Keys that count before `text`.
const BEFORE_TEXT: [&str; 3] = ["prompt", "messages", "prompt_ids"];

impl Shape {
    /// Returns the kind of a record without a prompt.
    pub(super) fn of(row: &Map<String, Value>) -> Option<Self> {
        let is_conversation = |key: &&str| match row.get(*key) {
            Some(Value::String(text)) => text.trim_start().starts_with("[{"),
            value => value.is_some_and(Value::is_array),
        };
        if let Some(key) = CONVERSATIONS.into_iter().find(is_conversation) {
            return Some(Self::Conversation(key));
        }
        let instruction = INSTRUCTIONS.into_iter().find(|[_, answer]| row.contains_key(*answer));
        if let (Some([context, answer]), true) = (instruction, has(row, "instruction")) {
            return Some(Self::Instruction { context, answer });
        }
        if MBPP.iter().all(|key| has(row, key)) {
            return Some(Self::Question("text", Some("code")));
        }
        let (question, answers) = QUESTIONS.into_iter().find(|(question, _)| has(row, question))?;
        let is_complete = !CONTEXTS.iter().any(|key| has(row, key));
        let answer = answers.into_iter().find(|key| row.get(*key).is_some_and(Value::is_string));
        // Of other programs, `query` is perhaps a search.
        let is_known = question != "query" || answer.is_some();
        (is_complete && is_known).then_some(Self::Question(question, answer))
    }

    /// Returns whether a record has its question or instruction in addition to `text`, which is one of our keys.
    pub(super) fn is_under_own_key(row: &Map<String, Value>) -> bool {
        let has_all = |keys: &[&str]| keys.iter().all(|key| has(row, key));
        let is_alpaca = || has_all(&ALPACA) && !BEFORE_TEXT.iter().any(|key| has(row, key));
        has_all(&MBPP) || is_alpaca()
    }

    /// Says which columns are what.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Conversation("conversations") => "`conversations` (ShareGPT)",
            Self::Conversation(_) => "a conversation",
            Self::Instruction { answer: "output", .. } => "`instruction` and `output` (Alpaca)",
            Self::Instruction { .. } => "`instruction` and `response` (Dolly)",
            Self::Question("question", Some("answer")) => "`question` and `answer`",
            Self::Question("question", Some("solution")) => "`question` and `solution`",
            Self::Question("question", Some(_)) => "`question` and `response`",
            Self::Question("question", None) => "`question`",
            Self::Question("problem", Some("solution")) => "`problem` and `solution`",
            Self::Question("problem", Some("answer")) => "`problem` and `answer`",
            Self::Question("problem", Some(_)) => "`problem` and `response`",
            Self::Question("problem", None) => "`problem`",
            Self::Question("query", Some("response")) => "`query` and `response`",
            Self::Question("query", _) => "`query` and its answer",
            Self::Question(..) => "`text` and `code` (MBPP)",
        }
    }
}

/// The name of verl's records, whose prompt is where ours is.
pub(super) const VERL: &str = "`prompt` and `reward_model.ground_truth` (verl)";

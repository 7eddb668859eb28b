//! Tests with reward functions in the style of TRL's documentation.

use serde_json::{Value, json};

use super::{python, sample, totals};
use crate::RewardInput;

/// Two functions, a data set column, and `**kwargs`.
const STANDARD: &str = r#"
import re


def accuracy_reward(completions, answer, **kwargs):
    """Reward function that checks if the completion is the answer of the data set."""
    matches = [re.search(r"\d+", completion) for completion in completions]
    return [None if m is None else float(m.group() == a) for m, a in zip(matches, answer)]


async def length_reward(prompts, completions, completion_ids, trainer_state, **kwargs):
    assert len(prompts) == len(completions) == len(completion_ids)
    assert trainer_state.global_step in (None, 3)
    return [-0.5 * len(ids) for ids in completion_ids]
"#;

#[test]
fn a_file_of_trl_runs_unchanged() {
    let more = json!({"function": ["accuracy_reward", "length_reward"], "weights": [1.0, 0.1]});
    let (_folder, reward) = python(STANDARD, more);
    let row = json!({"answer": "4"});
    let samples = [("4", 1), ("5", 2), ("four", 1)].map(|(text, ids)| RewardInput {
        completion_ids: vec![7; ids],
        step: Some(3),
        ..sample(text, &row)
    });
    let outcomes = reward.score(&samples);
    assert_eq!(totals(&outcomes), [Some(0.95), Some(-0.1), Some(-0.05)]);
    assert_eq!(reward.parts(), ["accuracy_reward", "length_reward"]);
    assert_eq!(reward.term_names(), reward.parts());
    let of = |index: usize| outcomes[index].part("accuracy_reward");
    assert_eq!([of(0), of(1), of(2)], [Some(1.0), Some(0.0), None]);
}

/// With a chat prompt, prompts and completions are lists of messages.
const CONVERSATIONAL: &str = r#"
def in_tags(completions, **kwargs):
    contents = [completion[0]["content"] for completion in completions]
    assert all(completion[0]["role"] == "assistant" for completion in completions)
    return [1.0 if c.startswith("<answer>") else 0.0 for c in contents]


def asks_again(prompts, completions, solution, log_extra=None, log_metric=None, **kwargs):
    assert "prompt" not in kwargs and kwargs["trainer_state"].global_step is None
    questions = [messages[-1]["content"] for messages in prompts]
    contents = [completion[0]["content"] for completion in completions]
    log_extra("question", questions)
    log_metric("asked", 1.0)
    return [float(q in c) if s == "yes" else None for q, c, s in zip(questions, contents, solution)]


def text(completion):
    return len(completion)
"#;

#[test]
fn a_conversation_is_passed_as_messages() {
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why?"},
    ]);
    let rows = ["yes", "no"].map(|solution| json!({"prompt": messages, "solution": solution}));
    let samples = [sample("<answer>Why?", &rows[0]), sample("Because.", &rows[1])];
    let functions = json!({"function": ["in_tags", "asks_again", "text"]});
    let (_folder, reward) = python(CONVERSATIONAL, functions);
    let outcomes = reward.score(&samples);
    assert_eq!(totals(&outcomes), [Some(1.0 + 1.0 + 12.0), Some(8.0)], "{outcomes:?}");
    let info = reward.take_calls().unwrap().info;
    let expected: Value = json!({"question": "Why?"});
    assert!(info.iter().all(|(_, text)| text.parse().ok() == Some(expected.clone())), "{info:?}");
    assert_eq!(info.len(), 2);
}

#[test]
fn a_column_of_log_extra_needs_a_value_for_each_completion() {
    let code = "def reward(completions, log_extra, **kwargs):\n    log_extra('x', [1, 2, 3])\n    return [0.0] * len(completions)\n";
    let (_folder, reward) = python(code, json!({}));
    let outcome = reward.score(&[sample("a", &json!({}))]).remove(0);
    let reason = outcome.failure().unwrap();
    assert!(reason.contains("log_extra('x') has 3 values for 1 completions"), "{reason}");
}

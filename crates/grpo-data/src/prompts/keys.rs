//! Interprets the keys of a record.

use super::foreign::{joined_parts, remedy, unsupported_key};
use crate::Message;
use crate::error::{Names, described};
use serde::Serialize;
use serde_json::{Map, Value};

/// A record of a prompt file.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptRecord {
    /// The line or, in a Parquet file, the row, starting at 1.
    pub line: u64,
    /// The prompt.
    pub prompt: PromptSource,
    /// Whether the record is a `text`: the completion of a prompt that nobody wrote, and that is empty.
    pub is_text: bool,
    /// The completion, if the record contains one.
    pub completion: Option<CompletionSource>,
    /// All remaining keys, e.g. a reference answer for the reward.
    pub fields: Map<String, Value>,
}

/// A prompt before tokenization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum PromptSource {
    /// Text.
    Text(String),
    /// A conversation with at least one message, to be formatted with the chat template.
    Messages(Vec<Message>),
    /// Token ids.
    Ids(Vec<u32>),
}

/// A completion before tokenization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum CompletionSource {
    /// Text. After a conversation, this is the assistant's answer.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
}

const PROMPT_KEYS: [&str; 4] = ["prompt", "messages", "prompt_ids", "text"];

/// `text` also counts as a completion key, because it is the completion of an empty prompt.
const COMPLETION_KEYS: [&str; 3] = ["completion", "completion_ids", "text"];

/// Extracts the prompt and the completion. The remaining keys become fields.
pub(super) fn record(line: u64, mut keys: Map<String, Value>) -> Result<PromptRecord, String> {
    for key in PROMPT_KEYS.into_iter().chain(COMPLETION_KEYS) {
        // Every Parquet row has all columns, so a missing value is represented by null.
        if keys.get(key).is_some_and(Value::is_null) {
            keys.shift_remove(key);
        }
    }
    if is_recorded(&keys) {
        return Err("recorded completions need their column `prompt_ids`, which this file was written without; train the run again, or add the ids".to_owned());
    }
    let Some(prompt_key) = the_one(&keys, PROMPT_KEYS)? else {
        let remedy = remedy(&keys).map_or(String::new(), |remedy| format!("; {remedy}"));
        return Err(format!(
            "the prompt is missing; use one of the keys {} (found {}){remedy}",
            Names(PROMPT_KEYS.map(str::to_owned).to_vec()),
            Names(keys.into_iter().map(|(key, _)| key).collect())
        ));
    };
    let completion_key = the_one(&keys, COMPLETION_KEYS)?;
    let mut take = |key: &str| keys.shift_remove(key).unwrap_or_default();

    let prompt_value = take(prompt_key);
    let (mut prompt, mut completion) = match prompt_key {
        "text" => {
            let text = text(prompt_key, prompt_value, "a text")?;
            (PromptSource::Text(String::new()), Some(CompletionSource::Text(text)))
        }
        "prompt_ids" => (PromptSource::Ids(ids(prompt_key, prompt_value)?), None),
        "messages" => (PromptSource::Messages(messages(prompt_key, prompt_value)?), None),
        _ => (prompt(prompt_value)?, None),
    };
    match completion_key {
        Some(key @ "completion") => completion = Some(self::completion(take(key))?),
        Some(key @ "completion_ids") => {
            completion = Some(CompletionSource::Ids(ids(key, take(key))?))
        }
        _ => {}
    }
    if let ("messages", None, PromptSource::Messages(messages)) =
        (prompt_key, completion_key, &mut prompt)
    {
        completion = last_answer(messages)?.map(CompletionSource::Text);
    }
    // Templates would have to describe them to the model.
    let is_list = |value: &Value| value.as_array().is_some_and(|list| !list.is_empty());
    if matches!(prompt, PromptSource::Messages(_)) && keys.get("tools").is_some_and(is_list) {
        return Err("`tools` is a list, but tools are not supported; describe them in the system message, or remove the record".to_owned());
    }
    Ok(PromptRecord { line, prompt, is_text: prompt_key == "text", completion, fields: keys })
}

/// Returns whether this is a row of recorded completions without the ids of its prompt.
fn is_recorded(keys: &Map<String, Value>) -> bool {
    let has = |key| keys.contains_key(key);
    has("prompt_text") && has("completion_ids") && has("text") && !has("prompt_ids")
}

/// Returns the key in `names` that is present. If a record contains both ids and the corresponding
/// text, which is what `grpo sample` and training runs write, the ids are chosen and the text remains
/// in the fields.
fn the_one<const N: usize>(
    keys: &Map<String, Value>,
    names: [&'static str; N],
) -> Result<Option<&'static str>, String> {
    let is_there = |name: &&'static str| keys.contains_key(*name);
    let ids = ["prompt_ids", "completion_ids"]
        .into_iter()
        .find(|ids| names.contains(ids) && is_there(ids));
    let is_text_of_ids = |name: &&'static str| match *name {
        "prompt" | "messages" => ids == Some("prompt_ids"),
        "completion" => ids == Some("completion_ids"),
        "text" => ["prompt_ids", "completion_ids"].iter().all(|ids| keys.contains_key(*ids)),
        _ => false,
    };
    let mut there = names.into_iter().filter(is_there).filter(|name| !is_text_of_ids(name));
    match (there.next(), there.next()) {
        (Some(first), Some(second)) => {
            Err(format!("both `{first}` and `{second}` are present; keep one of them"))
        }
        (one, _) => Ok(one),
    }
}

fn prompt(value: Value) -> Result<PromptSource, String> {
    let key = "prompt";
    match &value {
        Value::Array(list) if list.first().is_some_and(Value::is_object) => {
            Ok(PromptSource::Messages(messages(key, value)?))
        }
        Value::Array(list) if list.first().is_some_and(Value::is_number) => {
            Ok(PromptSource::Ids(ids(key, value)?))
        }
        _ => {
            let expected = "text, a list of token ids, or a list of messages {role, content} (an empty prompt is \"\" or `prompt_ids`: [])";
            Ok(PromptSource::Text(text(key, value, expected)?))
        }
    }
}

fn completion(value: Value) -> Result<CompletionSource, String> {
    let key = "completion";
    match &value {
        Value::Array(list) if list.first().is_some_and(Value::is_object) => {
            match messages(key, value)?.as_mut_slice() {
                [answer] if answer.role == ASSISTANT => {
                    Ok(CompletionSource::Text(std::mem::take(&mut answer.content)))
                }
                all => Err(format!(
                    "`{key}` contains messages with the roles {}; expected one message with the role `assistant`",
                    Names(all.iter().map(|message| message.role.clone()).collect())
                )),
            }
        }
        Value::Array(list) if list.first().is_some_and(Value::is_number) => {
            Ok(CompletionSource::Ids(ids(key, value)?))
        }
        _ => {
            let expected = "text, a list of token ids, or a list with one assistant message (an empty completion is \"\" or `completion_ids`: [])";
            Ok(CompletionSource::Text(text(key, value, expected)?))
        }
    }
}

const ASSISTANT: &str = "assistant";

/// Removes the last message and returns its content if it is from the assistant.
fn last_answer(messages: &mut Vec<Message>) -> Result<Option<String>, String> {
    let Some(answer) = messages.pop_if(|last| last.role == ASSISTANT) else { return Ok(None) };
    if messages.is_empty() {
        return Err("`messages` has only an assistant message; expected at least one message before it as the prompt".to_owned());
    }
    Ok(Some(answer.content))
}

fn text(key: &str, value: Value, expected: &str) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(wrong(key, expected, &other)),
    }
}

fn ids(key: &str, value: Value) -> Result<Vec<u32>, String> {
    let Value::Array(list) = &value else {
        return Err(wrong(key, "a list of token ids", &value));
    };
    let id = |(at, value): (usize, &Value)| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        let expected = "a token id, which is a whole number from 0 to 4294967295";
        id.ok_or_else(|| wrong(&format!("{key}[{at}]"), expected, value))
    };
    list.iter().enumerate().map(id).collect()
}

fn messages(key: &str, value: Value) -> Result<Vec<Message>, String> {
    match value {
        Value::Array(list) if !list.is_empty() => {
            let message = |(at, value)| message(&format!("{key}[{at}]"), value);
            list.into_iter().enumerate().map(message).collect()
        }
        other => Err(wrong(key, "a list of messages {role, content}", &other)),
    }
}

fn message(key: &str, value: Value) -> Result<Message, String> {
    let Value::Object(mut fields) = value else {
        return Err(wrong(key, "a message {role, content}", &value));
    };
    let mut take = |name: &str| fields.shift_remove(name).unwrap_or_default();
    let (role, content) = (take("role"), take("content"));
    // Every value of a Parquet struct has all fields, so empty fields are ignored. Other fields are
    // rejected because dropping them would lose data silently.
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        _ => false,
    };
    if let Some((name, value)) = fields.iter().find(|(_, value)| !is_empty(value)) {
        return Err(match unsupported_key(name, &role) {
            Some(reason) => format!("`{key}.{name}` is {}; {reason}", described(value)),
            None => {
                let expected = "only `role` and `content` in a message";
                wrong(&format!("{key}.{name}"), expected, value)
            }
        });
    }
    let role = text(&format!("{key}.role"), role, "a text")?;
    let content = match &content {
        Value::Array(parts) if !parts.is_empty() => joined_parts(parts).map_err(|index| {
            let key = format!("{key}.content[{index}]");
            wrong(
                &key,
                "a part {\"type\": \"text\", \"text\": …}, because only text is supported",
                &parts[index],
            )
        })?,
        _ => text(&format!("{key}.content"), content, "a text")?,
    };
    Ok(Message { role, content })
}

fn wrong(key: &str, expected: &str, found: &Value) -> String {
    format!("`{key}` is {}; expected {expected}", described(found))
}

//! Interprets the keys of a record.

use super::foreign::{nested_field, refuse_media, remedy};
use super::format::{RecordFormat, TOOLS};
use super::messages::messages;
use super::shapes::{Shape, VERL};
use super::values::{text, wrong};
use crate::error::Names;
use crate::{ChatOptions, Message};
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
    /// How the record was recognised, if it is one of another program.
    pub shape: Option<&'static str>,
    /// The tools that the model can call.
    pub tools: Vec<Value>,
    /// Whether the answer was found, if [`RecordKeys::answer_extract`](crate::RecordKeys::answer_extract)
    /// says how it is marked. True without this key.
    pub has_answer: bool,
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
    /// The text of a user, who has no messages: formatted as one if the model has a chat template.
    User(String),
    /// Token ids.
    Ids(Vec<u32>),
}

impl PromptRecord {
    /// Returns the options with the tools of this record.
    pub fn chat_options(&self, options: &ChatOptions) -> ChatOptions {
        ChatOptions { tools: self.tools.clone(), ..options.clone() }
    }
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
pub(super) fn record(
    line: u64,
    mut keys: Map<String, Value>,
    format: &RecordFormat,
) -> Result<PromptRecord, String> {
    for key in PROMPT_KEYS.into_iter().chain(COMPLETION_KEYS) {
        // Every Parquet row has all columns, so a missing value is represented by null.
        if keys.get(key).is_some_and(Value::is_null) {
            keys.shift_remove(key);
        }
    }
    let mut found = match named(&keys, format)? {
        Some(found) => found,
        None => {
            refuse_media(&keys)?;
            own(&mut keys)?
        }
    };
    if let Some((path, value)) = format.column("completion", &keys)? {
        found.completion = Some(completion(path, value)?);
    }
    if let Some((_, value)) = format.column("answer", &keys)? {
        keys.insert("answer".to_owned(), value);
    } else if found.shape == Some(VERL)
        && let Some(answer) = nested_field(&keys, GROUND_TRUTH).cloned()
    {
        keys.insert("answer".to_owned(), answer);
    }
    let tools = tools(&keys, format)?;
    let solution = match &found.completion {
        Some(CompletionSource::Text(text)) => Some(text.as_str()),
        _ => None,
    };
    let has_answer = format.set_answer(&mut keys, solution)?;
    let Found { prompt, is_text, completion, shape } = found;
    let of_record = ["system", "system_prompt"]
        .into_iter()
        .filter_map(|key| keys.get(key)?.as_str())
        .find(|text| shape.is_some() && !text.is_empty());
    let system = of_record.or(format.system());
    let prompt = match system {
        Some(_) if is_text => {
            return Err("a `text` is not a conversation, so data.system has no place; name the column of the prompt with data.columns, or remove data.system".to_owned());
        }
        Some(system) => with_system(prompt, system)?,
        None => prompt,
    };
    Ok(PromptRecord { line, prompt, is_text, completion, shape, tools, has_answer, fields: keys })
}

/// What a record contains besides its fields.
struct Found {
    prompt: PromptSource,
    is_text: bool,
    completion: Option<CompletionSource>,
    shape: Option<&'static str>,
}

/// Where verl's records have the answer.
const GROUND_TRUTH: &str = "reward_model.ground_truth";

/// Returns the prompt that the configuration names. The columns remain fields.
fn named(row: &Map<String, Value>, format: &RecordFormat) -> Result<Option<Found>, String> {
    let mut prompt = match format.render(row)? {
        Some(text) => PromptSource::User(text),
        None => match format.column("prompt", row)? {
            Some((path, value)) if value.is_string() => {
                PromptSource::User(text(path, value, "a text")?)
            }
            Some((path, value)) => prompt(path, value)?,
            None => return Ok(None),
        },
    };
    let path = format.keys().columns.get("prompt").map_or("", String::as_str);
    let completion = match (own_completion(row)?, &mut prompt) {
        // The beginning of an answer in `prompt` is part of the prompt.
        (None, PromptSource::Messages(messages)) if !path.ends_with("prompt") => {
            last_answer(path, messages)?.map(CompletionSource::Text)
        }
        (own, _) => own,
    };
    Ok(Some(Found { prompt, is_text: false, completion, shape: None }))
}

/// Returns the completion in a key with a known name, which remains a field.
fn own_completion(row: &Map<String, Value>) -> Result<Option<CompletionSource>, String> {
    let key = the_one(row, ["completion", "completion_ids"])?;
    let found = key.map(|key| match (key, row[key].clone()) {
        ("completion", value) => completion(key, value),
        (_, value) => ids(key, value).map(CompletionSource::Ids),
    });
    found.transpose()
}

/// Returns the prompt in a key with a known name, which is removed.
fn own(keys: &mut Map<String, Value>) -> Result<Found, String> {
    if is_recorded(keys) {
        return Err("recorded completions need their column `prompt_ids`, which this file was written without; train the run again, or add the ids".to_owned());
    }
    let prompt_key = match Shape::is_under_own_key(keys) {
        true => None,
        false => the_one(keys, PROMPT_KEYS)?,
    };
    let Some(prompt_key) = prompt_key else { return recognised(keys) };
    let completion_key = the_one(keys, COMPLETION_KEYS)?;
    let has_answer = keys.get("answer").is_some_and(|answer| !answer.is_null());
    let is_verl =
        prompt_key == "prompt" && !has_answer && nested_field(keys, GROUND_TRUTH).is_some();
    let mut take = |key: &str| keys.shift_remove(key).unwrap_or_default();

    let prompt_value = take(prompt_key);
    let (mut prompt, mut completion) = match prompt_key {
        "text" => {
            let text = text(prompt_key, prompt_value, "a text")?;
            (PromptSource::Text(String::new()), Some(CompletionSource::Text(text)))
        }
        "prompt_ids" => (PromptSource::Ids(ids(prompt_key, prompt_value)?), None),
        "messages" => (PromptSource::Messages(messages(prompt_key, prompt_value)?), None),
        _ => (prompt(prompt_key, prompt_value)?, None),
    };
    match completion_key {
        Some(key @ "completion") => completion = Some(self::completion(key, take(key))?),
        Some(key @ "completion_ids") => {
            completion = Some(CompletionSource::Ids(ids(key, take(key))?))
        }
        _ => {}
    }
    if let ("messages", None, PromptSource::Messages(messages)) =
        (prompt_key, completion_key, &mut prompt)
    {
        completion = last_answer(prompt_key, messages)?.map(CompletionSource::Text);
    }
    let shape = is_verl.then_some(VERL);
    Ok(Found { prompt, is_text: prompt_key == "text", completion, shape })
}

/// Returns the prompt of another program's record. Its columns remain fields.
fn recognised(row: &Map<String, Value>) -> Result<Found, String> {
    let Some(shape) = Shape::of(row) else {
        let remedy = if row.is_empty() { String::new() } else { format!("; {}", remedy(row)) };
        return Err(format!(
            "the prompt is missing; use one of the keys {} (found {}){remedy}",
            Names(PROMPT_KEYS.map(str::to_owned).to_vec()),
            Names(row.keys().cloned().collect())
        ));
    };
    let own = own_completion(row)?;
    let text_of = |key: &str| text(key, row[key].clone(), "a text");
    let (prompt, completion) = match shape {
        Shape::Conversation(key) => {
            let mut messages = messages(key, row[key].clone())?;
            let completion = match own {
                Some(_) => None,
                None => last_answer(key, &mut messages)?,
            };
            (PromptSource::Messages(messages), completion)
        }
        Shape::Instruction { context, answer } => {
            let mut prompt = text_of("instruction")?;
            if row.get(context).is_some_and(|context| !context.is_null() && *context != "") {
                prompt = [prompt, text_of(context)?].join("\n\n");
            }
            let answer = Some(answer).filter(|key| !row[*key].is_null());
            (PromptSource::User(prompt), answer.map(text_of).transpose()?)
        }
        Shape::Question(question, answer) => {
            (PromptSource::User(text_of(question)?), answer.map(text_of).transpose()?)
        }
    };
    let completion = own.or(completion.map(CompletionSource::Text));
    Ok(Found { prompt, is_text: false, completion, shape: Some(shape.name()) })
}

/// Returns the tools of a record: a list, or a JSON list in a string, as Parquet files have it.
fn tools(row: &Map<String, Value>, format: &RecordFormat) -> Result<Vec<Value>, String> {
    let (path, value, is_named) = match format.column(TOOLS, row)? {
        Some((path, value)) => (path, value, true),
        None => (TOOLS, row.get(TOOLS).cloned().unwrap_or_default(), false),
    };
    let expected = "a list of tools, or JSON of one";
    let value = match &value {
        Value::String(text) if text.trim_start().starts_with('[') => {
            let wrong = |_| wrong(path, expected, &value);
            serde_json::from_str(text).map_err(wrong)?
        }
        _ => value,
    };
    match value {
        Value::Array(tools) => Ok(tools),
        Value::Null => Ok(Vec::new()),
        Value::String(text) if text.trim().is_empty() => Ok(Vec::new()),
        // A value of another kind is a field for the reward, unless the configuration says that it is a list.
        other if is_named => Err(wrong(path, expected, &other)),
        _ => Ok(Vec::new()),
    }
}

/// Puts a system message before a prompt that has none.
fn with_system(prompt: PromptSource, system: &str) -> Result<PromptSource, String> {
    let mut messages = match prompt {
        PromptSource::Messages(messages) => messages,
        PromptSource::Text(text) | PromptSource::User(text) => vec![Message::new("user", text)],
        PromptSource::Ids(_) => {
            return Err("the prompt is token ids, before which data.system has no place; remove data.system, or give the prompt as text".to_owned());
        }
    };
    let is_system = |message: &Message| ["system", "developer"].contains(&message.role.as_str());
    if !messages.first().is_some_and(is_system) {
        messages.insert(0, Message::new("system", system));
    }
    Ok(PromptSource::Messages(messages))
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
        (Some(first), Some(second)) if names.contains(&"prompt") => {
            let chosen = if second == "messages" { second } else { first };
            Err(format!(
                "both `{first}` and `{second}` are present; say which is the prompt with data.columns = {{ prompt = \"{chosen}\" }}, or keep one of them"
            ))
        }
        (Some(first), Some(second)) => {
            Err(format!("both `{first}` and `{second}` are present; keep one of them"))
        }
        (one, _) => Ok(one),
    }
}

fn prompt(key: &str, value: Value) -> Result<PromptSource, String> {
    match &value {
        Value::Array(list) if list.first().is_some_and(Value::is_object) => {
            Ok(PromptSource::Messages(messages(key, value)?))
        }
        Value::Array(list) if list.first().is_some_and(Value::is_number) => {
            Ok(PromptSource::Ids(ids(key, value)?))
        }
        _ => {
            let expected = "text, a list of token ids, or a list of messages {role, content} (an empty prompt is \"\" or `prompt_ids`: []); other values need data.template";
            Ok(PromptSource::Text(text(key, value, expected)?))
        }
    }
}

fn completion(key: &str, value: Value) -> Result<CompletionSource, String> {
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
fn last_answer(key: &str, messages: &mut Vec<Message>) -> Result<Option<String>, String> {
    // A call of a tool is not text that can be learned or compared.
    let is_answer = |last: &mut Message| last.role == ASSISTANT && !last.has_tool_calls();
    let Some(answer) = messages.pop_if(is_answer) else { return Ok(None) };
    if messages.is_empty() {
        return Err(format!(
            "`{key}` has only an assistant message; expected at least one message before it as the prompt"
        ));
    }
    Ok(Some(answer.content))
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

//! Interprets conversations, in the formats of OpenAI and of ShareGPT.

use super::foreign::joined_parts;
use super::keys::{text, wrong};
use crate::Message;
use crate::chat::TOOL_CALLS;
use serde_json::{Map, Value};

/// Roles of ShareGPT's `from`, and those of messages.
const SHAREGPT_ROLES: [(&str, &str); 11] = [
    ("human", "user"),
    ("user", "user"),
    ("gpt", "assistant"),
    ("chatgpt", "assistant"),
    ("model", "assistant"),
    ("assistant", "assistant"),
    ("system", "system"),
    ("developer", "developer"),
    ("tool", "tool"),
    ("observation", "tool"),
    ("function_response", "tool"),
];

/// Returns the messages of a conversation: `{role, content}` or ShareGPT's `{from, value}`.
pub(super) fn messages(key: &str, value: Value) -> Result<Vec<Message>, String> {
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
    let is_sharegpt = !fields.contains_key("role") && fields.contains_key("from");
    let names = if is_sharegpt { ["from", "value"] } else { ["role", "content"] };
    let [role, content] = names.map(|name| fields.shift_remove(name).unwrap_or_default());
    let [role_key, content_key] = names.map(|name| format!("{key}.{name}"));
    let role = text(&role_key, role, "a text")?;
    let role = if is_sharegpt { sharegpt_role(&role_key, &role)?.to_owned() } else { role };
    let more = more(fields);
    let content = match &content {
        Value::Null if TOOL_CALLS.iter().any(|calls| more.contains_key(*calls)) => String::new(),
        Value::Array(parts) if !parts.is_empty() => joined_parts(parts).map_err(|index| {
            wrong(
                &format!("{content_key}[{index}]"),
                "a part {\"type\": \"text\", \"text\": …}, because only text is supported",
                &parts[index],
            )
        })?,
        _ => text(&content_key, content, "a text")?,
    };
    Ok(Message { role, content, more })
}

/// Returns the keys that are not empty. Every value of a Parquet struct has all fields.
fn more(fields: Map<String, Value>) -> Map<String, Value> {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        _ => false,
    };
    fields.into_iter().filter(|(_, value)| !is_empty(value)).collect()
}

fn sharegpt_role(key: &str, from: &str) -> Result<&'static str, String> {
    let known = SHAREGPT_ROLES.iter().find(|(name, _)| *name == from);
    known.map(|(_, role)| *role).ok_or_else(|| {
        let expected = "`human`, `gpt`, `system` or `tool`";
        wrong(key, expected, &Value::from(from))
    })
}

//! Records in other programs' formats, and how to convert them.

use serde_json::{Map, Value};

/// Keys of other formats that contain the prompt.
const PROMPTS: [&str; 6] = ["question", "problem", "instruction", "query", "input", "task"];

/// Keys of other formats that contain a conversation.
const CONVERSATIONS: [&str; 5] = ["conversations", "conversation", "dialog", "dialogue", "chat"];

/// Returns how to convert a record without a prompt, if its keys are those of a known format.
pub(super) fn remedy(keys: &Map<String, Value>) -> Option<String> {
    let has = |key: &&str| keys.get(*key).is_some_and(|value| !value.is_null());
    if let Some(key) = CONVERSATIONS.into_iter().find(has) {
        let turns = keys[key].as_array().into_iter().flatten();
        return Some(match turns.into_iter().any(|turn| turn.get("from").is_some()) {
            true => format!(
                "`{key}` has the ShareGPT format; convert it to `messages` with `jq -c '.messages = [.{key}[] | {{role: ({{\"human\": \"user\", \"gpt\": \"assistant\"}}[.from] // .from), content: .value}}] | del(.{key})' OLD > NEW`"
            ),
            false => renamed(key, "messages"),
        });
    }
    if has(&"instruction") && has(&"output") {
        return Some(
            "this is the Alpaca format; convert it with `jq -c '{prompt: ([.instruction, .input // empty | select(. != \"\")] | join(\"\\n\\n\")), completion: .output}' OLD > NEW`"
                .to_owned(),
        );
    }
    PROMPTS.into_iter().find(has).map(|key| renamed(key, "prompt"))
}

fn renamed(key: &str, name: &str) -> String {
    format!("rename `{key}` with `jq -c '.{name} = .{key} | del(.{key})' OLD > NEW`")
}

/// Explains why a key of a message with the role `role` is not supported, if it is one for tools.
pub(super) fn unsupported_key(name: &str, role: &Value) -> Option<&'static str> {
    let is_tool = ["tool", "function", "ipython"].iter().any(|tool| role == tool);
    (is_tool || ["tool_calls", "tool_call_id", "function_call"].contains(&name)).then_some(
        "tools are not supported: a message has only `role` and `content`; write tool calls and results as text in `content`, or remove the conversation",
    )
}

/// Returns the text of a message's `content` that is a list of parts, as in multimodal chats.
///
/// # Errors
/// Returns the index of the first part that is not text.
pub(super) fn joined_parts(parts: &[Value]) -> Result<String, usize> {
    let text = |(index, part): (usize, &Value)| {
        let of_object = || match part.get("type").and_then(Value::as_str) {
            None | Some("text") => part.get("text")?.as_str(),
            Some(_) => None,
        };
        part.as_str().or_else(of_object).map(str::to_owned).ok_or(index)
    };
    parts.iter().enumerate().map(text).collect()
}

/// Returns the text of a message's `content`: a string, or the joined parts of a list of texts.
pub fn message_text(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) if !parts.is_empty() => joined_parts(parts).ok(),
        _ => None,
    }
}

/// Returns the value at `path`: the key of this name or, if there is none, the value of a nested
/// object, with the keys separated by dots (`reward_model.ground_truth`).
pub fn nested_field<'a>(fields: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    if let Some(value) = fields.get(path) {
        return Some(value);
    }
    path.match_indices('.').find_map(|(dot, _)| {
        let inner = fields.get(&path[..dot])?.as_object()?;
        nested_field(inner, &path[dot + 1..])
    })
}

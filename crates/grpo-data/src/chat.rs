//! Conversations as text, formatted by the chat template of a model.

mod environment;
mod namespaces;

use crate::DataError;
use crate::bounded::{PARSING, RENDERING, bounded};
use crate::model_json::ModelJson;
use crate::origin::read_text_if_there;
use environment::{environment, without_generation_tags};
use minijinja::Environment;
use minijinja::value::Value;
use namespaces::used_as_value;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// The role: `system`, `user`, `assistant` or another role of the template.
    pub role: String,
    /// The content.
    pub content: String,
}

/// Options of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatOptions {
    /// Whether to append the generation prompt.
    pub add_generation_prompt: bool,
    /// The option of that name in templates such as Qwen3's; `None` leaves it undefined.
    pub enable_thinking: Option<bool>,
}

impl ChatOptions {
    /// Options to generate an answer.
    pub fn for_answer(enable_thinking: Option<bool>) -> Self {
        Self { add_generation_prompt: true, enable_thinking }
    }
}

/// The Jinja chat template of a model, rendered as in transformers.
///
/// Length, work, recursion and nesting are limited, so a hostile template results in an error. One
/// that needs more than 6 MiB for a conversation ends the process, in programs with the allocator of `grpo-process`.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    special_tokens: BTreeMap<&'static str, String>,
    path: PathBuf,
}

/// Tokens of `tokenizer_config.json` that transformers passes to templates.
const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Largest template in bytes; the longest known ones have 30,000.
const LONGEST: usize = 256 << 10;

/// Name of the only template of an environment.
const NAME: &str = "chat";

impl ChatTemplate {
    /// Loads the template of the model in `folder`: `chat_template.jinja`, else `chat_template` in
    /// `tokenizer_config.json` (of several, the one named `default`), else none.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, if `tokenizer_config.json` is malformed, or if
    /// the template does not parse.
    pub fn from_folder(folder: &Path) -> Result<Option<Self>, DataError> {
        let config = ModelJson::read(folder, "tokenizer_config.json")?;
        let file = folder.join("chat_template.jinja");
        let (source, path) = match read_text_if_there(&file)? {
            Some(text) => (text, file),
            None => match named_default(&config)? {
                Some(text) => (text.to_owned(), config.path.clone()),
                None => return Ok(None),
            },
        };
        let mut special_tokens = BTreeMap::new();
        for key in SPECIAL_TOKENS {
            if let Some(token) = config.token(key)? {
                special_tokens.insert(key, token.to_owned());
            }
        }
        let mut environment = environment();
        if source.len() > LONGEST {
            return Err(DataError::Invalid(format!(
                "the chat template in `{}` has {} bytes; expected at most {LONGEST}",
                path.display(),
                source.len()
            )));
        }
        // The library counts lines in 16 bits.
        if source.lines().count() > usize::from(u16::MAX) {
            return Err(DataError::Invalid(format!(
                "the chat template in `{}` has more than {} lines",
                path.display(),
                u16::MAX
            )));
        }
        if let Some(name) = used_as_value(&source) {
            return Err(DataError::Invalid(format!(
                "the chat template in `{}` uses the namespace `{name}` as a value, which could contain itself; use only its attributes",
                path.display()
            )));
        }
        let source = without_generation_tags(&source);
        let added = bounded(&path, PARSING, || environment.add_template_owned(NAME, source))?;
        if let Err(error) = added {
            let (line, reason) = line_and_reason(&error);
            return Err(DataError::Invalid(format!(
                "line {line} of the chat template in `{}` does not parse: {reason}; correct the template",
                path.display()
            )));
        }
        Ok(Some(Self { environment, special_tokens, path }))
    }

    /// Renders a conversation.
    ///
    /// Templates that contain the date (`strftime_now`) render differently on another day.
    ///
    /// # Errors
    /// Returns an error if the template rejects the messages (`raise_exception`), fails, or exceeds
    /// its limits.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String, DataError> {
        let mut context: BTreeMap<&str, Value> =
            self.special_tokens.iter().map(|(key, token)| (*key, token.into())).collect();
        context.insert("messages", messages.iter().map(value_of).collect());
        context.insert("add_generation_prompt", options.add_generation_prompt.into());
        // Defined as None if not given, as in transformers.
        context.insert("tools", ().into());
        context.insert("documents", ().into());
        if let Some(thinking) = options.enable_thinking {
            context.insert("enable_thinking", thinking.into());
        }
        let template = self.environment.get_template(NAME);
        let context = Value::from_pairs(context);
        let rendered = bounded(&self.path, RENDERING, || {
            template.and_then(|template| template.render(context))
        })?;
        rendered.map_err(|error| {
            let (line, reason) = line_and_reason(&error);
            DataError::TemplateFailed { path: self.path.clone(), line, reason }
        })
    }
}

/// Keys in the order that `tojson` writes.
fn value_of(message: &Message) -> Value {
    Value::from_pairs([("role", &message.role), ("content", &message.content)])
}

/// Returns `chat_template`: a string, or one of a list of named templates.
fn named_default(config: &ModelJson) -> Result<Option<&str>, DataError> {
    let Some(value) = config.get("chat_template") else { return Ok(None) };
    if let Some(text) = value.as_str() {
        return Ok(Some(text));
    }
    let mut entries = value.as_array().into_iter().flatten();
    let default = entries.find(|entry| entry.get("name").is_some_and(|name| name == "default"));
    match default.and_then(|entry| entry.get("template")?.as_str()) {
        Some(text) => Ok(Some(text)),
        None => {
            let expected = "a string, or a list of {name, template} including one named `default`";
            Err(config.wrong("chat_template", expected, value))
        }
    }
}

/// Returns the beginning of the text that a template passed to `raise_exception`, on one line.
fn one_line(detail: &str) -> String {
    detail.chars().take(300).map(|c| if c == '\n' { ' ' } else { c }).collect()
}

/// Returns the line, from 1, and minijinja's message without the position.
fn line_and_reason(error: &minijinja::Error) -> (u64, String) {
    let reason = match error.detail() {
        Some(detail) => format!("{}: {}", error.kind(), one_line(detail)),
        None => error.kind().to_string(),
    };
    (error.line().unwrap_or(1) as u64, reason)
}

//! Conversations as the text that a chat model was trained on.

mod environment;
mod namespaces;

use crate::DataError;
use crate::bounded::bounded;
use crate::model_json::ModelJson;
use crate::origin::read_text_if_there;
use environment::{environment, without_generation_tags};
use minijinja::Environment;
use minijinja::value::Value;
use namespaces::used_as_value;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Who says it: `system`, `user`, `assistant` or whatever the template knows.
    pub role: String,
    /// What is said.
    pub content: String,
}

/// What a template is told besides the messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatOptions {
    /// Ends the text with what stands in front of an answer.
    pub add_generation_prompt: bool,
    /// The switch of that name in Qwen3's and other templates; `None` leaves it undefined.
    pub enable_thinking: Option<bool>,
}

impl ChatOptions {
    /// What a model is given to answer.
    pub fn for_answer(enable_thinking: Option<bool>) -> Self {
        Self { add_generation_prompt: true, enable_thinking }
    }
}

/// A model's own Jinja template for conversations, rendered as transformers renders it.
///
/// Its length, work, recursion and nesting are limited, so that a hostile template ends in an error. One that takes more than
/// 512 MiB ends the process, in programs with the allocator of `grpo-process`.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    special_tokens: BTreeMap<&'static str, String>,
    path: PathBuf,
}

/// What transformers hands to templates out of `tokenizer_config.json`.
const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Bytes of the longest template; the longest known ones have 30,000.
const LONGEST: usize = 256 << 10;

/// The only template of an environment.
const NAME: &str = "chat";

impl ChatTemplate {
    /// The template of the model in `folder`: `chat_template.jinja`, else `chat_template` in
    /// `tokenizer_config.json` (of several the one named `default`), else none.
    ///
    /// # Errors
    /// A file cannot be read, `tokenizer_config.json` is malformed, or the template does not parse.
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
        if let Some(name) = used_as_value(&source) {
            return Err(DataError::Invalid(format!(
                "the chat template in `{}` uses the namespace `{name}` as a value, which could contain itself; use its attributes only",
                path.display()
            )));
        }
        let source = without_generation_tags(&source);
        let added = bounded(&path, || environment.add_template_owned(NAME, source))?;
        if let Err(error) = added {
            let (line, reason) = line_and_reason(&error);
            return Err(DataError::Invalid(format!(
                "line {line} of the chat template in `{}` does not parse: {reason}; correct the template",
                path.display()
            )));
        }
        Ok(Some(Self { environment, special_tokens, path }))
    }

    /// The text of a conversation.
    ///
    /// Templates that write today's date (`strftime_now`) give another text tomorrow.
    ///
    /// # Errors
    /// The template refuses the messages (`raise_exception`), fails on them, or does not come to an
    /// end within its limits.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String, DataError> {
        let mut context: BTreeMap<&str, Value> =
            self.special_tokens.iter().map(|(key, token)| (*key, token.into())).collect();
        context.insert("messages", messages.iter().map(value_of).collect());
        context.insert("add_generation_prompt", options.add_generation_prompt.into());
        // Defined and None, as transformers has them where nobody gives any.
        context.insert("tools", ().into());
        context.insert("documents", ().into());
        if let Some(thinking) = options.enable_thinking {
            context.insert("enable_thinking", thinking.into());
        }
        let template = self.environment.get_template(NAME);
        let context = Value::from_pairs(context);
        let rendered =
            bounded(&self.path, || template.and_then(|template| template.render(context)))?;
        rendered.map_err(|error| {
            let (line, reason) = line_and_reason(&error);
            DataError::TemplateFailed { path: self.path.clone(), line, reason }
        })
    }
}

/// In the order that `tojson` shows.
fn value_of(message: &Message) -> Value {
    Value::from_pairs([("role", &message.role), ("content", &message.content)])
}

/// `chat_template`: a string, or a list of templates with names.
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
            let expected =
                "a string, or a list of {name, template} with one that is named `default`";
            Err(config.wrong("chat_template", expected, value))
        }
    }
}

/// The beginning of what a template gives to `raise_exception`, which can be of any length.
fn one_line(detail: &str) -> String {
    detail.chars().take(300).map(|c| if c == '\n' { ' ' } else { c }).collect()
}

/// The line, from 1, and what minijinja says without its own naming of the place.
fn line_and_reason(error: &minijinja::Error) -> (u64, String) {
    let reason = match error.detail() {
        Some(detail) => format!("{}: {}", error.kind(), one_line(detail)),
        None => error.kind().to_string(),
    };
    (error.line().unwrap_or(1) as u64, reason)
}

//! Formats conversations with a model's chat template.

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

/// A message in a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// The role: `system`, `user`, `assistant` or another role that the template supports.
    pub role: String,
    /// The message text.
    pub content: String,
}

/// Variables passed to a chat template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatOptions {
    /// Whether to append the generation prompt, i.e. the header of the assistant's next message.
    pub add_generation_prompt: bool,
    /// The `enable_thinking` variable of templates such as Qwen3's. `None` leaves it undefined.
    pub enable_thinking: Option<bool>,
}

impl ChatOptions {
    /// Returns the options for prompting the model for an answer.
    pub fn for_answer(enable_thinking: Option<bool>) -> Self {
        Self { add_generation_prompt: true, enable_thinking }
    }
}

/// A model's Jinja chat template, rendered the same way as in `transformers`.
///
/// Template size, instructions, recursion and nesting are limited, so a malicious template results
/// in an error. In programs that use the `grpo-process` allocator, a conversation that needs more
/// than 6 MiB of memory to render ends the process.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    special_tokens: BTreeMap<&'static str, String>,
    path: PathBuf,
}

/// Special tokens in `tokenizer_config.json` that `transformers` passes to templates.
const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Maximum template size in bytes. The largest known templates have about 30,000.
const LONGEST: usize = 256 << 10;

/// The name under which the template is registered in its environment.
const NAME: &str = "chat";

impl ChatTemplate {
    /// Loads the chat template of the model in `folder`.
    ///
    /// The template is read from `chat_template.jinja` or, if this file does not exist, from the
    /// `chat_template` key in `tokenizer_config.json`. If that key contains several named
    /// templates, the one named `default` is used. Returns `None` if the model has no template.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, if `tokenizer_config.json` is malformed, or if
    /// the template cannot be parsed.
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
    /// The output of templates that insert the current date (`strftime_now`) changes from day to
    /// day.
    ///
    /// # Errors
    /// Returns an error if the template rejects the messages (`raise_exception`), fails, or exceeds
    /// a limit.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String, DataError> {
        let mut context: BTreeMap<&str, Value> =
            self.special_tokens.iter().map(|(key, token)| (*key, token.into())).collect();
        context.insert("messages", messages.iter().map(value_of).collect());
        context.insert("add_generation_prompt", options.add_generation_prompt.into());
        // `transformers` defines these as `None` if they are not passed.
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

/// Converts a message to a template value. The order of the keys is the one that `tojson` prints.
fn value_of(message: &Message) -> Value {
    Value::from_pairs([("role", &message.role), ("content", &message.content)])
}

/// Returns `chat_template`, which is either a string or a list of named templates.
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

/// Shortens a message that a template passed to `raise_exception` and joins its lines.
fn one_line(detail: &str) -> String {
    detail.chars().take(300).map(|c| if c == '\n' { ' ' } else { c }).collect()
}

/// Returns the line number, starting at 1, and the error message of minijinja without its position.
fn line_and_reason(error: &minijinja::Error) -> (u64, String) {
    let reason = match error.detail() {
        Some(detail) => format!("{}: {}", error.kind(), one_line(detail)),
        None => error.kind().to_string(),
    };
    let reason = reason.replace("cannot convert number to usize", "the number is out of range");
    (error.line().unwrap_or(1) as u64, reason)
}

//! Formats conversations with a model's chat template.

use crate::DataError;
use crate::bounded::{PARSING, RENDERING, bounded};
use crate::model_json::ModelJson;
use crate::origin::read_text_if_there;
use grpo_jinja::Template;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
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
/// [`grpo_jinja`] says what is not supported. Template size, evaluated expressions, recursion and
/// nesting are limited, so a malicious template results in an error. In programs that use the
/// `grpo-runtime` allocator, a conversation that needs more than 16 MiB of memory to render ends the
/// process.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    template: Template,
    special_tokens: BTreeMap<&'static str, String>,
    path: PathBuf,
    has_thinking_switch: bool,
    mentions_thinking: bool,
}

/// Special tokens in `tokenizer_config.json` that `transformers` passes to templates.
const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Maximum template size in bytes. The largest known templates have about 30,000.
const LONGEST: usize = 256 << 10;

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
        if source.len() > LONGEST {
            return Err(DataError::Invalid(format!(
                "the chat template in `{}` has {} bytes; expected at most {LONGEST}",
                path.display(),
                source.len()
            )));
        }
        let has_thinking_switch = source.contains("enable_thinking");
        let mentions_thinking = source.contains("think");
        let parsed = bounded(&path, PARSING, || Template::parse(&source))?;
        let template = parsed.map_err(|failure| {
            DataError::Invalid(format!(
                "line {} of the chat template in `{}` does not parse: {}; correct the template",
                failure.line,
                path.display(),
                failure.reason
            ))
        })?;
        Ok(Some(Self { template, special_tokens, path, has_thinking_switch, mentions_thinking }))
    }

    /// Returns whether [`ChatOptions::enable_thinking`] can change what the template renders.
    pub fn has_thinking_switch(&self) -> bool {
        self.has_thinking_switch
    }

    /// Returns whether the template says anything about thinking. The templates of models that think
    /// without a switch do.
    pub fn mentions_thinking(&self) -> bool {
        self.mentions_thinking
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
        let mut variables = vec![
            ("messages", messages.iter().map(value_of).collect()),
            ("add_generation_prompt", Value::Bool(options.add_generation_prompt)),
            // `transformers` defines these as `None` if they are not passed.
            ("tools", Value::Null),
            ("documents", Value::Null),
        ];
        variables.extend(options.enable_thinking.map(|it| ("enable_thinking", Value::Bool(it))));
        let tokens = self.special_tokens.iter();
        variables.extend(tokens.map(|(key, token)| (*key, Value::String(token.clone()))));
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value));
        bounded(&self.path, RENDERING, || self.template.render(variables))?.map_err(|failure| {
            let (line, reason) = (failure.line, failure.reason);
            DataError::TemplateFailed { path: self.path.clone(), line, reason }
        })
    }
}

/// Converts a message to a template value. The order of the keys is the one that `tojson` prints.
fn value_of(message: &Message) -> Value {
    json!({ "role": message.role, "content": message.content })
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

//! Formats conversations with a model's chat template.

use crate::DataError;
use crate::bounded::{PARSING, RENDERING, bounded, chat_template_in};
use crate::model_json::ModelJson;
use crate::origin::read_text_if_there;
use grpo_jinja::Template;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A message in a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The role: `system`, `user`, `assistant` or another role that the template supports.
    pub role: String,
    /// The message text. Empty if an assistant's message has only tool calls.
    pub content: String,
    /// All other keys that are not empty, such as `tool_calls` and `name`, which templates can read.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Message {
    /// Creates a message without further keys.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), more: Map::new() }
    }

    /// Returns whether the message calls tools.
    pub fn has_tool_calls(&self) -> bool {
        TOOL_CALLS.iter().any(|calls| self.more.contains_key(*calls))
    }
}

/// Keys of a message with calls of tools, which a template must not leave out.
pub(crate) const TOOL_CALLS: [&str; 2] = ["tool_calls", "function_call"];

/// Variables passed to a chat template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatOptions {
    /// Whether to append the generation prompt, i.e. the header of the assistant's next message.
    pub add_generation_prompt: bool,
    /// The `enable_thinking` variable of templates such as Qwen3's. `None` leaves it undefined.
    pub enable_thinking: Option<bool>,
    /// The `tools` variable: a list of the functions that the model can call, or empty.
    pub tools: Vec<Value>,
}

impl ChatOptions {
    /// Returns the options for prompting the model for an answer.
    pub fn for_answer(enable_thinking: Option<bool>) -> Self {
        Self { add_generation_prompt: true, enable_thinking, tools: Vec::new() }
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
    /// Those of `tools` and [`TOOL_CALLS`] that the template reads.
    tool_variables: Vec<&'static str>,
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
        let mut tool_variables = vec!["tools"];
        tool_variables.extend(TOOL_CALLS);
        tool_variables.retain(|name| source.contains(name));
        let parsed = bounded(&chat_template_in(&path), PARSING, || Template::parse(&source))?;
        let template = parsed.map_err(|failure| {
            DataError::Invalid(format!(
                "line {} of the chat template in `{}` does not parse: {}; correct the template",
                failure.line,
                path.display(),
                failure.reason
            ))
        })?;
        Ok(Some(Self {
            template,
            special_tokens,
            path,
            has_thinking_switch,
            mentions_thinking,
            tool_variables,
        }))
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

    /// Returns an error if the template would leave out tools or their calls without a word.
    fn refuse_lost_tools(
        &self,
        messages: &[Message],
        options: &ChatOptions,
    ) -> Result<(), DataError> {
        let is_lost = |name: &str| !self.tool_variables.contains(&name);
        let of_messages = messages.iter().flat_map(|message| message.more.keys());
        let lost = match !options.tools.is_empty() && is_lost("tools") {
            true => Some("tools"),
            false => TOOL_CALLS
                .into_iter()
                .find(|call| is_lost(call) && of_messages.clone().any(|key| key == call)),
        };
        lost.map_or(Ok(()), |lost| {
            Err(DataError::Invalid(format!(
                "{} does not use `{lost}`, so the model would not see them; write them as text in `content`, remove the record, or choose a model with tools",
                chat_template_in(&self.path)
            )))
        })
    }

    /// Renders a conversation.
    ///
    /// The output of templates that insert the current date (`strftime_now`) changes from day to
    /// day.
    ///
    /// # Errors
    /// Returns an error if the template rejects the messages (`raise_exception`), fails, or exceeds
    /// a limit, and for tools or their calls if the template leaves them out.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String, DataError> {
        self.refuse_lost_tools(messages, options)?;
        let tools = Some(&options.tools).filter(|tools| !tools.is_empty());
        let mut variables = vec![
            ("messages", messages.iter().map(value_of).collect()),
            ("add_generation_prompt", Value::Bool(options.add_generation_prompt)),
            // `transformers` defines these as `None` if they are not passed.
            ("tools", tools.map_or(Value::Null, |tools| tools.clone().into())),
            ("documents", Value::Null),
        ];
        variables.extend(options.enable_thinking.map(|it| ("enable_thinking", Value::Bool(it))));
        let tokens = self.special_tokens.iter();
        variables.extend(tokens.map(|(key, token)| (*key, Value::String(token.clone()))));
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value));
        bounded(&chat_template_in(&self.path), RENDERING, || self.template.render(variables))?
            .map_err(|failure| {
                let (line, reason) = (failure.line, failure.reason);
                DataError::TemplateFailed { path: self.path.clone(), line, reason }
            })
    }
}

/// Converts a message to a template value. The order of the keys is the one that `tojson` prints.
fn value_of(message: &Message) -> Value {
    let Message { role, content, more } = message;
    let content = if message.has_tool_calls() && content.is_empty() {
        Value::Null
    } else {
        content.as_str().into()
    };
    let own = [("role", role.as_str().into()), ("content", content)];
    let own = own.map(|(key, value)| (key.to_owned(), value)).into_iter();
    own.chain(more.clone()).collect::<Map<String, Value>>().into()
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

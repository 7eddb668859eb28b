//! What the columns of a record are.

use super::foreign::nested_field;
use crate::bounded::{PARSING, RENDERING, bounded};
use crate::error::{Names, described};
use crate::{AnswerForm, ConfigFault, DataError};
use grpo_jinja::Template;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Keys of `[data]` that say what the columns of a record are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordKeys {
    /// Columns of other names, as `{ prompt = "question", answer = "reward_model.ground_truth" }`.
    /// The names are `prompt`, `completion`, `answer` and `tools`; dots separate the keys of nested
    /// objects. Text is a user's message if the model has a chat template.
    /// Default: the [recognised columns](#files-of-records).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-basic" = true))]
    pub columns: BTreeMap<String, String>,
    /// System message before conversations without one. Text becomes the user's message after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-basic" = true))]
    pub system: Option<String>,
    /// Jinja template of the prompt over the columns of a record, as `"{{ question }}\nThink step by
    /// step."` The line break behind a tag is dropped, as in chat templates. It is a user's message if
    /// the model has a chat template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// How the column `answer` or, if there is none, the worked solution marks the answer: `"####"`
    /// (GSM8K), `"boxed"` (the last `\boxed{}`, MATH), or a regular expression with the answer in its
    /// first group, whose last match counts. Default: all of `answer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-basic" = true))]
    pub answer_extract: Option<String>,
}

/// Names in [`RecordKeys::columns`].
const NAMES: [&str; 4] = ["prompt", "completion", "answer", TOOLS];

/// The name of the column with the tools of a record, in files as well.
pub(super) const TOOLS: &str = "tools";

/// Names in a message for errors of `data.template`.
const TEMPLATE: &str = "data.template";

/// What the columns of a record are. The default recognises them by their names.
#[derive(Clone, Debug, Default)]
pub struct RecordFormat {
    keys: RecordKeys,
    template: Option<Template>,
    answer: Option<AnswerForm>,
}

impl RecordFormat {
    /// Checks the keys.
    ///
    /// # Errors
    /// Returns an error for an unknown or empty column name, two prompts, and a template or an
    /// expression that does not parse. Its key is relative to `[data]`.
    pub fn new(keys: RecordKeys) -> Result<Self, ConfigFault> {
        for (name, path) in &keys.columns {
            let key = format!("columns.{name}");
            if !NAMES.contains(&name.as_str()) {
                let expected = Names(NAMES.map(str::to_owned).to_vec());
                let fault = format!("unknown name `{name}` in data.columns; expected {expected}");
                return Err(ConfigFault::from_sentence(key, fault));
            }
            if path.is_empty() {
                let fault = format!("data.{key} is empty; expected the name of a column");
                return Err(ConfigFault::from_sentence(key, fault));
            }
        }
        if keys.template.is_some() && keys.columns.contains_key("prompt") {
            let fault = "data.template and data.columns.prompt both say what the prompt is; remove columns.prompt and name the column in the template";
            return Err(ConfigFault::from_sentence("template", fault));
        }
        let template = keys.template.as_deref().map(parsed).transpose()?;
        let answer = keys.answer_extract.as_deref().map(|text| {
            AnswerForm::parse_marked(text).map_err(|fault| {
                ConfigFault::from_sentence(
                    "answer_extract",
                    format!("data.answer_extract = {fault}"),
                )
            })
        });
        Ok(Self { template, answer: answer.transpose()?, keys })
    }

    /// Returns the keys.
    pub fn keys(&self) -> &RecordKeys {
        &self.keys
    }

    /// Returns how the answer is marked, if it is.
    pub fn answer(&self) -> Option<&AnswerForm> {
        self.answer.as_ref()
    }

    /// Returns the system message.
    pub(super) fn system(&self) -> Option<&str> {
        self.keys.system.as_deref()
    }

    /// Returns the path and the value of a column that the configuration names.
    pub(super) fn column(
        &self,
        name: &str,
        row: &Map<String, Value>,
    ) -> Result<Option<(&str, Value)>, String> {
        let Some(path) = self.keys.columns.get(name) else { return Ok(None) };
        match nested_field(row, path) {
            // Of some records of a Parquet file, the tools are null.
            Some(value) if !value.is_null() || name == TOOLS => Ok(Some((path, value.clone()))),
            Some(_) => Err(format!(
                "the column `{path}` of data.columns.{name} is null; remove the record, or name another column"
            )),
            None => Err(format!(
                "the column `{path}` of data.columns.{name} is missing; the record has {}",
                Names(row.keys().cloned().collect())
            )),
        }
    }

    /// Renders the template of the prompt, if there is one.
    pub(super) fn render(&self, row: &Map<String, Value>) -> Result<Option<String>, String> {
        let Some(template) = &self.template else { return Ok(None) };
        let rendered = bounded(TEMPLATE, RENDERING, || template.render_strict(row.clone()));
        let rendered = rendered.map_err(|error: DataError| error.to_string())?;
        rendered.map(Some).map_err(|failure| {
            let there = Names(row.keys().cloned().collect());
            format!(
                "{TEMPLATE} fails in its line {}: {}; the record has {there}",
                failure.line, failure.reason
            )
        })
    }

    /// Sets the field `answer` if the configuration says where it is. Returns whether the answer was
    /// found.
    pub(super) fn set_answer(
        &self,
        fields: &mut Map<String, Value>,
        solution: Option<&str>,
    ) -> Result<bool, String> {
        let Some(form) = &self.answer else { return Ok(true) };
        let key = "answer";
        let found = match fields.get(key).filter(|value| !value.is_null()) {
            Some(Value::String(text)) => form.find(text),
            Some(value @ Value::Number(_)) => {
                return Err(format!(
                    "`{key}` is {}, which needs no data.answer_extract; remove data.answer_extract",
                    described(value)
                ));
            }
            Some(value) => {
                return Err(format!(
                    "`{key}` is {}; expected a text for data.answer_extract",
                    described(value)
                ));
            }
            None => match solution {
                Some(solution) => form.find(solution),
                None => {
                    return Err(format!(
                        "the record has no answer for data.answer_extract; name its column with data.columns.{key} (found {})",
                        Names(fields.keys().cloned().collect())
                    ));
                }
            },
        };
        let found = found.map(|answer| Value::from(answer.trim()));
        let is_found = found.is_some();
        fields.extend(found.map(|answer| (key.to_owned(), answer)));
        Ok(is_found)
    }
}

fn parsed(source: &str) -> Result<Template, ConfigFault> {
    let fault = |reason| ConfigFault::from_sentence("template", reason);
    let template = bounded(TEMPLATE, PARSING, || Template::parse(source));
    let template = template.map_err(|error| fault(error.to_string()))?;
    template.map_err(|failure| {
        let (line, reason) = (failure.line, failure.reason);
        fault(format!(
            "{TEMPLATE} does not parse in its line {line}: {reason}; correct the template"
        ))
    })
}

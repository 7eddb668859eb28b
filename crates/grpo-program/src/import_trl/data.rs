//! Prompts: data sets, open-r1's system prompt and prompt column, and the chat template.

use serde_json::Value as Json;

use super::draft::Draft;
use super::places::last;

/// Names that our prompt files give a meaning, and that must not stand next to `prompt`.
const PROMPT_KEYS: &str = r#"("messages", "prompt_ids", "text")"#;

/// How prompts become messages.
struct Conversation {
    /// The column with the user's message.
    column: String,
    system: Option<String>,
}

/// Sets the prompt files.
pub(super) fn apply(draft: &mut Draft<'_>) -> anyhow::Result<()> {
    let given = draft.given;
    thinking(draft)?;
    let conversation = conversation(draft)?;
    let evaluates = given.choice("eval_strategy", &["no", "steps", "epoch"])? != "no";
    let Some(name) = given.text("dataset_name")? else {
        draft.without(
            &["datasets", "dataset_mixture"],
            true,
            "data set mixtures are not supported; save the mixture as one prompt file and set data.file",
        );
        draft.placeholder("data.file", "data/prompts.jsonl", "fill in");
        draft.remind("Set data.file to a file with one prompt per record (JSON lines or Parquet).");
        if let Some(conversation) = conversation {
            draft.remind(format!(
                "Save the messages as `prompt`, in Python: rows.map(lambda row: {})",
                conversation.row()
            ));
        }
        if evaluates {
            draft.placeholder("eval.file", "data/prompts-test.jsonl", "fill in");
        }
        return Ok(());
    };
    let lower = name.to_ascii_lowercase();
    let ending = [".jsonl", ".jsonl.gz", ".parquet"].into_iter().find(|it| lower.ends_with(it));
    if ending.is_some() && conversation.is_none() {
        draft.set(&["dataset_name"], "data.file", name, "");
        return Ok(());
    }
    let stem = last(&name);
    let stem = &stem[..stem.len() - ending.map_or(0, str::len)];
    let chat = if ending.is_some() { "-chat" } else { "" };
    let (train, test) = (format!("data/{stem}{chat}.jsonl"), format!("data/{stem}-test.jsonl"));
    let split = |key: &str, default: &str| -> anyhow::Result<String> {
        Ok(given.text(key)?.unwrap_or_else(|| default.to_owned()))
    };
    let config = given.text("dataset_config")?;
    let mut save = |split: &str, file: &str| {
        let source = match ending {
            Some(ending) => {
                let format = if ending == ".parquet" { "parquet" } else { "json" };
                format!("{}, data_files={}, split=\"train\"", python(format), python(&name))
            }
            None => {
                let config = config.as_deref();
                let config = config.map(|config| format!(", name={}", python(config)));
                let config = config.unwrap_or_default();
                format!("{}{config}, split={}", python(&name), python(split))
            }
        };
        let load = format!("datasets.load_dataset({source})");
        let file = python(file);
        draft.remind(match &conversation {
            None => format!("Save the prompts, in Python: {load}.to_json({file})"),
            Some(conversation) => format!(
                "Save the prompts, in Python: rows = {load}; rows.map(lambda row: {}, remove_columns=[name for name in {PROMPT_KEYS} if name in rows.column_names]).to_json({file})",
                conversation.row()
            ),
        });
    };
    save(&split("dataset_train_split", "train")?, &train);
    if evaluates && ending.is_none() {
        save(&split("dataset_test_split", "test")?, &test);
    }
    let keys = ["dataset_name", "dataset_config", "dataset_train_split"];
    draft.set(&keys, "data.file", train, "grpo downloads nothing");
    if evaluates && ending.is_none() {
        draft.set(&["dataset_test_split"], "eval.file", test, "evaluation prompts");
    }
    Ok(())
}

/// Returns a Python string literal. JSON's strings are a subset of Python's.
fn python(text: &str) -> String {
    Json::from(text).to_string()
}

impl Conversation {
    /// Returns the Python expression of the new columns of `row`.
    fn row(&self) -> String {
        let message =
            |role: &str, content: &str| format!("{{\"role\": \"{role}\", \"content\": {content}}}");
        let user = message("user", &format!("row[{}]", python(&self.column)));
        match &self.system {
            Some(system) => {
                format!("{{\"prompt\": [{}, {user}]}}", message("system", &python(system)))
            }
            None => format!("{{\"prompt\": [{user}]}}"),
        }
    }
}

/// Returns how open-r1 makes a conversation of each row, if the file has its keys.
fn conversation(draft: &mut Draft<'_>) -> anyhow::Result<Option<Conversation>> {
    let given = draft.given;
    let keys = ["dataset_prompt_column", "system_prompt"];
    let column = given.text(keys[0])?;
    let system = given.text(keys[1])?;
    draft.same(&keys, "part of the prompt file's messages; see the command below");
    if given.text("chat_template")?.is_some() {
        draft.same(&["chat_template"], "written to a file of its own; see below");
    }
    let is_given = column.is_some() || system.is_some();
    let column = column.unwrap_or_else(|| "prompt".to_owned());
    Ok(is_given.then_some(Conversation { column, system }))
}

/// Sets the thinking mode of the chat template.
fn thinking(draft: &mut Draft<'_>) -> anyhow::Result<()> {
    let key = "chat_template_kwargs";
    let Some(arguments) = draft.given.get(key) else { return Ok(()) };
    let thinking = arguments.get("enable_thinking").and_then(Json::as_bool);
    let has_others = arguments
        .as_object()
        .is_none_or(|arguments| arguments.len() > usize::from(thinking.is_some()));
    if has_others {
        let remedy = "only `enable_thinking` is passed to the chat template (data.thinking)";
        draft.without(&[key], true, remedy);
    }
    if let Some(thinking) = thinking {
        draft.set(&[key], "data.thinking", thinking, "");
    }
    Ok(())
}

//! Prompts: data sets, open-r1's system prompt and prompt column, and the chat template.

use serde_json::Value as Json;

use super::draft::Draft;
use super::places::last;

/// Sets the prompt files.
pub(super) fn apply(draft: &mut Draft<'_>) -> anyhow::Result<()> {
    let given = draft.given;
    thinking(draft)?;
    conversation(draft)?;
    let evaluates = given.choice("eval_strategy", &["no", "steps", "epoch"])? != "no";
    let Some(name) = given.text("dataset_name")? else {
        draft.without(
            &["datasets", "dataset_mixture"],
            true,
            "data set mixtures are not supported; save the mixture as one prompt file and set data.file",
        );
        draft.placeholder("data.file", "data/prompts.jsonl", "fill in");
        draft.remind("Set data.file to a file with one prompt per record (JSON lines or Parquet).");
        if evaluates {
            draft.placeholder("eval.file", "data/prompts-test.jsonl", "fill in");
        }
        return Ok(());
    };
    let lower = name.to_ascii_lowercase();
    let ending = [".jsonl", ".jsonl.gz", ".parquet"].into_iter().find(|it| lower.ends_with(it));
    if ending.is_some() {
        draft.set(&["dataset_name"], "data.file", name, "");
        return Ok(());
    }
    let stem = last(&name);
    let (train, test) = (format!("data/{stem}.jsonl"), format!("data/{stem}-test.jsonl"));
    let split = |key: &str, default: &str| -> anyhow::Result<String> {
        Ok(given.text(key)?.unwrap_or_else(|| default.to_owned()))
    };
    let config = given.text("dataset_config")?;
    let config = config.map(|config| format!(", name={}", python(&config))).unwrap_or_default();
    let mut save = |split: &str, file: &str| {
        let [name, split, file] = [name.as_str(), split, file].map(python);
        draft.remind(format!(
            "Save the prompts, in Python: datasets.load_dataset({name}{config}, split={split}).to_json({file})"
        ));
    };
    save(&split("dataset_train_split", "train")?, &train);
    if evaluates {
        save(&split("dataset_test_split", "test")?, &test);
    }
    let keys = ["dataset_name", "dataset_config", "dataset_train_split"];
    draft.set(&keys, "data.file", train, "grpo downloads nothing");
    if evaluates {
        draft.set(&["dataset_test_split"], "eval.file", test, "evaluation prompts");
    }
    Ok(())
}

/// Returns a Python string literal. JSON's strings are a subset of Python's.
fn python(text: &str) -> String {
    Json::from(text).to_string()
}

/// Sets how open-r1 makes a conversation of each row, if the file has its keys.
fn conversation(draft: &mut Draft<'_>) -> anyhow::Result<()> {
    let given = draft.given;
    let keys = ["dataset_prompt_column", "system_prompt"];
    let [column, system] = [given.text(keys[0])?, given.text(keys[1])?];
    if given.text("chat_template")?.is_some() {
        draft.same(&["chat_template"], "written to a file of its own; see below");
    }
    let here = "data.columns.prompt";
    match column {
        Some(column) => draft.set(&keys[..1], here, column, "the user's message"),
        None if system.is_some() => draft.placeholder(here, "prompt", "open-r1's default"),
        None => {}
    }
    if let Some(system) = system {
        draft.set(&keys[1..], "data.system", system, "");
    }
    Ok(())
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

//! Prompts: data sets and mixtures of them, open-r1's system prompt and prompt column, and the chat template.

use serde_json::Value as Json;
use toml::{Table, Value};

use super::data_set::{DataSet, Found};
use super::draft::Draft;

/// Sets the prompt files.
pub(super) fn apply(draft: &mut Draft<'_>) -> anyhow::Result<()> {
    let given = draft.given;
    thinking(draft)?;
    conversation(draft)?;
    let evaluates = given.choice("eval_strategy", &["no", "steps", "epoch"])? != "no";
    if mixture(draft)? {
        if evaluates {
            draft.placeholder("eval.file", "data/prompts-test.jsonl", "fill in");
        }
        return Ok(());
    }
    let Some(path) = given.text("dataset_name")? else {
        draft.placeholder("data.file", "data/prompts.jsonl", "fill in");
        draft.remind("Set data.file to a file with one prompt per record (JSON lines or Parquet).");
        if evaluates {
            draft.placeholder("eval.file", "data/prompts-test.jsonl", "fill in");
        }
        return Ok(());
    };
    let config = given.text("dataset_config")?;
    let mut of_split = |key: &str, default: &str, name: &str| -> anyhow::Result<Vec<String>> {
        let split = given.text(key)?.unwrap_or_else(|| default.to_owned());
        let set = DataSet { config: config.clone(), ..DataSet::new(path.clone(), split) };
        Ok(files_of(draft, &set, name))
    };
    let train = of_split("dataset_train_split", "train", "")?;
    let is_file = train == [path.as_str()];
    let test = match evaluates && !is_file {
        true => of_split("dataset_test_split", "test", "-test")?,
        false => Vec::new(),
    };
    let keys = ["dataset_name", "dataset_config", "dataset_train_split"];
    let keys = if is_file { &keys[..1] } else { &keys[..] };
    let note = match (&config, train.iter().any(|file| file.starts_with(HUB))) {
        (_, false) => "",
        (Some(_), true) => OF_HUB,
        (None, true) => "the hub's copy in Parquet, of the configuration `default`",
    };
    draft.set(keys, "data.file", one_or_list(train), note);
    if !test.is_empty() {
        let keys = ["dataset_test_split"];
        draft.set(&keys, "eval.file", one_or_list(test), "evaluation prompts");
    }
    Ok(())
}

/// How names of data sets on the hub start.
const HUB: &str = "hf://datasets/";

/// Where the files of such a name are.
const OF_HUB: &str = "the hub's copy in Parquet";

/// Sets the files of a mixture of data sets: TRL's `datasets` or open-r1's `dataset_mixture`. Returns whether
/// there is one.
fn mixture(draft: &mut Draft<'_>) -> anyhow::Result<bool> {
    let given = draft.given;
    let key = ["datasets", "dataset_mixture"].into_iter().find(|key| match given.get(key) {
        Some(Json::Array(sets)) => !sets.is_empty(),
        other => other.is_some(),
    });
    let Some(key) = key else { return Ok(false) };
    let sets = given.get(key).and_then(|value| value.get("datasets").or(Some(value)));
    let place = if key == "datasets" { key } else { "dataset_mixture.datasets" };
    let Some(sets) = sets.and_then(Json::as_array).filter(|sets| !sets.is_empty()) else {
        let fault = format!(
            "{place} is not a list of data sets; expected entries such as `- path: org/name`"
        );
        return Err(given.fault(&fault));
    };
    let mut files = Vec::new();
    let mut has_fractions = false;
    for (index, set) in sets.iter().enumerate() {
        let set =
            DataSet::read(set).map_err(|fault| given.fault(&format!("{place}[{index}]{fault}")))?;
        has_fractions |= set.fraction.is_some();
        let found = files_of(draft, &set, &format!("-{}", index + 1));
        files.extend(found.into_iter().map(|file| (file, set.weight)));
    }
    let is_weighted = files.iter().any(|(_, weight)| weight.is_some_and(|weight| weight != 1.0));
    let note = match is_weighted {
        true => "each epoch uses this share of the records, and other ones than the epoch before",
        false => "",
    };
    let value = match files.as_slice() {
        [(file, _)] if !is_weighted => Value::from(file.as_str()),
        files => {
            files.iter().map(|(file, weight)| listed(file, *weight)).collect::<Vec<_>>().into()
        }
    };
    draft.set(&[key], "data.file", value, note);
    if has_fractions {
        let remedy = "`fraction` is a share of the mixture, and `weight` here is a share of the file: add { file, weight } with fraction × (records of all files) / (records of the file) to data.file";
        draft.without(&[key], true, remedy);
    }
    if given.get(key).is_some_and(|mixture| mixture.get("test_split_size").is_some()) {
        let remedy = "test_split_size: save the held-out prompts in a file and set eval.file";
        draft.without(&[key], true, remedy);
    }
    Ok(true)
}

/// Returns an entry of `data.file`.
fn listed(file: &str, weight: Option<f64>) -> Value {
    match weight.filter(|weight| *weight != 1.0) {
        None => Value::from(file),
        Some(weight) => {
            let keys = [("file", Value::from(file)), ("weight", Value::Float(weight))];
            Value::Table(
                keys.map(|(key, value)| (key.to_owned(), value)).into_iter().collect::<Table>(),
            )
        }
    }
}

/// Returns a path, or a list of several.
fn one_or_list(files: Vec<String>) -> Value {
    match <[String; 1]>::try_from(files) {
        Ok([file]) => Value::from(file),
        Err(files) => files.into(),
    }
}

/// Returns the files of a data set. Those that have to be saved first are mentioned in what remains to be done,
/// with `suffix` in their names.
fn files_of(draft: &mut Draft<'_>, set: &DataSet, suffix: &str) -> Vec<String> {
    match set.find() {
        Found::Files(files) => files,
        Found::Saved { name, load } => {
            let file = format!("data/{name}{suffix}.jsonl");
            let target = Json::from(file.as_str());
            draft.remind(format!("Save the prompts, in Python: {load}.to_json({target})"));
            vec![file]
        }
    }
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

//! Model, adapter, data, reward and run folder, i.e. everything that is a hub name or a path.

use std::path::Path;

use serde_json::Value as Json;
use toml::Value;

use super::draft::Draft;

/// Reward functions that TRL provides.
const OF_TRL: [&str; 4] = [
    "accuracy_reward",
    "reasoning_accuracy_reward",
    "think_format_reward",
    "get_soft_overlong_punishment",
];

pub(super) fn apply(draft: &mut Draft<'_>, stem: &str) -> anyhow::Result<()> {
    run(draft, stem)?;
    model(draft)?;
    adapter(draft)?;
    data(draft)?;
    reward(draft)
}

fn run(draft: &mut Draft<'_>, stem: &str) -> anyhow::Result<()> {
    match draft.given.text("output_dir")? {
        Some(folder) => draft.set(&["output_dir"], "run", folder, "new or empty"),
        None => draft.placeholder("run", format!("runs/{stem}"), "new or empty"),
    }
    Ok(())
}

fn model(draft: &mut Draft<'_>) -> anyhow::Result<()> {
    let given = draft.given;
    let revision = given.text("model_revision")?;
    let key = "model_name_or_path";
    match given.text(key)? {
        None => {
            draft.placeholder("model", "models/my-model", "fill in");
            draft.remind("Set model to a model folder: the file has no model_name_or_path.");
        }
        Some(name) if is_on_hub(&name) => {
            let folder = format!("models/{}", last(&name));
            let revision = revision.filter(|revision| revision != "main");
            let revision = revision.map(|revision| format!(" --revision {revision}"));
            draft.remind(format!(
                "Download the model: hf download {name}{} --local-dir {folder}",
                revision.unwrap_or_default()
            ));
            draft.set(&[key, "model_revision"], "model", folder, "grpo downloads nothing");
        }
        Some(folder) => draft.set(&[key], "model", folder, ""),
    }
    draft.same(&["model_revision"], "the folder determines the revision");
    Ok(())
}

/// Returns whether a name refers to a hub repository, such as `Qwen/Qwen3-0.6B`.
fn is_on_hub(name: &str) -> bool {
    let is_path = name.starts_with(['.', '/', '~']) || name.ends_with('/');
    !is_path && name.matches('/').count() <= 1 && !Path::new(name).exists()
}

/// Returns the part of a name after the last slash.
fn last(name: &str) -> &str {
    let name = name.trim_end_matches('/');
    name.rsplit_once('/').map_or(name, |(_, last)| last)
}

/// Sets the adapter and the precision of its base model.
fn adapter(draft: &mut Draft<'_>) -> anyhow::Result<()> {
    let given = draft.given;
    if given.boolean("use_peft")? != Some(true) {
        draft.same(&["use_peft"], "all weights are trained");
        draft.same(&["dtype"], "weights are trained in f32");
        return Ok(());
    }
    draft.same(&["use_peft"], "the section [lora]");
    let rank = given.count("lora_r", 16, 1..=65_536)?;
    draft.set(&["lora_r"], "lora.rank", super::steps::whole(rank), "");
    let alpha = given.number("lora_alpha")?.unwrap_or(32.0);
    draft.set(&["lora_alpha"], "lora.alpha", alpha, "");
    let dropout = given.number("lora_dropout")?.unwrap_or(0.05);
    let note = "stored in the adapter; `grpo train` does not use dropout";
    draft.set(&["lora_dropout"], "lora.dropout", dropout, note);
    let rslora = given.boolean("use_rslora")?.unwrap_or(false);
    draft.set(&["use_rslora"], "lora.rslora", rslora, "");
    targets(draft)?;
    let four = given.boolean("load_in_4bit")? == Some(true);
    let eight = given.boolean("load_in_8bit")? == Some(true);
    let (keys, precision): (&[&str], _) = match given.text("dtype")?.as_deref() {
        _ if four => (&["load_in_4bit"], "q4"),
        _ if eight => (&["load_in_8bit"], "q8"),
        Some("bfloat16" | "float16") => (&["dtype"], "bf16"),
        _ => (&["dtype"], "f32"),
    };
    draft.set(keys, "base_precision", precision, "of the frozen model; computation is in f32");
    draft.same(&["load_in_4bit", "load_in_8bit", "dtype"], "see base_precision");
    Ok(())
}

/// Sets the layers to which an adapter is added.
fn targets(draft: &mut Draft<'_>) -> anyhow::Result<()> {
    let given = draft.given;
    let key = "lora_target_modules";
    let names = given.texts(key)?;
    match names {
        Some(names) if names.iter().any(|name| name == "all-linear") => {
            draft.same(&[key], "all linear layers of the blocks");
        }
        Some(names) if names.iter().any(|name| name.contains(['*', '(', '|', '\\'])) => {
            let remedy = "patterns are not supported; list the names in lora.targets (now all linear layers)";
            draft.without(&[key], true, remedy);
        }
        Some(names) => {
            let names = names.into_iter().map(Value::String).collect();
            draft.set(&[key], "lora.targets", Value::Array(names), "");
        }
        None => {
            let model = given.text("model_name_or_path")?.unwrap_or_default();
            let is_gpt2 = model.to_ascii_lowercase().contains("gpt2");
            let names: &[&str] = if is_gpt2 { &["c_attn"] } else { &["q_proj", "v_proj"] };
            let names = names.iter().map(|name| Value::from(*name)).collect();
            let note = "PEFT's default for this family; without the key, all linear layers";
            draft.set(&[key], "lora.targets", Value::Array(names), note);
        }
    }
    Ok(())
}

/// Sets the prompt files.
fn data(draft: &mut Draft<'_>) -> anyhow::Result<()> {
    let given = draft.given;
    thinking(draft)?;
    let evaluates = given.choice("eval_strategy", &["no", "steps", "epoch"])? != "no";
    let Some(name) = given.text("dataset_name")? else {
        draft.without(
            &["datasets"],
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
    if [".jsonl", ".jsonl.gz", ".parquet"].iter().any(|ending| lower.ends_with(ending)) {
        draft.set(&["dataset_name"], "data.file", name, "");
        return Ok(());
    }
    let config = given.text("dataset_config")?;
    let of_config = config.map(|config| format!(", name={config:?}")).unwrap_or_default();
    let mut save = |split: &str, file: &str| {
        draft.remind(format!(
            "Save the prompts, in Python: datasets.load_dataset({name:?}{of_config}, split={split:?}).to_json({file:?})"
        ));
    };
    let (train, test) =
        (format!("data/{}.jsonl", last(&name)), format!("data/{}-test.jsonl", last(&name)));
    save(given.text("dataset_train_split")?.as_deref().unwrap_or("train"), &train);
    if evaluates {
        save(given.text("dataset_test_split")?.as_deref().unwrap_or("test"), &test);
    }
    let keys = ["dataset_name", "dataset_config", "dataset_train_split"];
    draft.set(&keys, "data.file", train, "grpo downloads nothing");
    if evaluates {
        draft.set(&["dataset_test_split"], "eval.file", test, "evaluation prompts");
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

/// Sets the reward: the functions of a Python file.
fn reward(draft: &mut Draft<'_>) -> anyhow::Result<()> {
    let given = draft.given;
    let functions = given.texts("reward_funcs")?.unwrap_or_default();
    let weights = given.numbers("reward_weights")?;
    if let Some(weights) = weights.as_ref().filter(|weights| weights.len() != functions.len())
        && !functions.is_empty()
        && !given.has("reward_model_name_or_path")
    {
        return Err(given.fault(&format!(
            "reward_weights has {} numbers, but reward_funcs has {} names; expected one weight per function",
            weights.len(),
            functions.len()
        )));
    }
    draft.placeholder("reward.type", "python", "functions of a Python file");
    if functions.is_empty() {
        draft.placeholder("reward.file", "rewards.py", "fill in");
        draft.remind("Write the reward function `reward` in rewards.py, or set another [reward].");
        return Ok(());
    }
    let names: Vec<&str> = functions
        .iter()
        .map(|name| name.rsplit_once('.').map_or(&**name, |(_, name)| name))
        .collect();
    let modules: Vec<Option<&str>> =
        functions.iter().map(|name| name.rsplit_once('.').map(|(module, _)| module)).collect();
    let file = match modules.first() {
        Some(Some(module)) if modules.iter().all(|other| *other == Some(*module)) => {
            format!("{}.py", module.replace('.', "/"))
        }
        _ => "rewards.py".to_owned(),
    };
    let key = "reward_funcs";
    draft.set(&[key], "reward.file", file.clone(), "TRL's signature; completions are strings");
    if names != ["reward"] {
        let names = names.iter().map(|name| Value::from(*name)).collect();
        draft.set(&[key], "reward.function", Value::Array(names), "");
    }
    if let Some(weights) = weights.filter(|weights| weights.len() == functions.len()) {
        let weights = weights.into_iter().map(Value::Float).collect();
        draft.set(&["reward_weights"], "reward.weights", Value::Array(weights), "");
    }
    draft.remind(match functions.iter().any(|name| OF_TRL.contains(&&**name)) {
        true => format!(
            "Write {file} with {}. Functions of trl.rewards expect messages: pass [[{{\"role\": \"assistant\", \"content\": text}}] for text in completions].",
            functions.join(", ")
        ),
        false => format!(
            "Check that {file} has {}, and that it takes completions as strings, even for chat prompts.",
            names.join(", ")
        ),
    });
    Ok(())
}

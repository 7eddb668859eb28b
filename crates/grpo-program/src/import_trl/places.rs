//! Model, adapter and run folder, i.e. what is a hub name or a path.

use std::path::Path;

use grpo_hub::RepoName;
use toml::Value;

use super::draft::Draft;

pub(super) fn apply(draft: &mut Draft<'_>, stem: &str) -> anyhow::Result<()> {
    run(draft, stem)?;
    model(draft)?;
    adapter(draft)
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
    let revision = given.text("model_revision")?.filter(|revision| revision != "main");
    let key = "model_name_or_path";
    match given.text(key)? {
        None => {
            draft.placeholder("model", "models/my-model", "fill in");
            draft.remind("Set model to a model folder: the file has no model_name_or_path.");
        }
        Some(name) if is_on_hub(&name) => {
            let revision = revision.map(|revision| format!("@{}", revision.replace('/', "%2F")));
            let named = format!("{name}{}", revision.unwrap_or_default());
            let keys = [key, "model_revision"];
            if given.has("chat_template") {
                // The template becomes a file of the folder.
                let folder = format!("models/{}", last(&name));
                draft.remind(format!(
                    "Download the model: mkdir -p models && cp -rL \"$(grpo download {named})\" {folder}"
                ));
                draft.set(&keys, "model", folder, "a copy, for the chat template of the file");
            } else {
                draft.set(&keys, "model", named, "");
            }
        }
        Some(folder) => {
            // Such names are redirected by the hub.
            if !folder.contains(['/', '.']) && !Path::new(&folder).exists() {
                draft.remind(format!(
                    "Set model to a folder, or to the name with its organisation: org/{folder}"
                ));
            }
            draft.set(&[key], "model", folder, "");
        }
    }
    draft.same(&["model_revision"], "main is the default, and a folder has one revision");
    Ok(())
}

/// Returns whether a name refers to a hub repository, such as `Qwen/Qwen3-0.6B`.
fn is_on_hub(name: &str) -> bool {
    matches!(RepoName::model(name), Ok(Some(_)))
}

/// Returns the part of a name after the last slash.
pub(super) fn last(name: &str) -> &str {
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
    let dora = given.boolean("use_dora")?.unwrap_or(false);
    draft.set(&["use_dora"], "lora.dora", dora, "");
    let key = "lora_modules_to_save";
    match given.texts(key)?.filter(|names| !names.is_empty()) {
        Some(names) => {
            let names = names.into_iter().map(Value::String).collect();
            draft.set(&[key], "lora.modules_to_save", Value::Array(names), "");
        }
        None => draft.same(&[key], "no module is trained in full"),
    }
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

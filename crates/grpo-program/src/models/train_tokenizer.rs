//! `grpo train-tokenizer`: trains a tokenizer.

use std::path::Path;

use anyhow::Context;
use grpo_data::{TOKENIZER_FILES, json_line_reason, read_text_file, train_tokenizer};
use grpo_run::atomic_write;
use grpo_task::output::{create_folder, say};
use grpo_task::recorded_folders::refuse_inside;
use serde_json::{Map, Value};

use crate::args::TokenizerArguments;

pub(crate) fn run(arguments: &TokenizerArguments) -> anyhow::Result<()> {
    refuse_inside(&arguments.output.join(TOKENIZER_FILES[0]), "-o")?;
    let folder = &arguments.output;
    anyhow::ensure!(
        !folder.exists() || folder.is_dir(),
        "{} is a file, not a folder; use a folder for -o",
        folder.display()
    );
    for name in TOKENIZER_FILES {
        let path = folder.join(name);
        anyhow::ensure!(!path.exists(), "{} already exists; choose another folder", path.display());
    }
    let texts = texts(&arguments.input, &arguments.keys, &arguments.with)?;
    let all = texts.iter().map(String::as_str);
    let files = train_tokenizer(all, arguments.vocabulary)
        .with_context(|| arguments.input.display().to_string())?;
    create_folder(folder)?;
    for (name, text) in &files {
        atomic_write(&folder.join(name), text.as_bytes())?;
    }
    say(format_args!("tokenizer    {} ({} tokens)", folder.display(), arguments.vocabulary));
    Ok(())
}

/// Returns the values of `keys` in each line, followed by the texts in `with`.
fn texts(path: &Path, keys: &[String], with: &[String]) -> anyhow::Result<Vec<String>> {
    let file = read_text_file(path)?;
    let mut texts = Vec::new();
    for (place, line) in file.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line_number = place + 1;
        let record: Map<String, Value> = serde_json::from_str(line).map_err(|error| {
            let reason = json_line_reason(&error);
            anyhow::anyhow!(
                "{}:{line_number}: the line is not a JSON object: {reason}",
                path.display()
            )
        })?;
        for key in keys {
            let text = record.get(key).and_then(Value::as_str).with_context(|| {
                format!(
                    "{}:{line_number}: the record has no text under the key '{key}' (--key)",
                    path.display()
                )
            })?;
            texts.push(text.to_owned());
        }
        texts.extend_from_slice(with);
    }
    anyhow::ensure!(!texts.is_empty(), "{} has no records", path.display());
    Ok(texts)
}

//! Protects model and run folders from other output.

use std::path::Path;

use grpo_model::weights_file;

/// Rejects a `path` inside a model folder or a run, whose manifest would no longer list all of its
/// files. `option` is the command-line option that specifies `path`.
///
/// # Errors
/// Returns an error if a parent folder is a model, an adapter or a run.
pub fn refuse_inside(path: &Path, option: &str) -> anyhow::Result<()> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let parent = absolute.ancestors().skip(1).find_map(|above| above.canonicalize().ok());
    for folder in parent.iter().flat_map(|parent| parent.ancestors()) {
        if let Some(what) = kind_of_folder(folder) {
            anyhow::bail!(
                "{} is inside the {what} folder {}; use another folder for {option}",
                path.display(),
                folder.display()
            );
        }
    }
    Ok(())
}

/// Rejects an output file that would overwrite or be added to the recorded files of a model or run.
///
/// # Errors
/// Returns an error if `path` is in a model or adapter folder, or is a file of a run. Other names
/// are allowed in a run folder.
pub(crate) fn refuse_recorded(path: &Path) -> anyhow::Result<()> {
    const OF_RUN: [&str; 14] = [
        "adapter",
        "best.csv",
        "best.sdf",
        "checkpoints",
        "comparison.json",
        "completions",
        "config.toml",
        "evaluation-before.jsonl",
        "events.jsonl",
        "ledger.jsonl",
        "metrics.jsonl",
        "model",
        "rolled-back",
        "run.json",
    ];
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let parent = absolute.parent().and_then(|parent| parent.canonicalize().ok());
    let Some(parent) = parent else { return Ok(()) };
    let file = parent.join(path.file_name().unwrap_or_default());
    let recorded = parent.ancestors().find_map(|folder| {
        let below = file.strip_prefix(folder).ok()?.components().next()?;
        let is_recorded = match kind_of_folder(folder)? {
            "run" => OF_RUN.iter().any(|name| below.as_os_str() == *name),
            _ => true,
        };
        is_recorded.then_some(folder)
    });
    match recorded {
        Some(folder) => anyhow::bail!(
            "{} is one of the files recorded in {}; choose a different output file",
            path.display(),
            folder.display()
        ),
        None => Ok(()),
    }
}

/// Returns whether `folder` is a model or adapter folder.
pub fn is_model_folder(folder: &Path) -> bool {
    kind_of_folder(folder) == Some("model")
}

/// Returns whether `folder` contains what `grpo export` writes.
pub fn is_exported_folder(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).is_file();
    let is_gguf =
        |entry: std::fs::DirEntry| entry.file_name().as_encoded_bytes().ends_with(b".gguf");
    has("Modelfile")
        && has("manifest.json")
        && folder.read_dir().is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(is_gguf)))
}

/// Returns `model` for a model or adapter folder, `run` for a run folder, and `None` for any other
/// folder.
fn kind_of_folder(folder: &Path) -> Option<&'static str> {
    let has = |name: &str| folder.join(name).is_file();
    let is_model = has("config.json") && weights_file(folder).is_some();
    let is_adapter = has("adapter_config.json")
        && (has("adapter_model.safetensors") || has("adapter_model.bin"));
    match has("run.json") && has("config.toml") {
        true => Some("run"),
        false => (is_model || is_adapter).then_some("model"),
    }
}

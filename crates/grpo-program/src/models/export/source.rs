//! What is exported: a model, or an adapter with its base model.

use std::path::{Path, PathBuf};

use anyhow::Context;
use grpo_data::regular_file;
use grpo_hub::RepoName;
use grpo_model::is_gguf_file;
use grpo_run::RunFolder;
use grpo_task::hub::model_folder;
use grpo_task::used_inputs::info_with_inputs;
use serde_json::Value;
use toml::Table;

use crate::models::card::run_of;

/// The folders of a model.
#[derive(Debug)]
pub(super) struct Source {
    /// Model folder or GGUF file: the base model of an adapter.
    pub(super) model: PathBuf,
    /// Adapter folder.
    pub(super) adapter: Option<PathBuf>,
    /// The model that a card names as the origin: the one from which training started, or the model
    /// itself. `None` for a model that was trained from scratch.
    pub(super) base: Option<PathBuf>,
    /// The name that programs show.
    pub(super) name: String,
}

impl Source {
    /// Finds the folders of a run folder, a model or adapter folder, a GGUF file, or a name of the hub.
    pub(super) fn find(given: &Path) -> anyhow::Result<Self> {
        let (name, place) = (name(given), model_folder(given)?);
        let trained = match place.join("run.json").is_file() {
            true => trained_in(&place)?,
            false => place,
        };
        if trained.join("adapter_config.json").is_file() && !trained.join("config.json").is_file() {
            let model = base_of_adapter(&trained)?;
            return Ok(Self { base: Some(model.clone()), model, adapter: Some(trained), name });
        }
        let base = match run_of(&trained) {
            Some((run, _)) => start_of(&run)?,
            None => Some(trained.clone()),
        };
        Ok(Self { model: trained, adapter: None, base, name })
    }

    /// Returns the absolute path of the model for a Modelfile.
    pub(super) fn absolute_model(&self) -> anyhow::Result<String> {
        let shown = self.model.display();
        let path =
            std::path::absolute(&self.model).with_context(|| format!("cannot find {shown}"))?;
        let text = path.to_str().filter(|path| !path.contains(char::is_control));
        let text = text.with_context(|| {
            format!("the path {shown} cannot be written to a Modelfile; rename the model")
        })?;
        Ok(text.to_owned())
    }
}

/// Returns the folder that a run has trained.
fn trained_in(run: &Path) -> anyhow::Result<PathBuf> {
    let folders = ["model", "adapter"].map(|name| run.join(name));
    folders.into_iter().find(|folder| folder.is_dir()).with_context(|| {
        let run = run.display();
        format!("{run} has neither a model nor an adapter yet; resume the run to finish it, or export one of {run}/checkpoints")
    })
}

/// Returns the model from which a run started, at its present path.
fn start_of(run: &Path) -> anyhow::Result<Option<PathBuf>> {
    let folder = RunFolder::open(run)?;
    let path = folder.config_path();
    let keys: Table = folder
        .read_config()?
        .parse()
        .with_context(|| format!("{} is not valid", path.display()))?;
    let start =
        ["model", "start"].iter().find_map(|key| keys.get(*key)?.as_str().map(PathBuf::from));
    let Some(start) = start else { return Ok(None) };
    let renamed = info_with_inputs(&folder)?.renamed;
    Ok(Some(renamed.iter().find_map(|input| input.path_now(&start)).unwrap_or(start)))
}

/// Returns the base model of an adapter: the one that its run used, or the one that its files name.
fn base_of_adapter(adapter: &Path) -> anyhow::Result<PathBuf> {
    let of_run = run_of(adapter).map(|(run, _)| start_of(&run)).transpose()?.flatten();
    // The path may be relative to another folder.
    if let Some(of_run) = of_run.filter(|path| path.exists()) {
        return Ok(of_run);
    }
    let path = adapter.join("adapter_config.json");
    let text = regular_file::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let config: Value = serde_json::from_str(&text)
        .with_context(|| format!("{} is not valid JSON", path.display()))?;
    let base = config["base_model_name_or_path"].as_str().with_context(|| {
        format!("{} does not name its base model; merge the adapter with `grpo merge` and export the result", path.display())
    })?;
    model_folder(Path::new(base))
        .with_context(|| format!("{} names the base model {base}", path.display()))
}

/// Returns the run folder that contains a path, if there is one, as the user wrote it.
fn run_around(given: &Path) -> Option<&Path> {
    given.ancestors().find(|folder| folder.join("run.json").is_file())
}

/// Returns the name of the run or of the folder, or the last part of a name of the hub without its revision.
fn name(given: &Path) -> String {
    let given = run_around(given).unwrap_or(given);
    let place = given.canonicalize().unwrap_or_else(|_| given.to_owned());
    let repo = RepoName::of_snapshot(&place).map(|(repo, _)| repo.id().to_owned());
    let name = repo.as_ref().map_or(place.as_path(), Path::new);
    let name = if place.is_file() { name.file_stem() } else { name.file_name() };
    let name = name.unwrap_or_default().to_string_lossy().into_owned();
    match given.exists() {
        true => name,
        false => name.split('@').next().unwrap_or_default().to_owned(),
    }
}

/// Returns the folder that is written without `-o`: next to a run or model folder, and in the current folder for
/// a file or a name of the hub.
pub(super) fn default_output(given: &Path, ending: &str) -> PathBuf {
    let place = run_around(given).unwrap_or(given);
    let name = format!("{}-{ending}", name(place));
    let is_elsewhere =
        !given.exists() || is_gguf_file(given) || RepoName::of_snapshot(given).is_some();
    match place.parent() {
        Some(parent) if !is_elsewhere && place.file_name().is_some() => parent.join(name),
        _ => PathBuf::from(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_is_next_to_the_run() {
        let place = tempfile::tempdir().unwrap();
        let run = place.path().join("runs/shout");
        std::fs::create_dir_all(run.join("checkpoints/step-3")).unwrap();
        std::fs::create_dir_all(place.path().join("models/m.v1")).unwrap();
        std::fs::write(run.join("run.json"), "{}").unwrap();
        let next = place.path().join("runs/shout-q8_0");
        assert_eq!(default_output(&run, "q8_0"), next);
        assert_eq!(default_output(&run.join("checkpoints/step-3"), "q8_0"), next);
        assert_eq!(
            default_output(&place.path().join("models/m.v1"), "adapter-f16"),
            place.path().join("models/m.v1-adapter-f16")
        );
        std::fs::write(place.path().join("some.gguf"), "GGUF").unwrap();
        assert_eq!(default_output(&place.path().join("some.gguf"), "f16"), Path::new("some-f16"));
        for name in ["Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B@v1"] {
            assert_eq!(default_output(Path::new(name), "f16"), Path::new("Qwen3-0.6B-f16"));
        }
        let cached = format!("/x/models--a--b/snapshots/{}", "0".repeat(40));
        assert_eq!(default_output(Path::new(&cached), "f16"), Path::new("b-f16"));
    }
}

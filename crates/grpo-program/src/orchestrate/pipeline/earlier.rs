//! Conflicts between the stages of a pipeline.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::ensure;
use grpo_task::config::Origin;

use super::section::StageSection;
use super::spelled_out::spelled_out;
use super::stage_config::StageConfig;
use super::written::Written;

/// What earlier stages are called and write.
#[derive(Default)]
pub(super) struct Earlier {
    names: HashSet<String>,
    /// Files and folders, and the stage or summary that writes each.
    writers: HashMap<PathBuf, String>,
    /// Folders that contain outputs of stages without a run folder.
    folders: HashSet<PathBuf>,
}

impl Earlier {
    /// Adds a stage.
    ///
    /// # Errors
    /// Returns an error if the stage has the name or an output of an earlier one, or an input that
    /// neither exists nor is written by an earlier one.
    pub(super) fn add(
        &mut self,
        stage: &StageSection,
        config: Option<&StageConfig>,
        written: &Written,
        key: &str,
        origin: &Origin,
    ) -> anyhow::Result<()> {
        let place = |name: &str| origin.place(&format!("{key}.{name}"));
        ensure!(
            !self.names.contains(&stage.name),
            "{}two stages are named `{}`; use a different name for each",
            place("name"),
            stage.name
        );
        let run = config.iter().map(|config| ("config", "folder", &config.run));
        let outputs = stage.outputs.iter().map(|output| ("outputs", "file", output));
        for (key, kind, path) in run.clone().chain(outputs.clone()) {
            if let Some(other) = self.writers.get(&spelled_out(path)) {
                anyhow::bail!(
                    "{}stages `{other}` and `{}` both write {}; use a different {kind} for each",
                    place(key),
                    stage.name,
                    path.display()
                );
            }
        }
        self.check_inputs(stage, config, &place)?;
        for (_, _, path) in run.chain(outputs) {
            self.writers.insert(spelled_out(path), stage.name.clone());
        }
        // Options may name more outputs than the pipeline file lists.
        for path in written.paths() {
            self.writers.entry(spelled_out(path)).or_insert_with(|| stage.name.clone());
        }
        if config.is_none() {
            let folders = stage.outputs.iter().map(|output| folder_of(output));
            self.folders.extend(folders.map(spelled_out));
        }
        self.names.insert(stage.name.clone());
        Ok(())
    }

    /// Returns whether an earlier stage or summary may write this file or folder.
    pub(super) fn writes(&self, input: &Path) -> bool {
        // A stage without a run folder may write more files next to its outputs.
        self.makes(input) || self.folders.contains(&spelled_out(folder_of(input)))
    }

    /// Returns whether this is an output of an earlier stage or summary, or in its folder.
    fn makes(&self, input: &Path) -> bool {
        spelled_out(input).ancestors().any(|folder| self.writers.contains_key(folder))
    }

    fn check_inputs(
        &self,
        stage: &StageSection,
        config: Option<&StageConfig>,
        place: &impl Fn(&str) -> String,
    ) -> anyhow::Result<()> {
        for (name, input) in config.into_iter().flat_map(StageConfig::inputs) {
            ensure!(
                self.writes(&input) || input.exists(),
                "{}{name} = \"{}\" does not exist, and no earlier stage writes it; correct the path in {}",
                place("config"),
                input.display(),
                config.map_or(Path::new(""), |config| &config.path).display()
            );
        }
        for input in &stage.inputs {
            ensure!(
                self.makes(input) || input.exists(),
                "{}{} does not exist, and no earlier stage writes it; correct the path, or list it under outputs of the stage that writes it",
                place("inputs"),
                input.display()
            );
        }
        Ok(())
    }

    /// Adds a summary.
    ///
    /// # Errors
    /// Returns an error if it writes a file of a stage or of another summary.
    pub(super) fn add_summary(
        &mut self,
        written: &Written,
        key: &str,
        origin: &Origin,
    ) -> anyhow::Result<()> {
        for path in written.files() {
            let other = self.writers.insert(spelled_out(path), "the summary".to_owned());
            ensure!(
                other.is_none(),
                "{}{} is also written by {}; use a different file for each",
                origin.place(&format!("{key}.arguments")),
                path.display(),
                match other.as_deref() {
                    Some("the summary") | None => "another summary".to_owned(),
                    Some(name) => format!("stage `{name}`"),
                }
            );
        }
        Ok(())
    }
}

/// Returns the folder that contains a file: the current one for a name alone.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

//! Records the command lines of stages without a run folder and of summaries, and what they wrote. A
//! stage whose arguments have changed runs again, and only what is recorded is replaced. Run folders
//! record their configuration themselves.

use std::path::{Path, PathBuf};

use anyhow::Context;
use grpo_data::regular_file;
use grpo_run::atomic_write;
use serde::{Deserialize, Serialize};

/// Contents of the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StageRecord {
    /// Arguments passed to `grpo`.
    arguments: Vec<String>,
    /// What the command wrote. Missing in records of older versions, which were written when the
    /// command had finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    written: Option<Vec<WrittenPath>>,
    /// Whether the command has finished.
    #[serde(default = "yes")]
    finished: bool,
}

fn yes() -> bool {
    true
}

/// A file or folder that a command wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WrittenPath {
    pub(super) path: PathBuf,
    /// Hash of a file after the command had finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
}

impl StageRecord {
    /// Returns the arguments passed to `grpo`.
    pub(super) fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Returns whether the command has finished.
    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    pub(super) fn new(words: &[String], written: Vec<WrittenPath>, finished: bool) -> Self {
        Self { arguments: words.to_vec(), written: Some(written), finished }
    }

    /// Reads the record next to `place`, if there is one.
    pub(super) fn read(place: &Path) -> Option<Self> {
        let text = regular_file::read(&record_path(place)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Writes the record next to `place`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(super) fn write(&self, place: &Path) -> anyhow::Result<()> {
        let path = record_path(place);
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        if !self.finished && folder.is_some_and(|folder| !folder.exists()) {
            // There is nothing that the command could replace.
            return Ok(());
        }
        let mut text = serde_json::to_string(self)?;
        text.push('\n');
        atomic_write(&path, text.as_bytes())
            .with_context(|| format!("cannot record what wrote {}", place.display()))
    }

    /// Returns what the command wrote. Older records do not list it, so it is all of `paths`.
    pub(super) fn written(self, paths: &[PathBuf]) -> Vec<WrittenPath> {
        self.written.unwrap_or_else(|| {
            paths.iter().map(|path| WrittenPath { path: path.clone(), sha256: None }).collect()
        })
    }
}

/// Returns the path of the record: a hidden file next to an output. A folder with a manifest
/// must not contain other files, so its record is next to the folder.
fn record_path(output: &Path) -> PathBuf {
    let folder = output.parent().filter(|folder| folder.join("manifest.json").is_file());
    let place = folder.filter(|folder| folder.file_name().is_some()).unwrap_or(output);
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    place.with_file_name(format!(".{name}.stage.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_hidden_files_outside_of_model_folders() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        assert_eq!(record_path(&at("a.json")), at(".a.json.stage.json"));
        std::fs::create_dir(at("model")).unwrap();
        assert_eq!(record_path(&at("model/manifest.json")), at("model/.manifest.json.stage.json"));
        std::fs::write(at("model/manifest.json"), "{}").unwrap();
        assert_eq!(record_path(&at("model/manifest.json")), at(".model.stage.json"));
    }
}

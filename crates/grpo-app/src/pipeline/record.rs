//! Records the command line of finished stages without a run folder, so that a stage whose arguments
//! have changed runs again. Run folders record their configuration themselves.

use std::path::{Path, PathBuf};

use grpo_data::regular_file;
use grpo_run::atomic_write;
use serde::{Deserialize, Serialize};

use crate::output::command_line;

use super::file::Stage;

/// Contents of the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StageRecord {
    /// Arguments passed to `grpo`.
    arguments: Vec<String>,
}

impl Stage {
    /// Records the command line if the stage has no run folder.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(super) fn record(&self) -> anyhow::Result<()> {
        if self.config.is_some() {
            return Ok(());
        }
        let record = StageRecord { arguments: self.own_words() };
        let mut text = serde_json::to_string(&record)?;
        text.push('\n');
        atomic_write(&record_path(self.place()), text.as_bytes())?;
        Ok(())
    }

    /// Describes how the command line differs from the one that produced the results. Results
    /// without a record were not produced by this pipeline.
    pub(super) fn changed_arguments(&self) -> Option<String> {
        let text = regular_file::read(&record_path(self.place())).ok();
        let record = text.and_then(|text| serde_json::from_slice::<StageRecord>(&text).ok());
        match record {
            None => Some("its results have no record of the command".to_owned()),
            Some(StageRecord { arguments }) if arguments != self.own_words() => {
                Some(format!("its results are those of `grpo {}`", command_line(&arguments)))
            }
            Some(_) => None,
        }
    }

    /// Returns the command and its arguments as the pipeline file has them.
    fn own_words(&self) -> Vec<String> {
        std::iter::once(&self.command).chain(&self.arguments).cloned().collect()
    }
}

/// Returns the path of the record: a hidden file next to the first output. A folder with a manifest
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

//! Roll-backs. The undone steps are kept in `rolled-back/`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::atomic::entries;
use crate::folder::COMPLETIONS;
use crate::{RunError, RunFolder, atomic_write, read_json_lines, write_manifest};

/// Folder with the undone steps.
pub(crate) const ROLLED_BACK: &str = "rolled-back";

impl RunFolder {
    /// Copies the `metrics.jsonl` and `ledger.jsonl` lines after `step` to `rolled-back/NUMBER/`
    /// and moves the completions there. A manifest of these files is written last.
    ///
    /// The original lines are removed later, when the files are opened for the next step. If the
    /// process is killed, this method can safely be called again.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or written.
    pub fn set_aside(&self, step: u64, number: u32) -> Result<PathBuf, RunError> {
        let aside = self.rolled_back_path(number);
        let completions = aside.join(COMPLETIONS);
        fs::create_dir_all(&completions).map_err(RunError::write(&aside))?;
        for path in [self.metrics_path(), self.ledger_path()] {
            if path.exists() {
                let name = path.file_name().expect("the path ends in a file name");
                atomic_write(&aside.join(name), lines_after(&path, step)?.as_bytes())?;
            }
        }
        for undone in self.completion_steps()?.into_iter().filter(|&undone| undone > step) {
            let path = self.completions_path(undone);
            let name = path.file_name().expect("the path ends in a file name");
            fs::rename(&path, completions.join(name)).map_err(RunError::write(&path))?;
        }
        write_manifest(&aside)?;
        Ok(aside)
    }
}

impl RunFolder {
    /// Reverts [`Self::set_aside`] for all roll-backs but the first `roll_backs`, because the run was
    /// killed before it completed them. Moves the completions back and removes the copies.
    ///
    /// # Errors
    /// Returns an error if a file cannot be moved or removed.
    pub fn restore_aside(&self, roll_backs: u32) -> Result<(), RunError> {
        for (name, aside) in entries(&self.path().join(ROLLED_BACK))? {
            if !name.parse().is_ok_and(|number: u32| number > roll_backs) {
                continue;
            }
            for (name, path) in entries(&aside.join(COMPLETIONS))? {
                let target = self.path().join(COMPLETIONS).join(name);
                if !target.exists() {
                    fs::rename(&path, &target).map_err(RunError::write(&target))?;
                }
            }
            fs::remove_dir_all(&aside).map_err(RunError::write(&aside))?;
        }
        Ok(())
    }

    /// Returns the folder with the steps undone by roll-back `number`, starting at 1.
    pub(crate) fn rolled_back_path(&self, number: u32) -> PathBuf {
        self.path().join(ROLLED_BACK).join(number.to_string())
    }

    /// Returns the `metrics.jsonl` lines undone by roll-back `number`, starting at 1. Returns an
    /// empty list if there was no such roll-back.
    ///
    /// # Errors
    /// Returns an error if the lines cannot be read.
    pub fn undone(&self, number: u32) -> Result<Vec<Map<String, Value>>, RunError> {
        let path = self.rolled_back_path(number).join("metrics.jsonl");
        if path.exists() { read_json_lines(&path) } else { Ok(Vec::new()) }
    }
}

/// Returns the lines that belong to steps after `step`.
fn lines_after(path: &Path, step: u64) -> Result<String, RunError> {
    let lines: Vec<Map<String, Value>> = read_json_lines(path)?;
    let is_after = |line: &&Map<String, Value>| {
        line.get("step").and_then(Value::as_u64).is_some_and(|of| of > step)
    };
    let text = |line: &Map<String, Value>| {
        serde_json::to_string(line).expect("parsed JSON serializes to JSON") + "\n"
    };
    Ok(lines.iter().filter(is_after).map(text).collect())
}

//! Roll-backs: the undone steps are kept in `rolled-back/`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::folder::COMPLETIONS;
use crate::{RunError, RunFolder, atomic_write, read_json_lines, write_manifest};

impl RunFolder {
    /// Copies the lines of `metrics.jsonl` and `ledger.jsonl` after `step`, and moves the
    /// completions, to `rolled-back/NUMBER/`. The original lines are removed when the files are
    /// opened for the next step. Repeating the call, for example after a kill, has the same result.
    /// A manifest with the hashes of the moved files is written last.
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
    /// Returns the folder of the steps that roll-back `number`, from 1, undid.
    pub(crate) fn rolled_back_path(&self, number: u32) -> PathBuf {
        self.path().join("rolled-back").join(number.to_string())
    }

    /// Returns the lines of `metrics.jsonl` that roll-back `number`, from 1, undid; empty if there
    /// was none.
    ///
    /// # Errors
    /// Returns an error if they cannot be read.
    pub fn undone(&self, number: u32) -> Result<Vec<Map<String, Value>>, RunError> {
        let path = self.rolled_back_path(number).join("metrics.jsonl");
        if path.exists() { read_json_lines(&path) } else { Ok(Vec::new()) }
    }
}

/// Returns the lines of steps after `step`.
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

//! Roll-backs. The undone steps are kept in `rolled-back/`.

use std::path::{Path, PathBuf};

use grpo_data::FileKind;
use serde_json::{Map, Value};

use crate::atomic::write_file;
use crate::completions::name_of;
use crate::folder::{COMPLETIONS, LEDGER, METRICS, ROLLED_BACK};
use crate::json_lines::records;
use crate::{RunError, RunFolder, write_manifest};

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
        let name = aside(number);
        let path = self.path().join(&name);
        let created = self.folder.create_folders(name.join(COMPLETIONS));
        created.map_err(RunError::write(&path))?;
        for file in [METRICS, LEDGER] {
            if self.has(file)? {
                let lines = lines_after(self.lines_of(file)?, step);
                write_file(&self.folder, &name.join(file), lines.as_bytes())?;
            }
        }
        for undone in self.completion_steps()?.into_iter().filter(|&undone| undone > step) {
            let moved = self.folder.rename(name_of(undone), name.join(name_of(undone)));
            moved.map_err(RunError::write(&self.completions_path(undone)))?;
        }
        write_manifest(&path)?;
        Ok(path)
    }
}

impl RunFolder {
    /// Reverts [`Self::set_aside`] for all roll-backs but the first `roll_backs`, because the run was
    /// killed before it completed them. Moves the completions back and removes the copies.
    ///
    /// # Errors
    /// Returns an error if a file cannot be moved or removed.
    pub fn restore_aside(&self, roll_backs: u32) -> Result<(), RunError> {
        let folder = &self.folder;
        let entries =
            |name: &Path| folder.entries(name).map_err(RunError::read(&self.folder.path_of(name)));
        for (name, _) in entries(ROLLED_BACK.as_ref())? {
            if !name.parse().is_ok_and(|number: u32| number > roll_backs) {
                continue;
            }
            let aside = Path::new(ROLLED_BACK).join(name);
            let moved = aside.join(COMPLETIONS);
            for (name, kind) in entries(&moved)? {
                let target = Path::new(COMPLETIONS).join(&name);
                let path = folder.path_of(&target);
                let is_free = folder.kind(&target).map_err(RunError::read(&path))?.is_none();
                if is_free && kind == FileKind::File {
                    let back = folder.rename(moved.join(name), &target);
                    back.map_err(RunError::write(&path))?;
                }
            }
            folder.remove_all(&aside).map_err(RunError::write(&folder.path_of(&aside)))?;
        }
        Ok(())
    }

    /// Returns the folder with the steps undone by roll-back `number`, starting at 1.
    pub(crate) fn rolled_back_path(&self, number: u32) -> PathBuf {
        self.path().join(aside(number))
    }

    /// Returns the `metrics.jsonl` lines undone by roll-back `number`, starting at 1. Returns an
    /// empty list if there was no such roll-back.
    ///
    /// # Errors
    /// Returns an error if the lines cannot be read.
    pub fn undone(&self, number: u32) -> Result<Vec<Map<String, Value>>, RunError> {
        let name = aside(number).join(METRICS);
        let kind = self.folder.kind(&name).map_err(RunError::read(&self.path().join(&name)))?;
        if kind.is_some() { records(&self.folder, &name) } else { Ok(Vec::new()) }
    }
}

/// Returns the name of the folder of roll-back `number` in its run.
fn aside(number: u32) -> PathBuf {
    Path::new(ROLLED_BACK).join(number.to_string())
}

/// Returns the lines that belong to steps after `step`.
fn lines_after(lines: Vec<Map<String, Value>>, step: u64) -> String {
    let is_after = |line: &&Map<String, Value>| {
        line.get("step").and_then(Value::as_u64).is_some_and(|of| of > step)
    };
    let text = |line: &Map<String, Value>| {
        serde_json::to_string(line).expect("parsed JSON serializes to JSON") + "\n"
    };
    lines.iter().filter(is_after).map(text).collect()
}

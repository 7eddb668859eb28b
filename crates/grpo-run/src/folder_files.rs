//! Access to the files in a run folder by name.

use crate::atomic::{write_file, write_folder};
use crate::folder::{FILES, FOLDERS, TENSORBOARD};
use crate::json_lines::{records, sound_records};
use crate::new_run::first_free;
use crate::{Existing, JsonLinesWriter, RunError, RunFolder};
use grpo_data::{FileKind, OwnFolder};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

impl RunFolder {
    /// Renames a file or folder of the run by appending the first unused number, and returns its new
    /// path. Nothing is deleted. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the rename fails.
    pub fn move_aside(&self, name: &str) -> Result<Option<PathBuf>, RunError> {
        if !self.has(name)? {
            return Ok(None);
        }
        let path = self.file(name);
        let moved = first_free(name.as_ref(), |aside| match self.folder.kind(aside) {
            Ok(None) => Some(self.folder.rename(name, aside)),
            Ok(Some(_)) => None,
            Err(error) => Some(Err(error)),
        });
        let (aside, ()) = moved.map_err(RunError::write(&path))?;
        Ok(Some(self.folder.path_of(aside)))
    }

    /// Returns the open folder.
    pub fn files(&self) -> &OwnFolder {
        &self.folder
    }

    /// Returns whether something in the folder has this name.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be read.
    pub fn has(&self, name: &str) -> Result<bool, RunError> {
        let kind = self.folder.kind(name).map_err(RunError::read(&self.file(name)))?;
        Ok(kind.is_some())
    }

    /// Writes a file in the folder atomically.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write_file(&self, name: &str, bytes: &[u8]) -> Result<(), RunError> {
        write_file(&self.folder, name.as_ref(), bytes)
    }

    /// Writes a subfolder atomically and replaces an existing one. See
    /// [`write_folder_atomically`](crate::write_folder_atomically).
    ///
    /// # Errors
    /// Returns an error if `fill` or a write fails.
    pub fn write_subfolder<E: From<RunError>>(
        &self,
        name: &str,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        write_folder(&self.folder, name.as_ref(), Existing::Replace, fill)
    }

    /// Opens a file of JSON lines in the folder. See [`JsonLinesWriter::resume`].
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written, or if a complete line is invalid.
    pub fn lines_to<T: DeserializeOwned>(
        &self,
        name: &str,
        keep: impl FnMut(&T) -> bool,
    ) -> Result<JsonLinesWriter, RunError> {
        JsonLinesWriter::resume_in(&self.folder, name.as_ref(), keep)
    }

    /// Reads a file of JSON lines in the folder. Returns an empty list if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or a complete line is invalid.
    pub fn lines_of<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>, RunError> {
        if self.has(name)? { records(&self.folder, name.as_ref()) } else { Ok(Vec::new()) }
    }

    /// Like [`Self::lines_of`], without the lines that are invalid. Also returns their errors, or the
    /// one of the file.
    pub fn sound_lines_of<T: DeserializeOwned>(&self, name: &str) -> (Vec<T>, Vec<RunError>) {
        match self.has(name) {
            Ok(true) => sound_records(&self.folder, name.as_ref()),
            Ok(false) => (Vec::new(), Vec::new()),
            Err(fault) => (Vec::new(), vec![fault]),
        }
    }

    /// Returns everything that has the name of a file or folder of the run, but is a link, a named
    /// pipe or of another kind.
    pub fn foreign_files(&self) -> Vec<RunError> {
        let mut faults = Vec::new();
        let names = match self.folder.entries("") {
            Ok(names) => names,
            Err(error) => return vec![RunError::read(self.path())(error)],
        };
        for (name, _) in names {
            let is_file = FILES.contains(&name.as_str()) || name.starts_with(TENSORBOARD);
            if is_file {
                let kind = self.folder.is_kind(&name, FileKind::File);
                faults.extend(kind.err().map(RunError::read(&self.file(&name))));
            } else if FOLDERS.contains(&name.as_str()) {
                self.foreign_below(name.as_ref(), &mut faults);
            }
        }
        faults
    }

    fn foreign_below(&self, name: &Path, faults: &mut Vec<RunError>) {
        let entries = match self.folder.entries(name) {
            Ok(entries) => entries,
            Err(error) => {
                faults.push(RunError::read(&self.folder.path_of(name))(error));
                return;
            }
        };
        for (entry, kind) in entries {
            let is_table = entry.ends_with(".parquet");
            let name = name.join(entry);
            match kind {
                FileKind::File => {}
                FileKind::Folder if !is_table => self.foreign_below(&name, faults),
                FileKind::Folder | FileKind::Link | FileKind::Special => {
                    let checked = self.folder.is_kind(&name, FileKind::File);
                    faults.extend(checked.err().map(RunError::read(&self.folder.path_of(&name))));
                }
            }
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path_of(name)
    }
}

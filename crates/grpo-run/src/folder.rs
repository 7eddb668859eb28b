//! The run folder and the paths of its files.

use crate::atomic::parent;
use crate::manifest::sha256;
use crate::{
    ChainWriter, Event, EventKind, Existing, JsonLinesWriter, LedgerStep, RunError, RunInfo,
    write_folder_atomically,
};
use grpo_data::regular_file;
use serde_json::{Map, Value};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// An existing run folder with `config.toml` and `run.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

/// A lock on a folder. Released when dropped, and by the operating system when the process exits.
#[derive(Debug)]
pub struct RunLock {
    file: fs::File,
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // Closing the file would not unlock it while a child process that is being started has a copy.
        let _ = self.file.unlock();
    }
}

/// Prevents other processes from writing to the folder `path` until the returned lock is dropped.
/// The lock file `.lock` is not deleted.
///
/// # Errors
/// Returns an error if another process holds the lock, or if the lock file cannot be created.
pub fn lock_folder(path: &Path) -> Result<RunLock, RunError> {
    let lock = path.join(".lock");
    let file = fs::File::create(&lock).map_err(RunError::write(&lock))?;
    match file.try_lock() {
        Ok(()) => Ok(RunLock { file }),
        Err(fs::TryLockError::WouldBlock) => Err(RunError::FolderLocked { path: path.to_owned() }),
        Err(fs::TryLockError::Error(error)) => Err(RunError::write(&lock)(error)),
    }
}

impl RunFolder {
    /// Checks that a new run can use this path: that it does not exist or is an empty folder.
    ///
    /// # Errors
    /// Returns an error if the path is in use or cannot be read.
    pub fn check_unused(path: &Path) -> Result<(), RunError> {
        match is_taken(path)? {
            true => Err(RunError::RunExists { path: path.to_owned() }),
            false => Ok(()),
        }
    }

    /// Creates the folder of a new run, including missing parent folders. The folder may already
    /// exist if it is empty.
    ///
    /// With [`Existing::Replace`], an existing run is renamed by appending `.old-1` or the next
    /// unused number, and its new path is returned. Nothing is deleted.
    ///
    /// # Errors
    /// Returns an error if the path exists and either must not be replaced or is not a run. Also
    /// returns an error if writing fails, in which case no folder is created.
    pub fn create(
        path: &Path,
        existing: Existing,
        config: &str,
        info: &RunInfo,
    ) -> Result<(Self, Option<PathBuf>), RunError> {
        let taken = match existing {
            Existing::Refuse => {
                Self::check_unused(path)?;
                false
            }
            Existing::Replace => is_taken(path)?,
        };
        // Lock the existing run so that no process writes to it during the rename.
        let _lock = if taken { Some(Self::open(path)?.lock()?) } else { None };
        let aside = if taken { Some(move_aside(path)?) } else { None };
        // Remove an empty folder. If it has been filled in the meantime, it belongs to another run
        // and must be kept.
        match fs::remove_dir(path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                return Err(RunError::RunExists { path: path.to_owned() });
            }
            Err(error) => return Err(RunError::write(path)(error)),
        }
        let config_sha256 = sha256(config.as_bytes());
        let info = RunInfo { config_sha256, chained: true, ..info.clone() };
        let json = serde_json::to_string_pretty(&info)
            .expect("strings and numbers serialize to JSON")
            + "\n";
        let made = write_folder_atomically(path, Existing::Refuse, |folder| {
            let write = |name: &str, text: &str| {
                let path = folder.join(name);
                fs::write(&path, text).map_err(RunError::write(&path))
            };
            write(CONFIG, config)?;
            write(INFO, &json)?;
            for name in [CHECKPOINTS, COMPLETIONS] {
                let path = folder.join(name);
                fs::create_dir(&path).map_err(RunError::write(&path))?;
            }
            Ok(())
        });
        if let Err(error) = made {
            if let Some(aside) = &aside {
                fs::rename(aside, path).map_err(RunError::write(path))?;
            }
            return Err(error);
        }
        let path = path.to_owned();
        Ok((Self { path }, aside))
    }

    /// Opens an existing run folder.
    ///
    /// # Errors
    /// Returns an error if the folder does not contain `run.json`.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        if !path.join(INFO).is_file() {
            return Err(RunError::NotARun { path: path.to_owned() });
        }
        Ok(Self { path: path.to_owned() })
    }

    /// Prevents other processes from writing to the run until the returned lock is dropped.
    ///
    /// # Errors
    /// Returns an error if another process holds the lock, or if the lock file cannot be written.
    pub fn lock(&self) -> Result<RunLock, RunError> {
        lock_folder(&self.path).map_err(|error| match error {
            RunError::FolderLocked { path } => RunError::RunLocked { path },
            error => error,
        })
    }

    /// Renames a file or folder of the run by appending the first unused number. Nothing is
    /// deleted.
    ///
    /// # Errors
    /// Returns an error if the rename fails.
    pub fn move_aside(&self, name: &str) -> Result<(), RunError> {
        let path = self.path.join(name);
        if path.exists() { move_aside(&path).map(|_| ()) } else { Ok(()) }
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the resolved configuration.
    pub fn config_path(&self) -> PathBuf {
        self.path.join(CONFIG)
    }

    /// Returns the path of `run.json`, which contains the [`RunInfo`].
    pub fn info_path(&self) -> PathBuf {
        self.path.join(INFO)
    }

    /// Returns the path of `metrics.jsonl`.
    pub fn metrics_path(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// Reads `config.toml`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn read_config(&self) -> Result<String, RunError> {
        let path = self.config_path();
        regular_file::read_to_string(&path).map_err(RunError::read(&path))
    }

    /// Reads `run.json`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is damaged.
    pub fn read_info(&self) -> Result<RunInfo, RunError> {
        let path = self.info_path();
        let text = regular_file::read(&path).map_err(RunError::read(&path))?;
        serde_json::from_slice(&text).map_err(RunError::json(&path))
    }

    /// Checks that `config.toml` has not changed since the run started.
    ///
    /// # Errors
    /// Returns an error if the file was modified or cannot be read. Runs created by older versions
    /// always pass, because they have no recorded hash.
    pub fn check_config(&self, info: &RunInfo) -> Result<(), RunError> {
        let is_same = sha256(self.read_config()?.as_bytes()) == info.config_sha256;
        match is_same || info.config_sha256.is_empty() {
            true => Ok(()),
            false => Err(RunError::ConfigChanged { path: self.config_path() }),
        }
    }

    /// Reads `metrics.jsonl` and returns one object per line. The order of the keys is preserved.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or a complete line is not a JSON object.
    pub fn read_metrics(&self) -> Result<Vec<Map<String, Value>>, RunError> {
        crate::read_json_lines(&self.metrics_path())
    }

    /// Opens `metrics.jsonl` to append the metrics of `first_step` and later steps. Existing lines
    /// of these steps and lines without a step are removed.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written, or if a complete line is not a JSON
    /// object.
    pub fn metrics_from(&self, first_step: u64) -> Result<JsonLinesWriter, RunError> {
        JsonLinesWriter::resume(&self.metrics_path(), |line: &Map<String, Value>| {
            crate::step_of_line(line).is_some_and(|step| step < first_step)
        })
    }

    /// Returns the path of `ledger.jsonl`.
    pub fn ledger_path(&self) -> PathBuf {
        self.path.join("ledger.jsonl")
    }

    /// Opens `ledger.jsonl` to append [`LedgerStep`]s for `first_step` and later steps. Existing
    /// lines are handled as in [`Self::metrics_from`].
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written, or if a complete line is invalid.
    pub fn ledger_from(&self, first_step: u64) -> Result<ChainWriter, RunError> {
        ChainWriter::resume(&self.ledger_path(), |line: &LedgerStep| line.step < first_step)
    }

    /// Reads `ledger.jsonl`. Returns `None` if it does not exist, e.g. in runs created by older
    /// versions.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or a complete line is invalid.
    pub fn read_ledger(&self) -> Result<Option<Vec<LedgerStep>>, RunError> {
        let path = self.ledger_path();
        path.exists().then(|| crate::read_json_lines(&path)).transpose()
    }

    /// Deletes temporary files left behind by a killed process. The caller must hold the
    /// [`RunLock`].
    ///
    /// # Errors
    /// Returns an error if a folder cannot be read or a file cannot be deleted.
    pub fn clear_leftovers(&self) -> Result<(), RunError> {
        for folder in [self.path.clone(), self.path.join(COMPLETIONS)] {
            crate::atomic::clear_leftovers(&folder)?;
        }
        Ok(())
    }

    /// Returns the path of `events.jsonl`.
    pub fn events_path(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// Opens `events.jsonl` to append the events of `first_step` and later steps. Existing events
    /// of these steps are removed if they were written after the last of `roll_backs` roll-backs.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written, or if a complete line is invalid.
    pub fn events_from(&self, first_step: u64, roll_backs: u32) -> Result<ChainWriter, RunError> {
        let went_back = |event: &Event| match event.what {
            EventKind::RolledBack { number, .. } => number <= roll_backs,
            _ => false,
        };
        let undone = self.read_events()?.iter().rposition(went_back).map_or(0, |last| last + 1);
        let mut line = 0;
        ChainWriter::resume(&self.events_path(), |event: &Event| {
            line += 1;
            line <= undone || event.step < first_step
        })
    }

    /// Reads `events.jsonl`. Returns an empty list if the file does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or a complete line is invalid.
    pub fn read_events(&self) -> Result<Vec<Event>, RunError> {
        let path = self.events_path();
        if path.exists() { crate::read_json_lines(&path) } else { Ok(Vec::new()) }
    }
}

const CONFIG: &str = "config.toml";
const INFO: &str = "run.json";
pub(crate) const CHECKPOINTS: &str = "checkpoints";
pub(crate) const COMPLETIONS: &str = "completions";

/// Returns whether `path` exists and is not an empty folder.
fn is_taken(path: &Path) -> Result<bool, RunError> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) if error.kind() == ErrorKind::NotADirectory => match path.exists() {
            true => Ok(true),
            // A parent of the path is a file.
            false => Err(RunError::write(path)(error)),
        },
        Err(error) => Err(RunError::read(path)(error)),
    }
}

/// Renames a file or folder by appending the first unused number.
fn move_aside(path: &Path) -> Result<PathBuf, RunError> {
    let Some(name) = path.file_name() else {
        return Err(RunError::NoName { path: path.to_owned() });
    };
    let free = (1u32..).find_map(|number| {
        let mut name = name.to_owned();
        name.push(format!(".old-{number}"));
        let path = parent(path).join(name);
        (fs::symlink_metadata(&path).is_err()).then_some(path)
    });
    let aside = free.expect("some number below 2^32 is free");
    fs::rename(path, &aside).map_err(RunError::write(path))?;
    Ok(aside)
}

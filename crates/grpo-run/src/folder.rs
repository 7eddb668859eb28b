//! The run folder and the paths of its files.

use crate::json_lines::records;
use crate::manifest::sha256;
use crate::{ChainWriter, Event, EventKind, JsonLinesWriter, LedgerStep, RunError, RunInfo};
use grpo_data::{FileKind, FileLock, Locked, OwnFolder, regular_file};
use serde_json::{Map, Value};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// An existing run folder with `config.toml` and `run.json`.
///
/// The folder is opened once. Files and folders in it are used without following links, and nothing
/// is written once another folder has its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    pub(crate) folder: OwnFolder,
}

/// A lock on a folder. Released when dropped, and by the operating system when the process exits.
#[derive(Debug)]
pub struct RunLock {
    /// `None` if the file system has no locks.
    _lock: Option<FileLock>,
}

/// Prevents other processes from writing to a folder until the returned lock is dropped.
/// The lock file `.lock` is not deleted, and its content is not changed.
///
/// # Errors
/// Returns an error if another process holds the lock, or if the lock file cannot be created.
pub fn lock_folder(folder: &OwnFolder) -> Result<RunLock, RunError> {
    let locked = folder.lock_file(LOCK).map_err(RunError::write(&folder.path_of(LOCK)))?;
    match locked {
        Locked::Held(lock) => Ok(RunLock { _lock: Some(lock) }),
        Locked::Busy => Err(RunError::FolderLocked { path: folder.path().to_owned() }),
        Locked::Unsupported => Ok(RunLock { _lock: None }),
    }
}

impl RunFolder {
    /// Opens an existing run folder.
    ///
    /// # Errors
    /// Returns an error if the folder does not contain `run.json`.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let not_a_run = || RunError::NotARun { path: path.to_owned() };
        // Commands would take a name such as `-x` for an option.
        let is_like_option = path.as_os_str().as_encoded_bytes().starts_with(b"-");
        let path = &if is_like_option { Path::new(".").join(path) } else { path.to_owned() };
        let folder = match OwnFolder::open(path) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(RunError::read(path)(error));
            }
            folder => folder.map_err(|_| not_a_run())?,
        };
        match folder.is_kind(INFO, FileKind::File).map_err(RunError::read(path))? {
            true => Ok(Self { folder }),
            false => Err(not_a_run()),
        }
    }

    /// Opens the run in the subfolder `name`.
    ///
    /// # Errors
    /// Returns an error if the subfolder is a link or does not contain `run.json`.
    pub fn open_stage(&self, name: &str) -> Result<Self, RunError> {
        self.folder.is_kind(name, FileKind::Folder).map_err(RunError::read(&self.file(name)))?;
        Self::open(&self.file(name))
    }

    /// Prevents other processes from writing to the run until the returned lock is dropped.
    ///
    /// # Errors
    /// Returns an error if another process holds the lock, or if the lock file cannot be written.
    pub fn lock(&self) -> Result<RunLock, RunError> {
        lock_folder(&self.folder).map_err(|error| match error {
            RunError::FolderLocked { path } => RunError::RunLocked { path },
            error => error,
        })
    }

    /// Returns whether another process is training the run. A lock that cannot be checked is not held.
    pub fn is_locked(&self) -> bool {
        self.has(LOCK).unwrap_or(false)
            && matches!(self.folder.lock(LOCK, FileKind::File), Ok(Locked::Busy))
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of the resolved configuration.
    pub fn config_path(&self) -> PathBuf {
        self.path().join(CONFIG)
    }

    /// Returns the path of `run.json`, which contains the [`RunInfo`].
    pub fn info_path(&self) -> PathBuf {
        self.path().join(INFO)
    }

    /// Returns the path of `metrics.jsonl`.
    pub fn metrics_path(&self) -> PathBuf {
        self.path().join(METRICS)
    }

    /// Reads `config.toml`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn read_config(&self) -> Result<String, RunError> {
        let read = self.folder.open_file(CONFIG).and_then(regular_file::read_string_from);
        read.map_err(RunError::read(&self.config_path()))
    }

    /// Reads `run.json`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is damaged.
    pub fn read_info(&self) -> Result<RunInfo, RunError> {
        let path = self.info_path();
        let read = self.folder.open_file(INFO).and_then(regular_file::read_from);
        serde_json::from_slice(&read.map_err(RunError::read(&path))?).map_err(RunError::json(&path))
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

    /// Returns whether a step was recorded in `metrics.jsonl`, which the first step creates.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or a complete line is invalid.
    pub fn has_steps(&self) -> Result<bool, RunError> {
        Ok(self.has(METRICS)? && !self.read_metrics()?.is_empty())
    }

    /// Checks that `metrics.jsonl` has the last step of a run that finished.
    ///
    /// # Errors
    /// Returns an error if the file lacks it, cannot be read or has an invalid complete line.
    pub fn check_metrics(&self, events: &[Event]) -> Result<(), RunError> {
        let Some(Event { step: finished, what: EventKind::Finished { .. }, .. }) = events.last()
        else {
            return Ok(());
        };
        let lines: Vec<Map<String, Value>> = self.lines_of(METRICS)?;
        let found = lines.iter().filter_map(crate::step_of_line).max();
        match found.unwrap_or(0) >= *finished {
            true => Ok(()),
            false => {
                Err(RunError::LostMetrics { path: self.metrics_path(), found, finished: *finished })
            }
        }
    }

    /// Reads `metrics.jsonl` and returns one object per line. The order of the keys is preserved.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or a complete line is not a JSON object.
    pub fn read_metrics(&self) -> Result<Vec<Map<String, Value>>, RunError> {
        records(&self.folder, METRICS.as_ref())
    }

    /// Opens `metrics.jsonl` to append the metrics of `first_step` and later steps. Existing lines
    /// of these steps and lines without a step are removed.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written, or if a complete line is not a JSON
    /// object.
    pub fn metrics_from(&self, first_step: u64) -> Result<JsonLinesWriter, RunError> {
        self.lines_to(METRICS, |line: &Map<String, Value>| {
            crate::step_of_line(line).is_some_and(|step| step < first_step)
        })
    }

    /// Returns the path of `ledger.jsonl`.
    pub fn ledger_path(&self) -> PathBuf {
        self.path().join(LEDGER)
    }

    /// Opens `ledger.jsonl` to append [`LedgerStep`]s for `first_step` and later steps. Existing
    /// lines are handled as in [`Self::metrics_from`].
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written, or if a complete line is invalid.
    pub fn ledger_from(&self, first_step: u64) -> Result<ChainWriter, RunError> {
        ChainWriter::resume(&self.folder, LEDGER.as_ref(), |line: &LedgerStep| {
            line.step < first_step
        })
    }

    /// Reads `ledger.jsonl`. Returns `None` if it does not exist, e.g. in runs created by older
    /// versions.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or a complete line is invalid.
    pub fn read_ledger(&self) -> Result<Option<Vec<LedgerStep>>, RunError> {
        self.has(LEDGER)?.then(|| records(&self.folder, LEDGER.as_ref())).transpose()
    }

    /// Checks that files can be created in the run and in its folders of checkpoints and completions.
    ///
    /// # Errors
    /// Returns an error that names the folder in which nothing can be written.
    pub fn check_writable(&self) -> Result<(), RunError> {
        for name in ["", CHECKPOINTS, COMPLETIONS] {
            if name.is_empty() || self.has(name)? {
                crate::atomic::check_writable(&self.folder, name.as_ref())?;
            }
        }
        Ok(())
    }

    /// Deletes temporary files left behind by a killed process. The caller must hold the
    /// [`RunLock`].
    ///
    /// # Errors
    /// Returns an error if a folder cannot be read or a file cannot be deleted.
    pub fn clear_leftovers(&self) -> Result<(), RunError> {
        for name in ["", COMPLETIONS] {
            crate::atomic::clear_leftovers(&self.folder, name.as_ref())?;
        }
        Ok(())
    }

    /// Returns the path of `events.jsonl`.
    pub fn events_path(&self) -> PathBuf {
        self.path().join(EVENTS)
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
        ChainWriter::resume(&self.folder, EVENTS.as_ref(), |event: &Event| {
            line += 1;
            line <= undone || event.step < first_step
        })
    }

    /// Reads `events.jsonl`. Returns an empty list if the file does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or a complete line is invalid.
    pub fn read_events(&self) -> Result<Vec<Event>, RunError> {
        self.lines_of(EVENTS)
    }
}

pub(crate) const CONFIG: &str = "config.toml";
pub(crate) const INFO: &str = "run.json";
pub(crate) const METRICS: &str = "metrics.jsonl";
pub(crate) const LEDGER: &str = "ledger.jsonl";
pub(crate) const EVENTS: &str = "events.jsonl";
const LOCK: &str = ".lock";
pub(crate) const CHECKPOINTS: &str = "checkpoints";
pub(crate) const COMPLETIONS: &str = "completions";

/// Files of a run.
pub(crate) const FILES: [&str; 13] = [
    CONFIG,
    INFO,
    METRICS,
    LEDGER,
    EVENTS,
    LOCK,
    "best.csv",
    "best.sdf",
    "comparison.json",
    "evaluation-before.jsonl",
    "report.html",
    "reward.log",
    "samples.jsonl",
];
/// Folder with the steps undone by roll-backs.
pub(crate) const ROLLED_BACK: &str = "rolled-back";
/// Start of the names of files for TensorBoard, which searches for `tfevents` in file names and orders
/// files by the time in the name.
pub(crate) const TENSORBOARD: &str = "events.out.tfevents.";
/// Folders of a run. `trunk` is a run itself.
pub(crate) const FOLDERS: [&str; 6] =
    ["adapter", CHECKPOINTS, COMPLETIONS, "model", ROLLED_BACK, "trunk"];
